//! Metrics, access records, logs: bounded, never blocking a request.
