//! How fast a customer may go.
//!
//! | module | question |
//! |---|---|
//! | [`limit`] | what a rate, a limit and an allowance are, and what zero, none and unlimited mean |
//! | [`bucket`] | may this pass now, and if not, when |
//! | [`scopes`] | connection, user, tenant, everybody: all or nothing; estimates reserved and settled |
//! | [`caps`] | how many at once; how many attempts from one address |
//! | [`window`] | no more than N in any span |
//! | [`exact`] | billing-grade quotas, and metering |
//! | [`plan`] | which limits a tenant and its users have |
//! | [`ladder`] | what becomes of a socket's messages under overload |
//! | [`lease`] | one limit over many gateways |
//! | [`fair`] | who is next, where more wait than can be served |
//! | [`dedicate`] | which tenants get a pool of their own |
//! | [`hot`] | which keys carry more than their share, and what to do about one |
//! | [`replay`] | what a limit would have refused of traffic that is known |
//! | [`shares`] | floors of a shared capacity by weight, and who is lent what is idle |
//! | [`rate1`] | the promise RATE-1 as a predicate |
//!
//! Everything is pure: the time is an argument, the arithmetic is in integers, and nothing here does IO. The gateway drives it (`gateway/limits`).

pub mod bucket;
pub mod caps;
pub mod dedicate;
pub mod exact;
pub mod fair;
pub mod hot;
pub mod ladder;
pub mod lease;
pub mod limit;
pub mod plan;
pub mod rate1;
pub mod replay;
pub mod scopes;
pub mod shares;
pub mod window;
