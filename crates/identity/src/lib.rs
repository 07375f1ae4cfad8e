//! Who sent a request? Signed tokens (RFC 7515, RFC 7519) are checked against the keys of their issuer (RFC 7517), under rules that come from
//! configuration and never from the token.
//!
//! Pure: the time, the bytes of a key set and randomness are arguments. [`jws`] takes a token apart, [`key`] and [`keyset`] read keys, [`claims`] says
//! what a token's claims must be and whom they name, [`keeper`] decides when keys are fetched and for how long they may be used, [`cache`] keeps what
//! has been verified, [`guard`] bounds the bad tokens of one address, [`issuing`] makes tokens of one's own. Signatures themselves are checked by aws-lc.

pub mod alg;
pub mod api_key;
pub mod base64;
pub mod cache;
pub mod claims;
pub mod date;
pub mod guard;
pub mod issuing;
pub mod json;
pub mod jws;
pub mod keeper;
pub mod key;
pub mod keyset;
pub mod reject;
pub mod rsa;

pub use alg::Algorithm;
pub use cache::{Cache, Digest, Proof};
pub use claims::{Pointer, Rules, Shown, Subject, TenantFrom};
pub use guard::BadTokens;
pub use jws::Compact;
pub use keeper::{Asked, Keeper, Policy};
pub use key::{Key, Source};
pub use keyset::{KeySet, Skipped};
pub use reject::{Reject, Why};
