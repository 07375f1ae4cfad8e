//! The stages of a request, one file each.

pub mod accept;
pub mod admit;
pub mod blame;
pub mod dispatch;
pub mod early;
pub mod finish;
pub mod flow;
pub mod identify;
pub mod judge;
pub mod payload;
pub mod reading;
pub mod refusal;
pub mod resolve;
pub mod said;
pub mod send;
pub mod submission;
mod written;
