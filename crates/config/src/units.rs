//! Short names for the ranges and defaults in the declarations of sections.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

use holdfast_types::Bytes;

use crate::number::{Size, Span};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const TIB: u64 = 1 << 40;
/// In milliseconds, as the two below.
pub(crate) const MINUTE: u64 = 60_000;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

pub(crate) const fn size(least: u64, most: u64) -> Size {
    Size { least: Bytes(least), most: Bytes(most) }
}

pub(crate) const fn millis_to(least: u64, most: u64) -> Span {
    Span { least: Duration::from_millis(least), most: Duration::from_millis(most) }
}

pub(crate) const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// The number, or 1 for 0.
pub(crate) const fn positive(number: u32) -> NonZeroU32 {
    NonZeroU32::MIN.saturating_add(number.saturating_sub(1))
}

pub(crate) const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}
