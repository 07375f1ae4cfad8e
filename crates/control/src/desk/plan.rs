//! What a change of what is desired means for what is in force. Pure.
//!
//! In force is what is desired, but for three things. A pin that is in force at another version than desired stays (*held*), until it is
//! activated. A share of a pin's traffic that is on its way to another version (*split*) is there as long as the pin is, until an activation moves
//! or ends it: nobody can ask for one. A version that is not desired any more stays while a pin or a split in force names it (*kept*). Whatever
//! else changes is in force at once: a new pin too, since nothing served it before, and one that is taken away, with its split.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value as Json;

use holdfast_config::ResourceKind::{Model, Pin, Pool, Split, Version};
use holdfast_plane::{Edit, Entries};

use super::error::Fault;

/// A pin's part of an activation; see `PinMove`.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) pin: Arc<str>,
    pub(super) version: Arc<str>,
    pub(super) share: u8,
}

/// What is in force next to a new state of what is desired, by way of everything there is.
///
/// # Errors
/// A pin would change while its model moves.
pub(super) fn whole(desired: &Entries, in_force: &Entries) -> Result<Entries, Fault> {
    moved_and_changed(desired, in_force)?;
    let mut next = desired.clone();
    for (name, current) in in_force.of_kind(Pin) {
        if desired.get(Pin, name).is_some_and(|wanted| wanted != current) {
            next.apply(put(Pin, name, current.clone()));
        }
    }
    let splits = in_force.of_kind(Split).filter(|(name, _)| next.get(Pin, name).is_some());
    let splits: Vec<Edit> = splits.map(|(name, value)| put(Split, name, value.clone())).collect();
    splits.into_iter().for_each(|edit| next.apply(edit));
    keep_versions(desired, in_force, &mut next);
    Ok(next)
}

/// The same for edits of tenants and pins alone: costs what they are. `desired` has them already.
pub(super) fn tenants(desired: &Entries, in_force: &Entries, edits: &[Edit]) -> Entries {
    let mut next = in_force.clone();
    for edit in edits {
        // A pin that has an older version in force is held, also against a change of the change.
        let held = edit.kind == Pin && edit.value.is_some() && in_force.get(Pin, &edit.name).is_some();
        if !held {
            next.apply(edit.clone());
        }
        if edit.kind == Pin && edit.value.is_none() && next.get(Split, &edit.name).is_some() {
            next.apply(Edit { kind: Split, name: edit.name.clone(), value: None });
        }
    }
    drop_versions(desired, &mut next);
    next
}

/// Puts pins and splits in force, and lets go of the versions that nothing needs any more.
///
/// # Errors
/// A pin or its version is not in force, or the share makes no sense, in words.
pub(super) fn activate(
    desired: &Entries,
    in_force: &Entries,
    moves: impl Iterator<Item = Move>,
) -> Result<Entries, String> {
    let mut next = in_force.clone();
    for Move { pin, version, share } in moves {
        let (_, model) = pin.split_once('/').unwrap_or_default();
        let Some(current) = in_force.get(Pin, &pin) else {
            return Err(format!("pin {pin} is not in force, so it cannot be moved"));
        };
        if in_force.get(Version, &format!("{model}/{version}")).is_none() {
            return Err(format!("version {version} of model {model} is not in the table in force"));
        }
        if (1..=99).contains(&share) {
            if current.as_str() == Some(&*version) {
                return Err(format!("pin {pin} is at version {version}, which cannot have a share of it beside"));
            }
            let value = serde_json::json!({ "version": &*version, "percent": share });
            next.apply(put(Split, &pin, Arc::new(value)));
            continue;
        }
        if share > 100 {
            return Err(format!("{share} is no share of pin {pin} in percent"));
        }
        if next.get(Split, &pin).is_some() {
            next.apply(Edit { kind: Split, name: pin.clone(), value: None });
        }
        next.apply(put(Pin, &pin, Arc::new(Json::String(version.to_string()))));
    }
    drop_versions(desired, &mut next);
    Ok(next)
}

fn put(kind: holdfast_config::ResourceKind, name: &Arc<str>, value: Arc<Json>) -> Edit {
    Edit { kind, name: name.clone(), value: Some(value) }
}

