//! A receipt as a ring keeps it: the ordinary request in four cache lines that own no memory of their own, anything else as it is.
//!
//! A ring is larger than a core's caches, so what a receipt costs is the lines that it touches, and most of all those of the old one that it
//! replaces. Of an ordinary request (one attempt, no wait, no failure) everything fits here without a loss; its journal is freed while it is warm.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use holdfast_identity::Subject;
use holdfast_telemetry::{Endpoint, Outcome, Timing};
use holdfast_types::{Mono, Revision};

use super::journal::{Journal, Limited, Look, Tried};
use super::{Receipt, RouteFacts};

/// See the module.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and is to own no memory")]
pub enum Packed {
    /// What an ordinary request leaves.
    Plain(Plain),
    /// What does not fit.
    Whole(Box<Receipt>),
}

/// The longest id that is kept in place: a UUID has 36 bytes.
const ID: usize = 39;
/// So many members of a subset are kept in place.
const LOOKS: usize = 4;
/// No such moment.
const NONE: u32 = u32::MAX;

/// An ordinary request. Moments are nanoseconds since it began, so it took less than four seconds.
#[derive(Clone, Debug)]
pub struct Plain {
    begun: Mono,
    facts: Arc<RouteFacts>,
    subject: Option<Arc<Subject>>,
    revision: Revision,
    reason: &'static str,
    method: &'static str,
    how: &'static str,
    client: Option<Arc<str>>,
    bytes_in: u64,
    bytes_out: u64,
    ended: u32,
    resolved: u32,
    read: u32,
    sent: u32,
    passing: u32,
    answered: u32,
    wait: u32,
    upstream: u32,
    picks: u32,
    limits: Option<Limited>,
    looks: [Look; LOOKS],
    looked: u8,
    member: u8,
    endpoint: Endpoint,
    status: u16,
    id_length: u8,
    id: [u8; ID],
}

impl Packed {
    /// Packs it.
    #[must_use]
    pub fn new(receipt: Receipt) -> Self {
        match Plain::of(&receipt) {
            Some(plain) => Self::Plain(plain),
            None => Self::Whole(Box::new(receipt)),
        }
    }

    /// The request's id.
    #[must_use]
    pub fn id(&self) -> &[u8] {
        match self {
            Self::Plain(plain) => plain.id.get(..usize::from(plain.id_length)).unwrap_or_default(),
            Self::Whole(receipt) => &receipt.id,
        }
    }

    /// Whose request it was, or whose its client said it was.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        match self {
            Self::Plain(plain) => Some(plain.facts.tenant.as_str()),
            Self::Whole(receipt) => match (&receipt.resolved, &receipt.journal.asked) {
                (Some((facts, ..)), _) => Some(facts.tenant.as_str()),
                (None, Some(asked)) => asked.tenant.as_deref(),
                (None, None) => None,
            },
        }
    }

    /// As it was before it was packed.
    #[must_use]
    pub fn unpack(&self) -> Receipt {
        match self {
            Self::Plain(plain) => plain.receipt(self.id()),
            Self::Whole(receipt) => (**receipt).clone(),
        }
    }
}

impl Plain {
    /// None: something of it does not fit.
    fn of(receipt: &Receipt) -> Option<Self> {
        let (outcome, journal) = (&receipt.outcome, &receipt.journal);
        let (facts, reason, revision) = receipt.resolved.as_ref()?;
        let [tried] = &journal.tried[..] else { return None };
        let other = !journal.waits.is_empty()
            || journal.asked.is_some()
            || journal.detail.is_some()
            || journal.cause.is_some()
            || journal.submission.is_some();
        let asked = facts.members.get(usize::from(tried.member));
        if other || outcome.error.is_some() || outcome.attempts != 1 || asked != receipt.replica.as_ref() {
            return None;
        }
        let since = |at: Option<Mono>| at.map_or(Some(NONE), |at| small(at.0.checked_sub(receipt.begun.0)?));
        let timing = &outcome.timing;
        if timing.total != receipt.ended.since(receipt.begun) {
            return None;
        }
        let mut id = [0; ID];
        id.get_mut(..receipt.id.len())?.copy_from_slice(&receipt.id);
        let mut looks = [Look::default(); LOOKS];
        looks.get_mut(..journal.looks.len())?.copy_from_slice(&journal.looks);
        Some(Self {
            begun: receipt.begun,
            facts: facts.clone(),
            subject: receipt.subject.clone(),
            revision: *revision,
            reason,
            method: receipt.method,
            how: tried.ended?,
            client: receipt.client.clone(),
            bytes_in: outcome.bytes_in,
            bytes_out: outcome.bytes_out,
            ended: since(Some(receipt.ended))?,
            resolved: since(journal.resolved)?,
            read: since(journal.read)?,
            sent: since(tried.sent)?,
            passing: since(journal.passing)?,
            answered: since(receipt.answered)?,
            wait: span(timing.wait)?,
            upstream: timing.upstream.map_or(Some(NONE), span)?,
            picks: journal.picks,
            limits: journal.limits,
            looks,
            looked: u8::try_from(journal.looks.len()).ok()?,
            member: tried.member,
            endpoint: outcome.endpoint,
            status: outcome.status,
            id_length: u8::try_from(receipt.id.len()).ok()?,
            id,
        })
    }

