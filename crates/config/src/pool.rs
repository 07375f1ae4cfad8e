//! Pools of replicas, as checked data.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use holdfast_types::{Bytes, ModelName, PoolName, ReplicaName, Version, Weight};

use crate::kind::Choice;
use crate::number::{Count, Positive};
use crate::section::section;
use crate::template::Template;
use crate::units::{DAY, HOUR, MINUTE, millis_to, positive, secs};

/// A group of replicas that speak one protocol and share one policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Unique in the file, also when case is ignored.
    pub name: PoolName,
    /// What the replicas speak.
    pub protocol: Protocol,
    /// Who decides what a replica holds.
    pub residency: Residency,
    /// How a model and version are called upstream.
    pub upstream: Upstream,
    /// Connections to each replica.
    pub connections: Connections,
    /// Probing and ejection.
    pub health: Health,
    /// Cold loads.
    pub loads: PoolLoads,
    /// What happens when pins do not fit.
    pub memory: MemoryPolicy,
    /// A version that is evicted and loaded again within this time counts as thrashing.
    pub thrash_window: Duration,
    /// How long a replica goes on serving a pinned version whose subset it has left, if no replica of the subset holds it before.
    pub drain: Duration,
    /// Second attempts.
    pub retries: Retries,
    /// At least one; names unique in the pool, also when case is ignored; at least one weight is above zero.
    pub replicas: Vec<Replica>,
}

/// What a pool's replicas speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Open Inference Protocol V2 over HTTP.
    #[default]
    OpenInference,
}

pub(crate) const PROTOCOL: Choice<Protocol> = Choice(&[("open-inference", Protocol::OpenInference)]);

/// Who decides what a replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// The gateway, through the load, unload and index API of the replica.
    Repository,
    /// The file: each replica's `holds`.
    Static,
}

pub(crate) const RESIDENCY: Choice<Residency> =
    Choice(&[("repository", Residency::Repository), ("static", Residency::Static)]);

/// How a model and version are called upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// The upstream's model name.
    pub model: Template,
    /// The upstream's version; renders to "" where the upstream has none.
    pub version: Template,
    /// What an answer must say about the version that served (PIN-1).
    pub answer: AnswerCheck,
}

/// What an answer must say about the model and version that served it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerCheck {
    /// Compared where the answer has it; absence is accepted.
    #[default]
    IfPresent,
    /// Compared; absence is a failure.
    Required,
    /// Not looked at.
    None,
}

pub(crate) const ANSWER_CHECK: Choice<AnswerCheck> =
    Choice(&[("if_present", AnswerCheck::IfPresent), ("required", AnswerCheck::Required), ("none", AnswerCheck::None)]);

section! {
    /// Connections to each replica of a pool.
    pub struct Connections {
        /// Most connections to one replica.
        per_replica: NonZeroU32 = positive(256), Positive { most: 100_000 };
        /// How long an idle one is kept. Less than the replica's own time, which is 5 s for many Python servers.
        idle: Duration = secs(4), millis_to(100, DAY);
        /// Budget of a connect.
        connect: Duration = secs(1), millis_to(1, 5 * MINUTE);
        /// Connections kept open to each replica before there is a request.
        warm: u32 = 1, Count { least: 0, most: 1_000 };
    }
}

section! {
    /// Probing and ejection of replicas.
    pub struct Health {
        /// Time between probes of one replica.
        interval: Duration = secs(2), millis_to(10, HOUR);
        /// Budget of one probe; at most the interval.
        timeout: Duration = secs(1), millis_to(1, HOUR);
        /// Failed probes in a row until a replica is down.
        fall: NonZeroU32 = positive(3), Positive { most: 1_000 };
        /// Good probes in a row until it is up.
        rise: NonZeroU32 = positive(1), Positive { most: 1_000 };
        /// A replica that is down for this long leaves its subsets.
        out_of_service_after: Duration = secs(10), millis_to(0, DAY);
        /// Over this time a replica that came back takes a growing share.
        ease_in: Duration = secs(10), millis_to(0, DAY);
    }
}

section! {
    /// Cold loads in one pool.
    pub struct PoolLoads {
        /// Most loads in flight on one replica.
        per_replica: NonZeroU32 = positive(1), Positive { most: 1_000 };
        /// Budget of one load. Over it the load has failed for who waits, and keeps its slot until it has ended.
        timeout: Duration = secs(120), millis_to(100, DAY);
    }
}

/// What happens when the pinned versions do not fit into the memory of their replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// Pins must fit; the last holder of a pinned version is never evicted.
    Guaranteed,
    /// Least recent use among all, unpinned first.
    #[default]
    Overcommit,
}

pub(crate) const MEMORY_POLICY: Choice<MemoryPolicy> =
    Choice(&[("guaranteed", MemoryPolicy::Guaranteed), ("overcommit", MemoryPolicy::Overcommit)]);

section! {
    /// Second attempts at one submission.
    pub struct Retries {
        /// Attempts after the first.
        attempts: u32 = 2, Count { least: 0, most: 10 };
        /// Percent of the requests of the last 10 s that may be attempts after the first (3 a second are always allowed).
        budget: u32 = 20, Count { least: 0, most: 100 };
    }
}

/// One model server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Decides which keys hash to it; the endpoint may change.
    pub name: ReplicaName,
    /// Where it listens. Unique in the pool.
    pub endpoint: Endpoint,
    /// Memory for versions. None: unlimited.
    pub memory: Option<Bytes>,
    /// Share of traffic relative to the other replicas. Zero: none.
    pub weight: Weight,
    /// Most requests in flight. None: unlimited.
    pub concurrency: Option<NonZeroU32>,
    /// What it holds, in a static pool; empty otherwise. Sorted, no duplicates.
    pub holds: Vec<(ModelName, Version)>,
}

/// Host and port of a replica, from `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// A DNS name in lower case, an IPv4 address, or an IPv6 address without brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
}

impl Endpoint {
    /// What is one and the same for all ways to write the address of one server, as far as that can be told without asking the network: the
    /// loopback's names are one, and a connection to the unspecified address goes there too; an IPv4 address written as IPv6 is itself.
    #[must_use]
    pub fn server(&self) -> (Cow<'_, str>, u16) {
        let host = self.host.trim_end_matches('.');
        let server = match host.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
            Ok(ip) if ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST => {
                "localhost".into()
            }
            Ok(ip) => ip.to_string().into(),
            Err(_) => host.into(),
        };
        (server, self.port)
    }
}

impl fmt::Display for Endpoint {
    /// `host:port` as in a `host` header; an IPv6 address is in brackets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Digest of a model's artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Digest {
    /// `blake3:` and 64 hexadecimal digits.
    Blake3([u8; 32]),
    /// `sha256:` and 64 hexadecimal digits.
    Sha256([u8; 32]),
}
