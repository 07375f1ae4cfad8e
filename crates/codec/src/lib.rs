//! Sans-IO readers and writers of the protocols that pass through.
//!
//! Every machine here takes bytes and gives decisions or bytes; none reads a socket, a clock or a random number. Memory is bounded by
//! constants stated beside each machine, whatever the peer sends.

pub mod answer;
pub mod framing;
pub mod h2;
pub mod json;
pub mod oip;
pub mod rename;
pub mod utf8;
pub mod ws;
