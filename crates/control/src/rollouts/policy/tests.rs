use super::*;
use holdfast_decide::rollout::SavedSide;
use holdfast_types::{ModelName, TenantId, Version};
use std::time::Duration;

/// Pins: name, desired, in force.
struct Table(Vec<(&'static str, &'static str, &'static str)>);

impl Pins for Table {
    fn desired(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, ..)| *n == name).map(|(_, desired, _)| *desired)
    }

    fn in_force(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, ..)| *n == name).map(|(.., in_force)| *in_force)
    }
}

impl Table {
    fn pending(&self) -> BTreeMap<Arc<str>, Pending> {
        let differs = self.0.iter().filter(|(_, desired, in_force)| desired != in_force);
        differs
            .map(|(name, to, _)| {
                let (tenant, model) = name.split_once('/').unwrap();
                let (tenant, model) = (TenantId::parse(tenant).unwrap(), ModelName::parse(model).unwrap());
                ((*name).into(), Pending { tenant, model, to: Version::parse(to).unwrap(), words: None })
            })
            .collect()
    }
}

fn side(version: &str) -> SavedSide {
    let (pool, version) = ("gpu".to_owned(), version.to_owned());
    SavedSide { pool, version, order: vec!["r".to_owned()], subset: 1, lost: Vec::new(), touched: Vec::new() }
}

/// A pin that goes from version 1 to 2.
fn pin(stage: &str) -> SavedPin {
    let flipped = matches!(stage, "draining" | "retaining" | "collecting" | "done");
    SavedPin {
        tenant: String::new(),
        model: String::new(),
        old: Some(side("1")),
        new: side("2"),
        stage: stage.to_owned(),
        since: Duration::ZERO,
        share: if flipped { 100 } else { 0 },
        active: flipped,
        back: false,
        cold: false,
        overtaken: false,
        canary: 0,
        flipped: 0,
        words: None,
    }
}

/// The wishes with one roll-out, number 7, of these pins.
fn with(table: &Table, pins: &[(&str, SavedPin)], replaced: bool) -> Wishes {
    with_requests(table, pins, replaced, &[])
}

/// The same where pins were asked for again, by these revisions; the roll-out follows a wish of revision 5.
fn with_requests(table: &Table, pins: &[(&str, SavedPin)], replaced: bool, again: &[(&str, u64)]) -> Wishes {
    with_options(table, pins, replaced, again, false)
}

/// The same where the change that leads back has options of its own, or has none.
fn with_options(table: &Table, pins: &[(&str, SavedPin)], replaced: bool, again: &[(&str, u64)], own: bool) -> Wishes {
    let names: Vec<Arc<str>> = pins.iter().map(|(name, _)| (*name).into()).collect();
    let saved: Vec<SavedPin> = pins.iter().map(|(_, pin)| pin.clone()).collect();
    let forgiven = BTreeSet::new();
    let way = Way {
        id: 7,
        names: names.iter().collect(),
        pins: &saved,
        new: saved.iter().map(|p| p.new.version.as_str()).collect(),
        replaced,
        forgiven: &forgiven,
        since: 5,
        own,
    };
    let again = again.iter().map(|(name, at)| ((*name).into(), *at)).collect();
    wishes(table, &table.pending(), &[way], &BTreeMap::new(), &again)
}

fn plans(names: &[&str]) -> Wishes {
    Wishes { plan: names.iter().map(|n| (*n).into()).collect(), ..Wishes::default() }
}

fn waits(name: &str, words: &str) -> Wishes {
    Wishes { waiting: BTreeMap::from([(name.into(), words.to_owned())]), ..Wishes::default() }
}

#[test]
fn whatever_is_on_no_way_is_planned() {
    let table = Table(vec![("a/m", "2", "1"), ("b/m", "2", "1"), ("c/m", "1", "1")]);
    assert_eq!(with(&table, &[], false), plans(&["a/m", "b/m"]));
    assert_eq!(with(&table, &[("a/m", pin("warming"))], false), plans(&["b/m"]));
    assert_eq!(with(&table, &[("a/m", pin("flipping"))], false), plans(&["b/m"]));
}

#[test]
fn a_newer_wish_aborts_what_has_not_flipped_and_the_others_come_along() {
    let table = Table(vec![("a/m", "3", "1"), ("b/m", "2", "1")]);
    let both = |stage| [("a/m", pin(stage)), ("b/m", pin(stage))];
    let wishes = with(&table, &both("ready"), false);
    assert_eq!((wishes.abort, wishes.plan), (BTreeSet::from([7]), Vec::new()));
    assert_eq!(with(&table, &both("ready"), true).abort, BTreeSet::new(), "it was asked for already");
    assert_eq!(with(&table, &both("aborted"), true), plans(&["a/m", "b/m"]));
    let back = Table(vec![("a/m", "1", "1"), ("b/m", "2", "1")]);
    assert_eq!(with(&back, &both("warming"), false).abort, BTreeSet::from([7]), "the wish went back");
}

#[test]
fn a_newer_wish_waits_while_the_others_have_flipped() {
    let table = Table(vec![("a/m", "3", "1"), ("b/m", "2", "2")]);
    let words = "waits for roll-out 7, which moves the pin elsewhere";
    assert_eq!(with(&table, &[("a/m", pin("warming")), ("b/m", pin("draining"))], false), waits("a/m", words));
    let past = Table(vec![("a/m", "3", "2"), ("b/m", "2", "2")]);
    assert_eq!(with(&past, &[("a/m", pin("retaining")), ("b/m", pin("draining"))], false), plans(&["a/m"]));
}