    fn receipt(&self, id: &[u8]) -> Receipt {
        let at = |since: u32| Mono(self.begun.0.saturating_add(since.into()));
        let moment = |since: u32| (since != NONE).then(|| at(since));
        let length = |nanos: u32| Duration::from_nanos(nanos.into());
        let upstream = (self.upstream != NONE).then(|| length(self.upstream));
        let tried = Tried { member: self.member, sent: moment(self.sent), ended: Some(self.how) };
        let journal = Journal {
            resolved: moment(self.resolved),
            read: moment(self.read),
            passing: moment(self.passing),
            picks: self.picks,
            limits: self.limits,
            looks: self.looks.iter().take(usize::from(self.looked)).copied().collect(),
            tried: std::iter::once(tried).collect(),
            ..Journal::default()
        };
        Receipt {
            id: Bytes::copy_from_slice(id),
            begun: self.begun,
            ended: at(self.ended),
            subject: self.subject.clone(),
            resolved: Some((self.facts.clone(), self.reason, self.revision)),
            replica: self.facts.members.get(usize::from(self.member)).cloned(),
            method: self.method,
            client: self.client.clone(),
            answered: moment(self.answered),
            outcome: Outcome {
                endpoint: self.endpoint,
                status: self.status,
                error: None,
                attempts: 1,
                bytes_in: self.bytes_in,
                bytes_out: self.bytes_out,
                timing: Timing { total: length(self.ended), wait: length(self.wait), upstream },
            },
            journal: Box::new(journal),
        }
    }
}

/// Nanoseconds that fit beside the mark for none.
fn small(nanos: u64) -> Option<u32> {
    u32::try_from(nanos).ok().filter(|nanos| *nanos != NONE)
}

