//! Who keeps an arm when more becomes known of them.
#![allow(clippy::unwrap_used, reason = "tests")]

use holdfast_assign::sticky::{Anew, subject};
use holdfast_assign::{
    Allocation, Edit, Experiment, Facts, Field, Kept, KeyFrom, Out, Outcome, PLACES, Split, Sticky, Target,
};

/// User and device.
#[derive(Clone, Default)]
struct Who(Option<String>, Option<String>);

impl Facts for Who {
    fn key(&self, from: KeyFrom) -> Option<&str> {
        match from {
            KeyFrom::User => self.0.as_deref(),
            KeyFrom::Device => self.1.as_deref(),
            KeyFrom::Tenant => None,
        }
    }

    fn field(&self, _: &Field) -> Option<&str> {
        None
    }

    fn now_ms(&self) -> u64 {
        0
    }
}

const KEYS: [KeyFrom; 2] = [KeyFrom::User, KeyFrom::Device];

fn experiment(sticky_ms: Option<u64>, coverage: u16) -> Experiment {
    Experiment {
        salt: "sticky".into(),
        running: true,
        start: None,
        end: None,
        keys: KEYS.into(),
        target: Target::default(),
        layer: None,
        holdout: None,
        sticky_ms,
        allocation: Allocation::new(Edit { version: 1, coverage, split: Split::of(&[1, 1]).unwrap() }).unwrap(),
    }
}

fn device(key: &str, owner: Option<u64>) -> Option<Kept<'_>> {
    Some(Kept { from: KeyFrom::Device, key, owner })
}

#[test]
fn whoever_logs_in_keeps_the_arm_of_the_device() {
    let experiment = experiment(Some(1_000), PLACES);
    let mut moved_without = 0;
    for id in 0..1_000 {
        let (user, on) = (format!("u{id}"), format!("d{id}"));
        let before = experiment.assign(&Who(None, Some(on.clone())));
        let Outcome::Arm(arm, KeyFrom::Device) = before else { unreachable!("{before:?}") };
        let kept = Outcome::Kept(arm, KeyFrom::Device);
        let owner = Some(subject(KeyFrom::User, &user));
        let both = Who(Some(user.clone()), Some(on.clone()));
        for owner in [None, owner] {
            assert_eq!(experiment.assign_kept(&both, device(&on, owner)), kept, "logged in");
            assert_eq!(experiment.assign_kept(&Who(Some(user.clone()), None), device(&on, owner)), kept);
            assert_eq!(experiment.assign_kept(&Who::default(), device(&on, owner)), kept, "logged out");
            assert_eq!(experiment.assign_kept(&Who(None, Some(on.clone())), device(&on, owner)), kept);
        }
        moved_without += usize::from(experiment.assign(&both) != Outcome::Arm(arm, KeyFrom::User));
        // Somebody else at the same device is not who logged in here, and another device is not this one.
        let other = Who(Some(format!("other{id}")), Some(on.clone()));
        assert_eq!(experiment.assign_kept(&other, device(&on, owner)), experiment.assign(&other));
        let elsewhere = Who(None, Some(format!("e{id}")));
        assert_eq!(experiment.assign_kept(&elsewhere, device(&on, None)), experiment.assign(&elsewhere));
    }
    assert!((400..600).contains(&moved_without), "{moved_without}");
}

#[test]
fn what_is_kept_decides_only_where_it_is_asked_for_and_puts_nobody_in() {
    let both = Who(Some("u1".into()), Some("d1".into()));
    let plain = experiment(None, PLACES);
    assert_eq!(plain.assign_kept(&both, device("d1", None)), plain.assign(&both));
    let sticky = experiment(Some(1_000), PLACES);
    let of_tenant = Some(Kept { from: KeyFrom::Tenant, key: "acme", owner: None });
    assert_eq!(sticky.assign_kept(&both, of_tenant), sticky.assign(&both), "it is no key of this experiment");
    assert_eq!(sticky.assign_kept(&both, device("", None)), sticky.assign(&both));
    let nobody = experiment(Some(1_000), 0);
    assert_eq!(nobody.assign_kept(&both, device("d1", None)), Outcome::Out(Out::Coverage));
    assert_eq!(
        Experiment { running: false, ..sticky }.assign_kept(&both, device("d1", None)),
        Outcome::Out(Out::NotRunning)
    );
}

#[test]
fn what_is_handed_out() {
    let sticky = Sticky { keep_ms: 1_000, keys: KEYS.into() };
    let (on, both) = (Who(None, Some("d1".into())), Who(Some("u1".into()), Some("d1".into())));
    let owner = Some(subject(KeyFrom::User, "u1"));
    let anew = |owner| Some(Anew { owner });
    assert_eq!(sticky.keep(KeyFrom::User, None, &both), None, "the best key decides by itself");
    assert_eq!(sticky.keep(KeyFrom::Device, None, &on), anew(None));
    assert_eq!(sticky.keep(KeyFrom::Device, Some((None, 900)), &on), None);
    assert_eq!(sticky.keep(KeyFrom::Device, Some((None, 499)), &on), anew(None), "half of its time is over");
    assert_eq!(sticky.keep(KeyFrom::Device, Some((None, 900)), &both), anew(owner), "it is somebody's now");
    assert_eq!(sticky.keep(KeyFrom::Device, Some((owner, 900)), &both), None);
    assert_eq!(sticky.keep(KeyFrom::Device, Some((owner, 499)), &on), anew(owner), "and stays so");
}