/// Versions in force that are not desired.
pub(super) fn kept(desired: &Entries, in_force: &Entries) -> Vec<Arc<str>> {
    let versions = in_force.of_kind(Version).map(|(name, _)| name);
    versions.filter(|name| desired.get(Version, name).is_none()).cloned().collect()
}

/// Takes over what pins and splits in force need and is not desired.
fn keep_versions(desired: &Entries, in_force: &Entries, next: &mut Entries) {
    let gone = kept(desired, in_force);
    let needed = pinned(&gone, next);
    for name in gone.into_iter().filter(|name| needed.contains(name)) {
        let value = in_force.get(Version, &name).cloned();
        next.apply(Edit { kind: Version, name, value });
    }
}

/// Lets go of kept versions that no pin and no split in force names.
fn drop_versions(desired: &Entries, next: &mut Entries) {
    let kept = kept(desired, next);
    let needed = pinned(&kept, next);
    for name in kept.into_iter().filter(|name| !needed.contains(name)) {
        next.apply(Edit { kind: Version, name, value: None });
    }
}

/// Those of some versions that a pin or a split names. Looks at them only if there are versions to look for.
fn pinned(versions: &[Arc<str>], entries: &Entries) -> BTreeSet<Arc<str>> {
    if versions.is_empty() {
        return BTreeSet::new();
    }
    let asked: BTreeSet<&str> = versions.iter().map(AsRef::as_ref).collect();
    let pins = entries.of_kind(Pin).chain(entries.of_kind(Split));
    let named = pins.filter_map(|(name, value)| {
        let (_, model) = name.split_once('/')?;
        asked.get(format!("{model}/{}", named_by(value)?).as_str()).map(|name| Arc::from(*name))
    });
    named.collect()
}

/// The version that the content of a pin or of a split names.
pub(crate) fn named_by(value: &Json) -> Option<&str> {
    value.as_str().or_else(|| value.get("version")?.as_str())
}

/// A pin that would change, or is split, while its model moves to another pool. It could not be held back: a model is in one pool, so the old version's
/// holders would be gone with the move, and the new ones hold nothing yet.
fn moved_and_changed(desired: &Entries, in_force: &Entries) -> Result<(), Fault> {
    let moved = |name: &Arc<str>, before: &Arc<Json>| {
        let (from, to) = (pool_of(before)?, pool_of(desired.get(Model, name)?)?);
        (from != to).then(|| (name.clone(), (from.to_owned(), to.to_owned())))
    };
    let moved: std::collections::BTreeMap<Arc<str>, (String, String)> =
        in_force.of_kind(Model).filter_map(|(name, before)| moved(name, before)).collect();
    if moved.is_empty() {
        return Ok(());
    }
    let changed = in_force.of_kind(Pin).filter_map(|(name, current)| {
        let (tenant, model) = name.split_once('/')?;
        let ((from, to), wanted) = (moved.get(model)?, desired.get(Pin, name)?);
        // A split pin is on its way, too, also back.
        let split = in_force.get(Split, name).and_then(|split| named_by(split));
        let current = if wanted == current { split? } else { current.as_str().unwrap_or_default() };
        Some((name.clone(), tenant, model, from, to, current, wanted))
    });
    let first = changed.min_by(|(a, ..), (b, ..)| a.cmp(b));
    first.map_or(Ok(()), |(_, tenant, model, from, to, current, wanted)| {
        let wanted = wanted.as_str().unwrap_or_default();
        Err(Fault::new(
            format!("models[{model}].pool"),
            format!(
                "model {model} moves from pool {from} to pool {to}, and the pin of tenant {tenant} changes from {current} to {wanted}: \
                 that cannot be done without a gap; change the pins first, wait until none is pending, then move the model"
            ),
        ))
    })
}

/// The pool that a model's content names.
pub(super) fn pool_of(model: &Json) -> Option<&str> {
    model.get("pool")?.as_str()
}

/// A content without any pools in place of one with some is taken for a mistake.
pub(super) fn emptied(desired: &Entries, in_force: &Entries) -> bool {
    desired.of_kind(Pool).next().is_none() && in_force.of_kind(Pool).next().is_some()
}

#[cfg(test)]
mod tests;
