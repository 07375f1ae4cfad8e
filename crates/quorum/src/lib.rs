//! How many of N replicas must answer a read and a write, and what follows from it.
//!
//! | module | question |
//! |---|---|
//! | [`shape`] | what R of N and W of N promise: overlap, losses, the sides of a cut |
//! | [`availability`] | how often enough replicas are up, alone or in groups that fail together |
//! | [`round`] | whether one read or one write is done, lost, or waits, and what a read may be answered with |
//! | [`latency`] | how long the k-th fastest answer takes |
//!
//! Everything is pure. What a shape promises is decided in integers. Chances and times are figures for people who plan, in floating point; nothing is
//! decided by them.

pub mod availability;
pub mod latency;
pub mod round;
pub mod shape;
