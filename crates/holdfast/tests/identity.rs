//! Signed tokens over HTTP: a real gateway, a real server of keys that rotates, is slow, hangs and fails, and tokens made by PyJWT.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

#[path = "identity/fixture.rs"]
mod fixture;
#[path = "identity/forged.rs"]
mod forged;
#[path = "identity/issuer.rs"]
mod issuer;
#[path = "identity/keys.rs"]
mod keys;
#[path = "identity/plans.rs"]
mod plans;
#[path = "identity/secrets.rs"]
mod secrets;
#[path = "identity/tokens.rs"]
mod tokens;