fn span(span: Duration) -> Option<u32> {
    small(u64::try_from(span.as_nanos()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::{FailureKind, ModelName, PoolName, ReplicaName, TenantId, Version};

    fn ordinary() -> Receipt {
        let names = ["r1", "r2"].map(|name| ReplicaName::parse(name).unwrap());
        let facts = RouteFacts {
            tenant: TenantId::parse("acme").unwrap(),
            model: ModelName::parse("screen").unwrap(),
            version: Version::parse("1").unwrap(),
            pool: PoolName::parse("screening").unwrap(),
            subset: 2,
            members: Box::new(names.clone()),
        };
        let at = |nanos: u64| Mono(1_000_000 + nanos);
        let look = |member| Look { member, holds: true, usable: true, cooling: member == 1, in_flight: 70_000 };
        let journal = Journal {
            resolved: Some(at(7)),
            read: Some(at(0)),
            passing: None,
            picks: 1,
            looks: [look(0), look(1)].into_iter().collect(),
            tried: std::iter::once(Tried { member: 1, sent: Some(at(9)), ended: Some("answered") }).collect(),
            ..Journal::default()
        };
        let timing = Timing {
            total: Duration::from_nanos(2_000),
            wait: Duration::ZERO,
            upstream: Some(Duration::from_nanos(1_991)),
        };
        Receipt {
            id: "6d9f5b0e-3c1a-4a6d-8a57-0a3f3c6f2b11".into(),
            begun: at(0),
            ended: at(2_000),
            subject: None,
            resolved: Some((Arc::new(facts), "pin", Revision(u64::MAX))),
            replica: Some(names[1].clone()),
            method: "POST",
            client: Some("127.0.0.1".into()),
            answered: Some(at(1_999)),
            outcome: Outcome {
                endpoint: Endpoint::Infer,
                status: 200,
                error: None,
                attempts: 1,
                bytes_in: u64::MAX,
                bytes_out: 3,
                timing,
            },
            journal: Box::new(journal),
        }
    }

    /// One way of being out of the ordinary.
    type Change = (&'static str, fn(&mut Receipt));

    #[test]
    fn nothing_is_lost_and_only_what_is_ordinary_is_plain() {
        let odd: [Change; 14] = [
            ("refused", |r| r.resolved = None),
            ("a failure", |r| r.outcome.error = Some(FailureKind::NoHolder)),
            ("two attempts", |r| r.journal.tries(1)),
            ("sent again", |r| r.outcome.attempts = 2),
            ("never tried", |r| r.journal.tried.clear()),
            ("a wait", |r| r.journal.waits("holder", r.begun)),
            ("a detail", |r| r.journal.detail = Some("said".into())),
            ("whom it named", |r| r.journal.asks(Some("acme"), "screen", None)),
            ("a long id", |r| r.id = "x".repeat(40).into()),
            ("four seconds", |r| r.answered = Some(Mono(r.begun.0 + u64::from(NONE)))),
            ("a clock that went back", |r| r.answered = Some(Mono(r.begun.0 - 1))),
            ("a member that is gone", |r| r.journal.tried[0].member = 9),
            ("no end of the attempt", |r| r.journal.tried[0].ended = None),
            ("five members", |r| r.journal.looks = [r.journal.looks[0]; 5].into_iter().collect()),
        ];
        let same = |receipt: Receipt, is_plain: bool, what: &str| {
            let (before, packed) = (format!("{receipt:?}"), Packed::new(receipt.clone()));
            assert_eq!(matches!(packed, Packed::Plain(_)), is_plain, "{what}");
            assert_eq!(format!("{:?}", packed.unpack()), before, "{what}");
            assert_eq!(packed.id(), &*receipt.id, "{what}");
        };
        for (what, change) in odd {
            let mut receipt = ordinary();
            change(&mut receipt);
            same(receipt, false, what);
        }
        let plain: [Change; 6] = [
            ("as it is", |_| {}),
            ("nothing but the route", |r| {
                (r.client, r.answered, r.outcome.timing.upstream) = (None, None, None);
                (r.journal.resolved, r.journal.read, r.journal.tried[0].sent) = (None, None, None);
            }),
            ("a long answer", |r| r.journal.passing = Some(r.ended)),
            ("no id, no looks", |r| (r.id, r.journal.looks) = (Bytes::new(), <_>::default())),
            ("proved and limited", |r| {
                r.subject = Some(Arc::new(Subject {
                    issuer: "https://issuer".into(),
                    tenant: TenantId::parse("acme").unwrap(),
                    user: Some("ann".into()),
                    plan: None,
                    chooses: false,
                    device: None,
                    shown: Box::default(),
                    scopes: Box::default(),
                }));
                r.journal.admitted(true, None);
            }),
            ("just under four seconds", |r| r.answered = Some(Mono(r.begun.0 + u64::from(NONE) - 1))),
        ];
        for (what, change) in plain {
            let mut receipt = ordinary();
            change(&mut receipt);
            same(receipt, true, what);
        }
    }

    #[test]
    fn an_ordinary_receipt_takes_four_cache_lines() {
        assert!(size_of::<Packed>() <= 256, "{}", size_of::<Packed>());
    }

    #[test]
    fn whose_it_was_is_known_packed() {
        assert_eq!(Packed::new(ordinary()).tenant(), Some("acme"));
        let mut refused = ordinary();
        refused.resolved = None;
        assert_eq!(Packed::new(refused.clone()).tenant(), None);
        refused.journal.asks(Some("other"), "screen", None);
        assert_eq!(Packed::new(refused).tenant(), Some("other"));
    }
}