#[test]
fn back_to_all_that_is_retained_is_a_revert_and_to_a_part_of_it_is_not() {
    let back = |stage| [("a/m", pin(stage)), ("b/m", pin("retaining"))];
    let all = Table(vec![("a/m", "1", "2"), ("b/m", "1", "2")]);
    let revert = Wishes { revert: BTreeSet::from([7]), ..Wishes::default() };
    assert_eq!(with(&all, &back("draining"), false), revert);
    assert_eq!(with_options(&all, &back("draining"), false, &[], true), plans(&["a/m", "b/m"]), "a way of its own");
    assert_eq!(with(&all, &back("collecting"), false), plans(&["a/m", "b/m"]), "it is being removed");
    let part = Table(vec![("a/m", "1", "2"), ("b/m", "2", "2")]);
    assert_eq!(with(&part, &back("retaining"), false), plans(&["a/m"]));
    let goes_back = SavedPin { back: true, stage: "warming".to_owned(), ..pin("retaining") };
    assert_eq!(with(&Table(vec![("a/m", "1", "2")]), &[("a/m", goes_back)], true), Wishes::default());
}

#[test]
fn a_canary_that_nobody_wants_any_more_goes_back() {
    let share = |stage: &str| SavedPin { share: 10, active: true, stage: stage.to_owned(), ..pin("canary") };
    let revert = Wishes { revert: BTreeSet::from([7]), ..Wishes::default() };
    for stage in ["canary", "warming", "ready", "flipping"] {
        let wanted = Table(vec![("a/m", "2", "1")]);
        assert_eq!(with(&wanted, &[("a/m", share(stage))], false), Wishes::default(), "{stage}");
        for wish in ["1", "3"] {
            let other = Table(vec![("a/m", wish, "1")]);
            assert_eq!(with(&other, &[("a/m", share(stage))], false), revert, "{stage}: {wish}");
            let second = [("a/m", share(stage)), ("b/m", pin("warming"))];
            let both = Table(vec![("a/m", wish, "1"), ("b/m", "1", "1")]);
            assert_eq!(with(&both, &second, false), revert, "{stage}: {wish}");
            let one = with(&Table(vec![("a/m", wish, "1"), ("b/m", "2", "1")]), &second, false);
            assert!(one.revert.is_empty() && one.abort.is_empty(), "the other one is wanted");
        }
    }
    let back = SavedPin { back: true, ..share("warming") };
    let words = "waits for roll-out 7, which moves the pin elsewhere";
    assert_eq!(with(&Table(vec![("a/m", "3", "1")]), &[("a/m", back)], true), waits("a/m", words));
}

#[test]
fn what_ended_badly_is_not_tried_again_before_it_is_desired_anew() {
    let table = Table(vec![("a/m", "2", "1"), ("b/m", "2", "1")]);
    let failed = SavedPin { words: Some("no room".to_owned()), ..pin("failed") };
    let pins = [("a/m", failed.clone()), ("b/m", pin("warming"))];
    assert_eq!(with(&table, &pins, false), waits("a/m", "roll-out 7 failed: no room"));
    let reverted = SavedPin { back: true, share: 0, ..pin("retaining") };
    assert_eq!(
        with(&Table(vec![("a/m", "2", "1")]), &[("a/m", reverted)], false),
        waits("a/m", "roll-out 7 was reverted")
    );
    let anew = Table(vec![("a/m", "3", "1"), ("b/m", "2", "1")]);
    let wishes = with(&anew, &[("a/m", failed), ("b/m", pin("warming"))], false);
    assert_eq!((wishes.forgive, wishes.plan), (vec![(7, 0)], vec!["a/m".into()]));
    assert!(wishes.abort.is_empty(), "the others go on");
    let held = Stuck { to: "2".to_owned(), words: "roll-out 3 failed".to_owned(), rollout: 3, since: 5 };
    let stuck = BTreeMap::from([("a/m".into(), held)]);
    let table = Table(vec![("a/m", "2", "1")]);
    assert_eq!(
        super::wishes(&table, &table.pending(), &[], &stuck, &BTreeMap::new()),
        waits("a/m", "roll-out 3 failed")
    );
    let table = Table(vec![("a/m", "4", "1")]);
    assert_eq!(super::wishes(&table, &table.pending(), &[], &stuck, &BTreeMap::new()), plans(&["a/m"]));
}

#[test]
fn what_is_asked_for_again_is_tried_again_once() {
    let table = Table(vec![("a/m", "2", "1"), ("b/m", "2", "1")]);
    let failed = SavedPin { words: Some("no room".to_owned()), ..pin("failed") };
    let pins = [("a/m", failed), ("b/m", pin("warming"))];
    let tried = with_requests(&table, &pins, false, &[("a/m", 6)]);
    assert_eq!((tried.forgive, tried.plan, tried.waiting), (vec![(7, 0)], vec!["a/m".into()], BTreeMap::new()));
    for before in [&[("a/m", 5)], &[("b/m", 6)]] {
        assert_eq!(with_requests(&table, &pins, false, before), waits("a/m", "roll-out 7 failed: no room"));
    }
    let held = Stuck { to: "2".to_owned(), words: "roll-out 3 failed".to_owned(), rollout: 3, since: 5 };
    let stuck = BTreeMap::from([("a/m".into(), held)]);
    let table = Table(vec![("a/m", "2", "1")]);
    let again = |at| wishes(&table, &table.pending(), &[], &stuck, &BTreeMap::from([("a/m".into(), at)]));
    assert_eq!((again(6), again(5)), (plans(&["a/m"]), waits("a/m", "roll-out 3 failed")));
}
