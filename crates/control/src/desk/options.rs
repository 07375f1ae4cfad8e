//! How the roll-outs of changed pins should go about it: given with a change, kept as records beside it until the pins change again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::{CanaryStep, Guard, Options, Shadow};
use holdfast_store::{Json as Text, MAX_PAGE, MAX_RECORD_WRITES, RecordWrite};

use super::ask::Ask;
use super::prepare::Prepared;
use super::retry::{self, Again};
use super::truth::Truth;
use super::{Desk, DeskError};
use crate::guard::Condition;

/// The kind of the records, whose ids are `TENANT/MODEL`. One is in use while its `to` is the desired version of the pin.
pub const PIN_OPTIONS: &str = "pin_options";

/// The value of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinOptions {
    /// The version that the pin was changed to.
    pub to: String,
    /// Pins of one change have one group, and no others have it.
    pub group: String,
    /// How.
    pub options: RolloutOptions,
}

/// What people may say of a roll-out. What is left out is as [`Options`] has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutOptions {
    /// All pins at once, or none.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub atomic: bool,
    /// Copy live traffic first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowOption>,
    /// Shares before the whole.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub canary: Vec<CanaryOption>,
    /// What has to hold of a share before the next one: a condition in CEL over what gateways measure.
    #[serde(rename = "while", skip_serializing_if = "Option::is_none")]
    pub while_holds: Option<String>,
    /// Answers of each version that it asks about, before it is judged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// The most loads asked for at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loads: Option<usize>,
    /// Budget of one load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_ms: Option<u64>,
    /// Tries of a load on one replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
    /// Budget of the warming of a subset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_ms: Option<u64>,
    /// Budget of the gateways' preparation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepare_ms: Option<u64>,
    /// How long requests of the old version may run until there is an alarm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u64>,
    /// How long the old version is kept for a revert without a load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retain_ms: Option<u64>,
}

/// Live traffic copied to the new version. See [`Shadow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowOption {
    /// Requests of a thousand.
    pub share: u16,
    /// Comparisons that are needed.
    pub compare: u64,
    /// Answers of a thousand that may differ.
    #[serde(default)]
    pub differ: u16,
    /// It lasts at least so long.
    #[serde(default)]
    pub at_least_ms: u64,
    /// Without enough comparisons by then the pin fails.
    pub at_most_ms: u64,
}

/// A share of the traffic for some time. See [`CanaryStep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanaryOption {
    /// Percent of the key's traffic.
    pub percent: u8,
    /// The wait until the next step.
    pub wait_ms: u64,
}

impl RolloutOptions {
    /// Whether anything is said.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// As a roll-out takes them. Its plan checks them.
    #[must_use]
    pub fn options(&self) -> Options {
        let base = Options::default();
        let ms = |given: Option<u64>, default: Duration| given.map_or(default, Duration::from_millis);
        Options {
            atomic: self.atomic,
            shadow: self.shadow.map(|s| Shadow {
                share: s.share,
                compare: s.compare,
                differ: s.differ,
                at_least: Duration::from_millis(s.at_least_ms),
                at_most: Duration::from_millis(s.at_most_ms),
            }),
            canary: self
                .canary
                .iter()
                .map(|c| CanaryStep { percent: c.percent, wait: Duration::from_millis(c.wait_ms) })
                .collect(),
            guard: self
                .while_holds
                .as_ref()
                .map(|condition| Guard { condition: condition.clone(), samples: self.samples.unwrap_or(SAMPLES) }),
            loads: self.loads.unwrap_or(base.loads),
            load: ms(self.load_ms, base.load),
            tries: self.tries.unwrap_or(base.tries),
            warm: ms(self.warm_ms, base.warm),
            prepare: ms(self.prepare_ms, base.prepare),
            drain: ms(self.drain_ms, base.drain),
            retain: ms(self.retain_ms, base.retain),
            retry: base.retry,
            checkpoint: base.checkpoint,
        }
    }
}

/// Answers of each version before a condition is judged, if nothing else is said.
const SAMPLES: u64 = 100;

/// New pins that are named in the warnings of a change.
const NAMED: usize = 20;

