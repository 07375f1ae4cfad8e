//! A roll-out's record in the store: one head, and its pins in parts, since a value in the store has a bound and a thousand pins pass it.
//!
//! The form has a version. What an older release wrote is read; the examples in the tests are frozen. Times are nanoseconds, since the machine
//! goes on from exactly the age that it saved. In a part, replicas are numbers into a list of names: pins of one pool name the same ones.

mod pins;

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_decide::rollout::{CanaryStep, Guard, Options, Saved, SavedFlip, SavedPin, Shadow, Stage};
use holdfast_store::Json;
use serde::{Deserialize, Serialize};

use pins::{Part, parts};

/// The version of the form that is written, and the only one that is read so far.
pub const FORM: u32 = 1;

/// What is known of a roll-out beside the machine's record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Who asked for what it brings into force.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When it was planned: milliseconds since 1970.
    pub created_ms: u64,
    /// The revision that had changed what is desired last, or had asked for it again.
    pub desired: u64,
    /// It was aborted since something else is desired: its other pins go into another roll-out.
    #[serde(default, skip_serializing_if = "is_default")]
    pub replaced: bool,
    /// Who had it go back, and why. `None`: nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<By>,
}

/// In whose words something goes into history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
}

/// The head of the record: everything but the pins, and what a listing shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// [`FORM`].
    pub form: u32,
    /// The number.
    pub id: u64,
    /// The machine's version of the record.
    pub version: u64,
    /// The fencing term of who wrote it.
    pub term: u64,
    /// Beside the machine's record.
    pub meta: Meta,
    /// How many parts the pins are in.
    pub parts: u32,
    /// Pins by stage.
    pub stages: BTreeMap<String, u32>,
    /// A pin of it is not where it was to go, and no other roll-out was to take it there.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unsettled: bool,
    /// The first words of failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    #[serde(flatten)]
    machine: Machine,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Machine {
    machine: u32,
    age_ns: u64,
    options: OptionsForm,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    flip: Option<FlipForm>,
    next_step: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    paused_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FlipForm {
    step: u32,
    state: String,
    base: u64,
    pins: Vec<(u32, u8)>,
    since_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OptionsForm {
    #[serde(default, skip_serializing_if = "is_default")]
    atomic: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shadow: Option<ShadowForm>,
    /// Percent, and the wait in nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    canary: Vec<(u8, u64)>,
    /// The condition of the canary, and how many answers it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    guard: Option<(String, u64)>,
    loads: u64,
    load_ns: u64,
    tries: u32,
    warm_ns: u64,
    prepare_ns: u64,
    drain_ns: u64,
    retain_ns: u64,
    retry_ns: u64,
    checkpoint_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ShadowForm {
    share: u16,
    compare: u64,
    differ: u16,
    at_least_ns: u64,
    at_most_ns: u64,
}

/// Why a record cannot be written or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// A newer release wrote it.
    #[error("the record has form {0}; this release reads {FORM}")]
    Form(u32),
    /// It is no record of a roll-out.
    #[error("the record is damaged: {0}")]
    Damaged(String),
    /// It does not fit into the store.
    #[error("the record does not fit: {0}")]
    TooLarge(String),
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

const fn span(ns: u64) -> Duration {
    Duration::from_nanos(ns)
}

/// The record as the store keeps it: the head, and the parts in order.
///
/// # Errors
/// [`FormError::TooLarge`].
pub fn write(saved: &Saved, meta: &Meta) -> Result<(Json, Vec<Json>), FormError> {
    let json = |e: holdfast_store::Error| FormError::TooLarge(e.to_string());
    let parts = parts(&saved.pins).iter().map(Json::of).collect::<Result<Vec<_>, _>>().map_err(json)?;
    let head = Head {
        form: FORM,
        id: saved.id,
        version: saved.version,
        term: saved.term,
        meta: meta.clone(),
        parts: u32::try_from(parts.len()).unwrap_or(u32::MAX),
        stages: stages(&saved.pins),
        unsettled: !meta.replaced && saved.pins.iter().any(is_unsettled),
        words: saved.pins.iter().find_map(|pin| pin.words.clone()),
        machine: Machine {
            machine: saved.format,
            age_ns: ns(saved.age),
            options: OptionsForm::of(&saved.options),
            flip: saved.flip.as_ref().map(FlipForm::of),
            next_step: saved.next_step,
            paused_ns: saved.paused.map(ns),
            pending: saved.pending.clone(),
        },
    };
    Ok((Json::of(&head).map_err(json)?, parts))
}

/// Reads the head.
///
/// # Errors
/// [`FormError::Form`], [`FormError::Damaged`].
pub fn head(value: &Json) -> Result<Head, FormError> {
    read(value)
}

/// Reads the whole.
///
/// # Errors
/// [`FormError::Form`], [`FormError::Damaged`].
pub fn saved(head: &Head, parts: &[Json]) -> Result<Saved, FormError> {
    if parts.len() != head.parts as usize {
        return Err(FormError::Damaged(format!("{} parts of {}", parts.len(), head.parts)));
    }
    let mut pins = Vec::new();
    for part in parts {
        let Part { names, pins: forms, .. } = read(part)?;
        for form in forms {
            pins.push(form.pin(&names).ok_or_else(|| FormError::Damaged("a replica without a name".to_owned()))?);
        }
    }
    let Machine { machine, age_ns, options, flip, next_step, paused_ns, pending } = head.machine.clone();
    Ok(Saved {
        format: machine,
        id: head.id,
        version: head.version,
        term: head.term,
        age: span(age_ns),
        options: options.options(),
        pins,
        flip: flip.map(FlipForm::flip),
        next_step,
        paused: paused_ns.map(span),
        pending,
    })
}

fn read<T: serde::de::DeserializeOwned>(value: &Json) -> Result<T, FormError> {
    #[derive(Deserialize)]
    struct Form {
        form: u32,
    }
    let damaged = |e: serde_json::Error| FormError::Damaged(e.to_string());
    let Form { form } = serde_json::from_slice(value.as_bytes()).map_err(damaged)?;
    if form != FORM {
        return Err(FormError::Form(form));
    }
    serde_json::from_slice(value.as_bytes()).map_err(damaged)
}

impl Head {
    /// Whether every pin is at a final stage.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.stages.keys().all(|stage| Stage::parse(stage).is_some_and(Stage::is_final))
    }

    /// Whether somebody paused it.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.machine.paused_ns.is_some()
    }

    /// How it goes about it.
    #[must_use]
    pub fn options(&self) -> Options {
        self.machine.options.clone().options()
    }
}

/// Whether the pin has ended elsewhere than where it was to go.
#[must_use]
pub fn is_unsettled(pin: &SavedPin) -> bool {
    let stage = Stage::parse(&pin.stage);
    matches!(stage, Some(Stage::Failed | Stage::Aborted)) || (stage == Some(Stage::Done) && pin.back)
}

/// Pins by stage.
fn stages(pins: &[SavedPin]) -> BTreeMap<String, u32> {
    let mut stages = BTreeMap::new();
    for pin in pins {
        *stages.entry(pin.stage.clone()).or_insert(0) += 1;
    }
    stages
}

impl FlipForm {
    fn of(flip: &SavedFlip) -> Self {
        let SavedFlip { step, state, base, pins, since } = flip.clone();
        Self { step, state, base, pins, since_ns: ns(since) }
    }

    fn flip(self) -> SavedFlip {
        let Self { step, state, base, pins, since_ns } = self;
        SavedFlip { step, state, base, pins, since: span(since_ns) }
    }
}

impl OptionsForm {
    fn of(options: &Options) -> Self {
        let shadow = options.shadow.map(|s| ShadowForm {
            share: s.share,
            compare: s.compare,
            differ: s.differ,
            at_least_ns: ns(s.at_least),
            at_most_ns: ns(s.at_most),
        });
        Self {
            atomic: options.atomic,
            shadow,
            canary: options.canary.iter().map(|s| (s.percent, ns(s.wait))).collect(),
            guard: options.guard.as_ref().map(|guard| (guard.condition.clone(), guard.samples)),
            loads: options.loads as u64,
            load_ns: ns(options.load),
            tries: options.tries,
            warm_ns: ns(options.warm),
            prepare_ns: ns(options.prepare),
            drain_ns: ns(options.drain),
            retain_ns: ns(options.retain),
            retry_ns: ns(options.retry),
            checkpoint_ns: ns(options.checkpoint),
        }
    }

    fn options(self) -> Options {
        let shadow = self.shadow.map(|s| Shadow {
            share: s.share,
            compare: s.compare,
            differ: s.differ,
            at_least: span(s.at_least_ns),
            at_most: span(s.at_most_ns),
        });
        let step = |(percent, wait)| CanaryStep { percent, wait: span(wait) };
        Options {
            atomic: self.atomic,
            shadow,
            canary: self.canary.into_iter().map(step).collect(),
            guard: self.guard.map(|(condition, samples)| Guard { condition, samples }),
            loads: usize::try_from(self.loads).unwrap_or(usize::MAX),
            load: span(self.load_ns),
            tries: self.tries,
            warm: span(self.warm_ns),
            prepare: span(self.prepare_ns),
            drain: span(self.drain_ns),
            retain: span(self.retain_ns),
            retry: span(self.retry_ns),
            checkpoint: span(self.checkpoint_ns),
        }
    }
}

#[cfg(test)]
mod tests;
