//! A small real Open Inference V2 model server, for drills, the demo and tests.
