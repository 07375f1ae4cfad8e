//! The pins of a roll-out's record, in parts.

use std::collections::HashMap;

use holdfast_decide::rollout::{SavedPin, SavedSide};
use holdfast_store::MAX_VALUE_BYTES;
use serde::{Deserialize, Serialize};

use super::{FORM, is_default, ns, span};

/// A part ends when it has so many bytes. One pin at its bounds has less than what is left then.
const PART: usize = MAX_VALUE_BYTES / 3;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    form: u32,
    /// Replicas by number.
    pub(super) names: Vec<String>,
    pub(super) pins: Vec<PinForm>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PinForm {
    tenant: String,
    model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    old: Option<SideForm>,
    new: SideForm,
    stage: String,
    since_ns: u64,
    #[serde(default, skip_serializing_if = "is_default")]
    share: u8,
    #[serde(default, skip_serializing_if = "is_default")]
    active: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    back: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    cold: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    overtaken: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    canary: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    flipped: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    words: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SideForm {
    pool: String,
    version: String,
    order: Vec<u32>,
    subset: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lost: Vec<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    touched: Vec<u32>,
}

/// The pins in parts that the store takes.
pub(super) fn parts(pins: &[SavedPin]) -> Vec<Part> {
    let mut parts = Vec::new();
    let (mut part, mut numbers, mut size) = (Part { form: FORM, ..Part::default() }, HashMap::new(), 0);
    for pin in pins {
        if size >= PART {
            parts.push(std::mem::replace(&mut part, Part { form: FORM, ..Part::default() }));
            numbers.clear();
            size = 0;
        }
        let known = part.names.len();
        let form = PinForm::of(pin, &mut |name: &String| {
            let next = u32::try_from(part.names.len()).unwrap_or(u32::MAX);
            *numbers.entry(name.clone()).or_insert_with(|| {
                part.names.push(name.clone());
                next
            })
        });
        size += form.size() + part.names.iter().skip(known).map(|n| n.len() + 3).sum::<usize>();
        part.pins.push(form);
    }
    parts.extend((!part.pins.is_empty()).then_some(part));
    parts
}

impl PinForm {
    fn of(pin: &SavedPin, number: &mut impl FnMut(&String) -> u32) -> Self {
        Self {
            tenant: pin.tenant.clone(),
            model: pin.model.clone(),
            old: pin.old.as_ref().map(|side| SideForm::of(side, number)),
            new: SideForm::of(&pin.new, number),
            stage: pin.stage.clone(),
            since_ns: ns(pin.since),
            share: pin.share,
            active: pin.active,
            back: pin.back,
            cold: pin.cold,
            overtaken: pin.overtaken,
            canary: pin.canary,
            flipped: pin.flipped,
            words: pin.words.clone(),
        }
    }

    pub(super) fn pin(self, names: &[String]) -> Option<SavedPin> {
        Some(SavedPin {
            old: self.old.map(|side| side.side(names).ok_or(())).transpose().ok()?,
            new: self.new.side(names)?,
            tenant: self.tenant,
            model: self.model,
            stage: self.stage,
            since: span(self.since_ns),
            share: self.share,
            active: self.active,
            back: self.back,
            cold: self.cold,
            overtaken: self.overtaken,
            canary: self.canary,
            flipped: self.flipped,
            words: self.words,
        })
    }

    /// About as many bytes as it is written in, rather more. Words may be written with escapes.
    fn size(&self) -> usize {
        let side =
            |s: &SideForm| s.pool.len() + s.version.len() + 64 + 6 * (s.order.len() + s.lost.len() + s.touched.len());
        let sides = side(&self.new) + self.old.as_ref().map_or(0, side);
        let words = self.words.as_ref().map_or(0, |w| w.len() * 6);
        self.tenant.len() + self.model.len() + sides + words + 200
    }
}

impl SideForm {
    fn of(side: &SavedSide, number: &mut impl FnMut(&String) -> u32) -> Self {
        let mut numbers = |names: &[String]| names.iter().map(&mut *number).collect();
        Self {
            order: numbers(&side.order),
            lost: numbers(&side.lost),
            touched: numbers(&side.touched),
            pool: side.pool.clone(),
            version: side.version.clone(),
            subset: side.subset,
        }
    }

    fn side(self, names: &[String]) -> Option<SavedSide> {
        let named = |numbers: Vec<u32>| {
            numbers.into_iter().map(|n| names.get(n as usize).cloned()).collect::<Option<Vec<String>>>()
        };
        Some(SavedSide {
            order: named(self.order)?,
            lost: named(self.lost)?,
            touched: named(self.touched)?,
            pool: self.pool,
            version: self.version,
            subset: self.subset,
        })
    }
}