/// What is said of options that go with pins that nothing served before: a line each.
pub(super) fn unused(options: Option<&RolloutOptions>, truth: &Truth, prepared: &Prepared) -> Vec<String> {
    if !options.is_some_and(RolloutOptions::any) {
        return Vec::new();
    }
    let is_new = |name: &str| truth.in_force.get(ResourceKind::Pin, name).is_none();
    let pins = prepared.changes.iter().filter(|change| change.kind == ResourceKind::Pin && change.after.is_some());
    let mut new = pins.filter(|change| is_new(&change.name));
    let named = new.by_ref().take(NAMED);
    let mut lines: Vec<String> = named
        .map(|change| format!("pin {} is new: it is in force at once, without canary or shadow", change.name))
        .collect();
    let more = new.count();
    lines.extend((more > 0).then(|| format!("{more} more pins are new and in force at once")));
    lines
}

/// The most pins whose options one change writes or clears: what a commit takes of records, but for one.
const MOST: usize = MAX_RECORD_WRITES - 1;

impl Desk {
    /// The records that go with a change: its options for each pin that is changed or asked for again, and none where there were some and the
    /// change has none. Whoever asks again asks for what they say, and not for what somebody said the last time.
    pub(super) async fn option_writes(
        &self,
        ask: &Ask,
        prepared: &Prepared,
        again: &Again,
    ) -> Result<Vec<RecordWrite>, DeskError> {
        let pending = prepared.pending.iter().chain(again.values());
        let held: BTreeSet<String> = pending.map(|p| format!("{}/{}", p.tenant, p.model)).collect();
        // The records of what is asked for again go with it, too.
        let most = MOST - retry::chunks(again).min(MOST);
        if ask.options.is_some() && held.len() > most {
            let reason = format!("can be given for at most {most} pins at a time; this change moves {}", held.len());
            return Err(DeskError::invalid("options", reason));
        }
        if let Some(Err(error)) = ask.options.as_ref().map(|options| options.options().check()) {
            return Err(DeskError::invalid("options", error.to_string()));
        }
        let guard = ask.options.as_ref().and_then(|options| options.options().guard);
        if let Some(Err(why)) = guard.map(|guard| Condition::read(&guard.condition, guard.samples)) {
            return Err(DeskError::invalid("options.while", why));
        }
        let touched: BTreeSet<&str> = prepared
            .changes
            .iter()
            .filter(|change| change.kind == ResourceKind::Pin)
            .map(|change| &*change.name)
            .chain(again.keys().map(|name| &**name))
            .collect();
        let there = self.option_versions(&touched).await?;
        let group = format!("{}-{}", self.truth().head.revision, ask.at_ms);
        let mut writes = Vec::new();
        for name in touched {
            let expected = there.get(name).copied();
            let wanted = ask.options.as_ref().filter(|_| held.contains(name));
            let to = prepared.desired.get(ResourceKind::Pin, name).and_then(|to| to.as_str());
            let value = wanted.zip(to).map(|(options, to)| PinOptions {
                to: to.to_owned(),
                group: group.clone(),
                options: options.clone(),
            });
            if expected.is_some() || value.is_some() {
                let value = value.map(|value| Text::of(&value)).transpose()?;
                writes.push(RecordWrite { kind: PIN_OPTIONS.to_owned(), id: name.to_owned(), expected, value });
            }
        }
        if writes.len() > most {
            let reason =
                format!("more than {most} of the changed pins have options of a roll-out: make it in several changes");
            return Err(DeskError::invalid("options", reason));
        }
        Ok(writes)
    }

    /// The versions of the records that there are for some pins: one by one, or, for many pins, all of the kind.
    async fn option_versions(&self, pins: &BTreeSet<&str>) -> Result<BTreeMap<String, u64>, DeskError> {
        const FEW: usize = 16;
        let mut versions = BTreeMap::new();
        if pins.len() <= FEW {
            for pin in pins {
                let found = self.store.record(PIN_OPTIONS.to_owned(), (*pin).to_owned()).await?;
                versions.extend(found.map(|record| (record.id, record.version)));
            }
            return Ok(versions);
        }
        let mut after = None;
        loop {
            let page = self.store.records(PIN_OPTIONS.to_owned(), after.take(), MAX_PAGE).await?;
            let full = page.len() == MAX_PAGE;
            after = page.last().map(|record| record.id.clone());
            versions.extend(page.into_iter().filter(|r| pins.contains(r.id.as_str())).map(|r| (r.id, r.version)));
            if !full {
                return Ok(versions);
            }
        }
    }
}
