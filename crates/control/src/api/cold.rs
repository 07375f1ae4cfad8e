//! Which pins of a way back have to load their old version anew: it is not retained by a roll-out any more, or never was. A person is told before
//! anything is changed, since going back is then no quick way out but a redeployment.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value as Json, json};

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::{PinProgress, Stage};
use holdfast_plane::{Edit, Entries};

use super::RolloutView;

/// Pins (`TENANT/MODEL`), each with a version that is kept for it.
pub type Retained = BTreeSet<(Arc<str>, String)>;

/// At these a pin has left a version that is kept for it.
pub(super) const KEEPING: [Stage; 3] = [Stage::Canary, Stage::Draining, Stage::Retaining];

/// What these roll-outs keep.
pub(super) fn retained<'a>(all: impl IntoIterator<Item = &'a RolloutView>) -> Retained {
    all.into_iter().filter(|view| !view.over).flat_map(|view| view.progress.pins.iter().filter_map(kept)).collect()
}

/// The version that a flipped pin has left, as long as it is kept.
fn kept(pin: &PinProgress) -> Option<(Arc<str>, String)> {
    let keeps = KEEPING.contains(&pin.stage);
    let left = if pin.back { Some(&pin.new) } else { pin.old.as_ref() };
    let version = left.filter(|_| keeps)?.as_str().to_owned();
    Some((format!("{}/{}", pin.tenant, pin.model).into(), version))
}

/// Of these edits of pins, those that move a pin in force to a version that is not kept for it.
pub(super) fn cold<'e>(edits: &'e [Edit], in_force: &Entries, retained: &Retained) -> Vec<(&'e Arc<str>, &'e str)> {
    let moves = |edit: &'e Edit| {
        let (version, now) = (edit.value.as_ref()?.as_str()?, in_force.get(ResourceKind::Pin, &edit.name)?);
        let is_cold = now.as_str() != Some(version) && !retained.contains(&(edit.name.clone(), version.to_owned()));
        is_cold.then_some((&edit.name, version))
    };
    edits.iter().filter_map(moves).collect()
}

/// As the answer lists them.
pub(super) fn listed(cold: &[(&Arc<str>, &str)], most: usize) -> Json {
    cold.iter().take(most).map(|(pin, version)| json!({ "pin": &***pin, "version": version })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_decide::rollout::{Phase, Progress, RolloutId};
    use holdfast_types::{ModelName, TenantId, Version};
    use std::time::Duration;

    fn pin(tenant: &str, way: (&str, &str), stage: Stage, back: bool) -> PinProgress {
        PinProgress {
            tenant: TenantId::parse(tenant).unwrap(),
            model: ModelName::parse("m").unwrap(),
            old: Some(Version::parse(way.0).unwrap()),
            new: Version::parse(way.1).unwrap(),
            stage,
            share: 0,
            back,
            cold: false,
            since: Duration::ZERO,
            waiting_for: Vec::new(),
            words: None,
        }
    }

    fn view(over: bool, pins: Vec<PinProgress>) -> RolloutView {
        let (phase, since) = (Phase::Retain, Duration::ZERO);
        let progress =
            Progress { id: RolloutId(1), phase, paused: false, since, pins, waiting_for: Vec::new(), words: None };
        let (author, reason) = (String::new(), String::new());
        RolloutView { progress: Arc::new(progress), over, author, reason, created_ms: 0, back: None }
    }

    fn edit(name: &str, version: Option<&str>) -> Edit {
        Edit { kind: ResourceKind::Pin, name: name.into(), value: version.map(|v| Arc::new(json!(v))) }
    }

    #[test]
    fn what_is_kept_for_a_pin_is_not_cold_for_it() {
        let running = view(
            false,
            vec![
                pin("kept", ("1", "2"), Stage::Retaining, false),
                pin("drains", ("1", "2"), Stage::Draining, false),
                pin("shared", ("1", "2"), Stage::Canary, false),
                pin("back", ("1", "2"), Stage::Retaining, true),
                pin("going", ("1", "2"), Stage::Collecting, false),
                pin("gone", ("1", "2"), Stage::Done, false),
                pin("warms", ("1", "2"), Stage::Warming, false),
            ],
        );
        let over = view(true, vec![pin("over", ("1", "2"), Stage::Retaining, false)]);
        let retained = retained([&running, &over]);
        let mut in_force = Entries::default();
        for name in ["kept", "drains", "shared", "back", "going", "gone", "over", "never"] {
            let now = if name == "back" { "1" } else { "2" };
            in_force.apply(edit(&format!("{name}/m"), Some(now)));
        }
        in_force.apply(edit("stays/m", Some("1")));
        let named = |edits: &[Edit]| -> Vec<String> {
            cold(edits, &in_force, &retained).into_iter().map(|(pin, version)| format!("{pin} {version}")).collect()
        };
        for warm in ["kept", "drains", "shared"] {
            assert!(named(&[edit(&format!("{warm}/m"), Some("1"))]).is_empty(), "{warm}");
        }
        assert!(named(&[edit("back/m", Some("2"))]).is_empty(), "what a way back has left is kept, too");
        assert_eq!(named(&[edit("kept/m", Some("3"))]), ["kept/m 3"], "another version is not");
        // Nothing moves: the pin goes, is new, or is where it is to be.
        assert!(named(&[edit("gone/m", None), edit("new/m", Some("1")), edit("stays/m", Some("1"))]).is_empty());
        let all: Vec<Edit> =
            ["going", "gone", "over", "never"].map(|name| edit(&format!("{name}/m"), Some("1"))).into();
        assert_eq!(named(&all), ["going/m 1", "gone/m 1", "over/m 1", "never/m 1"]);
        assert_eq!(listed(&cold(&all, &in_force, &retained), 1), json!([{ "pin": "going/m", "version": "1" }]));
    }
}
