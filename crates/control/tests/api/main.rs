//! The admin API over a real desk on a real store, without a network: what each route answers to good and to bad requests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changes;
mod document;
mod events;
mod history;
mod pages;
mod refusals;
mod support;
mod tokens;
