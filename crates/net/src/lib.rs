//! HTTP server and client plumbing: listeners, replica connection pools, drain.
