//! Limits as requests meet them: all or nothing, nothing lost, nothing forgotten, bounded.

mod places;
mod refunds;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use holdfast_config::{LimitedEndpoint, Source, load};
use holdfast_quota::bucket::Wait;
use holdfast_quota::limit::Limit;
use holdfast_quota::rate1::Witness;
use holdfast_quota::scopes::Scope;
use holdfast_types::{FailureKind, ModelName, Mono, TenantId};

use super::admit::OnConnection;
use super::users::{Room, Users, Whose};
use super::{Asking, Kept, LimitTable, Refusal, RouteLimits, Taken, What, listed};

const MS: u64 = 1_000_000;

/// Some tenants' limits, with a clock of their own.
struct World {
    kept: Arc<Kept>,
    table: LimitTable,
    now: Mono,
    on: OnConnection,
}

fn config(limits: &str) -> holdfast_config::Config {
    let text = format!(
        "auth: {{ trusted_header: x-tenant, trusted_user_header: x-user }}\npools:\n  - {{ name: p, protocol: open-inference, residency: static, replicas: [{{ name: r, \
         url: \"http://127.0.0.1:1\", holds: [{{ model: m, version: \"1\" }}, {{ model: n, version: \"1\" }}] }}] }}\nmodels:\n  \
         - {{ name: m, pool: p, versions: [{{ version: \"1\" }}] }}\n  - {{ name: n, pool: p, versions: [{{ version: \"1\" }}] }}\n{limits}"
    );
    load(&Source::text("t.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}")).config
}

fn plan(limits: &str) -> String {
    format!("plans: [{{ name: p, {limits} }}]\ntenants: [{{ name: a, plan: p }}, {{ name: b, plan: p }}]")
}

impl World {
    fn new(limits: &str) -> Self {
        let kept = Arc::new(Kept::default());
        let table = kept.table(&config(limits));
        // The books were made by the process's clock.
        Self { kept, table, now: Mono(1 << 60), on: OnConnection::default() }
    }

    fn reload(&mut self, limits: &str) {
        self.table = self.kept.table(&config(limits));
    }

    fn route(&self, tenant: &str, model: &str) -> Option<Box<RouteLimits>> {
        self.table.route(&TenantId::parse(tenant).unwrap(), &ModelName::parse(model).unwrap())
    }

    fn ask(&self, tenant: &str, user: &str, bytes: u64) -> Result<Taken, Refusal> {
        let route = self.route(tenant, "m").unwrap();
        let asking = Asking {
            now: self.now,
            endpoint: LimitedEndpoint::Infer,
            user: route.who(user.as_bytes()),
            plan: None,
            on: &self.on,
            bytes,
            again: false,
            credit: false,
        };
        route.admit(&asking, |_| {})
    }

    fn end(&self, tenant: &str, taken: &Taken, dispatched: bool, bytes: u64) {
        self.route(tenant, "m").unwrap().settle(&self.on, self.now, taken, dispatched, bytes);
    }

    fn pass(&mut self, millis: u64) {
        self.now = Mono(self.now.0 + millis * MS);
    }

    /// What is left of a limit.
    fn left(&self, scope: &str, limit: &str) -> u64 {
        let told = listed(&self.table, Some("a"), None, 10, self.now);
        let rows = told["tenants"][0]["limits"].as_array().into_iter().chain(told["global"].as_array()).flatten();
        let row = rows.into_iter().find(|row| row["scope"] == scope && row["limit"] == limit).unwrap();
        row["available"].as_u64().or(row["running"].as_u64()).unwrap()
    }
}

fn over(refused: Result<Taken, Refusal>) -> (Scope, What) {
    let refusal = refused.expect_err("it is refused");
    (refusal.scope, refusal.what)
}

#[test]
fn nobody_without_limits_has_any() {
    let world = World::new("tenants: [{ name: a }]");
    assert!(world.route("a", "m").is_none());
    let world = World::new("plans: [{ name: p }]\ntenants: [{ name: a, plan: p }]");
    assert!(world.route("a", "m").is_none(), "a plan that says nothing");
}

/// RL-13: what is refused for being one too many uses nothing up.
#[test]
fn one_too_many_at_once_uses_no_rate_up() {
    let world = World::new(&plan("tenant: { requests: 1/h, burst: 2, concurrency: 1 }"));
    let a = world.ask("a", "u", 0).unwrap();
    assert_eq!(over(world.ask("a", "u", 0)), (Scope::Tenant, What::Running));
    world.end("a", &a, true, 0);
    world.ask("a", "u", 0).expect("the second of two");
}

#[test]
fn a_user_over_its_limit_takes_nothing_from_others() {
    let world = World::new(&plan("user: { requests: 1/s, burst: 2 }, tenant: { requests: 1/h, burst: 10 }"));
    for _ in 0..100 {
        let _ = world.ask("a", "greedy", 0);
    }
    assert_eq!(over(world.ask("a", "greedy", 0)), (Scope::User, What::Requests));
    assert_eq!(world.left("tenant", "requests"), 8, "two were admitted");
    for user in ["u", "v", "w", "x"] {
        assert!(world.ask("a", user, 0).is_ok() && world.ask("a", user, 0).is_ok(), "{user}");
    }
    assert_eq!(over(world.ask("a", "y", 0)), (Scope::Tenant, What::Requests));
    assert!(world.ask("b", "greedy", 0).is_ok(), "of another tenant it is another user");
}

#[test]
fn a_refusal_gives_back_what_the_scopes_before_it_took() {
    let limits = plan(
        "connection: { requests: 1/h, burst: 9 }, user: { requests: 1/h, burst: 9, concurrency: 9 }, tenant: { requests: 1/h, burst: 9, bytes: 1/h, bytes_burst: 90, concurrency: 9 }",
    );
    let world = World::new(&format!("limits: {{ global: {{ requests: 1/h, burst: 3 }} }}\n{limits}"));
    let taken: Vec<Taken> = (0..3).map(|_| world.ask("a", "u", 10).unwrap()).collect();
    for _ in 0..50 {
        assert_eq!(over(world.ask("a", "u", 10)), (Scope::Global, What::Requests));
    }
    assert_eq!((world.left("tenant", "requests"), world.left("tenant", "bytes")), (6, 60));
    assert_eq!((world.left("tenant", "concurrency"), world.left("user", "concurrency")), (3, 3));
    assert_eq!(world.on.available(world.now), Some(6));
    taken.iter().for_each(|taken| world.end("a", taken, true, 10));
    assert_eq!((world.left("tenant", "concurrency"), world.left("user", "concurrency")), (0, 0));
    assert_eq!(world.left("tenant", "requests"), 6, "they were sent");
}

#[test]
fn what_was_never_sent_goes_back_and_never_above_the_burst() {
    let mut world = World::new(&plan("tenant: { requests: 1/s, burst: 2, bytes: 10/s, bytes_burst: 100 }"));
    let taken = world.ask("a", "u", 60).unwrap();
    assert_eq!((world.left("tenant", "requests"), world.left("tenant", "bytes")), (1, 40));
    world.end("a", &taken, false, 0);
    assert_eq!((world.left("tenant", "requests"), world.left("tenant", "bytes")), (2, 100));
    let taken = world.ask("a", "u", 60).unwrap();
    world.pass(100_000);
    world.end("a", &taken, false, 0);
    assert_eq!((world.left("tenant", "requests"), world.left("tenant", "bytes")), (2, 100), "never above the burst");
}

#[test]
fn bytes_are_limited_and_settled_with_what_they_were() {
    let mut world = World::new(&plan("tenant: { requests: 1000/s, bytes: 1MB/s, bytes_burst: 5MB }"));
    let admitted = (0..20).filter(|_| world.ask("a", "u", 1_000_000).is_ok()).count();
    assert_eq!(admitted, 5, "20 messages of 1 MB are not 20 small ones");
    world.pass(60_000);
    let taken = world.ask("a", "u", 4_000_000).unwrap();
    world.end("a", &taken, true, 1_000_000);
    assert_eq!(world.left("tenant", "bytes"), 4_000_000);
    let taken = world.ask("a", "u", 0).unwrap();
    world.end("a", &taken, true, 7_000_000);
    assert_eq!(world.left("tenant", "bytes"), 0);
    world.pass(2_000);
    assert_eq!(over(world.ask("a", "u", 1)), (Scope::Tenant, What::Bytes), "a debt is paid first");
    let refusal = world.ask("a", "u", 5_000_001).unwrap_err();
    assert_eq!(refusal.wait, Wait::Never);
    assert_eq!(refusal.failure(&world.route("a", "m").unwrap()).kind, FailureKind::TooLarge);
}

/// RL-11, and that the time told is true: it is admitted then, and not before.
#[test]
fn the_wait_that_is_told_is_the_wait() {
    let mut world = World::new(&plan("tenant: { requests: 1/10s, burst: 1 }"));
    world.ask("a", "u", 0).unwrap();
    world.pass(2_500);
    let refusal = world.ask("a", "u", 0).unwrap_err();
    let failure = refusal.failure(&world.route("a", "m").unwrap());
    assert_eq!((failure.kind, failure.retry_after_secs()), (FailureKind::RateLimited, Some(8)));
    assert_eq!(failure.retry_after, Some(Duration::from_millis(7_500)));
    world.pass(7_499);
    assert!(world.ask("a", "u", 0).is_err());
    world.pass(1);
    assert!(world.ask("a", "u", 0).is_ok());
}

#[test]
fn zero_is_nothing_and_says_so() {
    let world = World::new(&plan("tenant: { requests: 0 }"));
    let failure = world.ask("a", "u", 0).unwrap_err().failure(&world.route("a", "m").unwrap());
    assert_eq!((failure.kind, failure.retry_after_secs()), (FailureKind::RateLimited, Some(60)));
    let world = World::new(&plan("tenant: { bytes: 0 }"));
    assert!(world.ask("a", "u", 0).is_ok(), "what has no bytes passes");
    let failure = world.ask("a", "u", 1).unwrap_err().failure(&world.route("a", "m").unwrap());
    assert_eq!(failure.kind, FailureKind::RateLimited);
}

#[test]
fn exceptions_have_buckets_of_their_own_and_leave_the_rest_to_the_plan() {
    let world = World::new(&plan(
        "user: { requests: 1/h, burst: 5 }, tenant: { requests: 1/h, burst: 3 }, models: { n: { tenant: { requests: 1/h, burst: 1 } } }, \
         endpoints: { metadata: { tenant: { requests: unlimited } } }",
    ));
    let ask = |model: &str, endpoint| {
        let route = world.route("a", model).unwrap();
        let user = route.who(b"u");
        route.admit(
            &Asking {
                now: world.now,
                endpoint,
                user,
                on: &world.on,
                plan: None,
                bytes: 0,
                again: false,
                credit: false,
            },
            |_| {},
        )
    };
    assert!(ask("n", LimitedEndpoint::Infer).is_ok());
    assert_eq!(over(ask("n", LimitedEndpoint::Infer)), (Scope::Tenant, What::Requests));
    assert!((0..3).all(|_| ask("m", LimitedEndpoint::Infer).is_ok()), "the model's exception used none of these");
    assert_eq!(over(ask("m", LimitedEndpoint::Infer)), (Scope::Tenant, What::Requests));
    assert!(ask("n", LimitedEndpoint::Metadata).is_ok(), "the endpoint comes before the model");
    assert_eq!(over(ask("m", LimitedEndpoint::Metadata)), (Scope::User, What::Requests), "the plan's, for users");
}

#[test]
fn another_table_changes_what_is_allowed_and_forgets_nothing() {
    let limits = |burst: u32| {
        plan(&format!(
            "user: {{ requests: 1/h, burst: {burst} }}, tenant: {{ requests: 1/h, burst: {}, concurrency: 5 }}",
            burst * 2
        ))
    };
    let mut world = World::new(&limits(4));
    let old = world.route("a", "m").unwrap();
    let taken: Vec<Taken> = (0..3).map(|_| world.ask("a", "u", 0).unwrap()).collect();
    world.reload(&limits(4));
    assert_eq!((world.left("tenant", "requests"), world.left("tenant", "concurrency")), (5, 3));
    world.reload(&limits(5));
    assert_eq!(world.left("tenant", "requests"), 7, "three of ten are used");
    assert!(world.ask("a", "u", 0).is_ok() && world.ask("a", "u", 0).is_ok());
    assert_eq!(over(world.ask("a", "u", 0)), (Scope::User, What::Requests), "three of five were used");
    // What was admitted before ends where it began.
    taken.iter().for_each(|taken| old.settle(&world.on, world.now, taken, true, 0));
    assert_eq!(world.left("tenant", "concurrency"), 2);
    world.reload("tenants: [{ name: a, limits: { tenant: { requests: 1/h, burst: 10, concurrency: 1 } } }]");
    assert_eq!(over(world.ask("a", "u", 0)), (Scope::Tenant, What::Running), "more are running than may");
    assert_eq!(world.left("tenant", "requests"), 5, "with a limit of its own too");
}

#[test]
fn shadow_counts_what_it_would_refuse_and_refuses_nothing() {
    let world = World::new(&plan("mode: shadow, tenant: { requests: 1/h, burst: 2 }"));
    let mut would = 0;
    for _ in 0..10 {
        let asking = Asking {
            now: world.now,
            endpoint: LimitedEndpoint::Infer,
            user: None,
            plan: None,
            on: &world.on,
            bytes: 0,
            again: false,
            credit: false,
        };
        let taken = world.route("a", "m").unwrap().admit(&asking, |_| would += 1).expect("it passes");
        world.end("a", &taken, true, 0);
    }
    assert_eq!(would, 8);
}

/// One connection may carry requests of several tenants.
#[test]
fn a_connection_has_one_bucket() {
    let world = World::new(&plan("connection: { requests: 20/s, burst: 40 }"));
    let admitted = (0..100).filter(|n| world.ask(if n % 2 == 0 { "a" } else { "b" }, "u", 0).is_ok()).count();
    assert_eq!(admitted, 40);
    assert_eq!(over(world.ask("a", "u", 0)), (Scope::Connection, What::Requests));
}

#[test]
fn without_room_new_users_share_a_bucket_and_nobody_who_is_known_is_forgotten() {
    let room = Arc::new(Room::default());
    room.bound(10, 4);
    let limit = Limit::per_second(1, 5);
    let mut users = Users::new(room);
    let now = Mono(1);
    let own = (0..4).flat_map(|user| [user; 5]).map(|user| users.take(limit, now, user, 1));
    assert!(own.collect::<Vec<_>>().iter().all(|taken| *taken == Ok(Whose::Own)));
    let shared = (4..1_000).filter(|user| users.take(limit, now, *user, 1).is_ok()).count();
    assert_eq!((shared, users.counts()), (5, (4, true)));
    assert!((0..4).all(|user| users.take(limit, now, user, 1).is_err()), "they are still over their limit");
    // Idle for a whole refill, they make room.
    let later = now.after(Duration::from_secs(6));
    assert!(users.take(limit, later, 5_000, 1).is_ok());
    assert_eq!(users.counts().0, 1);
}

#[test]
fn a_million_users_fit() {
    assert!(size_of::<holdfast_quota::bucket::Bucket>() <= 32);
    let room = Arc::new(Room::default());
    room.bound(2_000_000, 2_000_000);
    let limit = Limit::per_second(1, 2);
    let mut users = Users::new(room);
    let mut random = crate::random::Random::new();
    for _ in 0..1_000_000 {
        let user = (u128::from(random.next()) << 64) | u128::from(random.next());
        users.take(limit, Mono(1), user, 1).unwrap();
    }
    let bytes = users.memory();
    assert!(users.counts().0 == 1_000_000 && bytes <= 150_000_000, "{bytes} bytes");
    let before = bytes;
    (0..8).for_each(|_| users.sweep(limit, Mono(1).after(Duration::from_secs(2)), 8));
    assert!(users.counts().0 == 0 && users.memory() < before / 100, "{} bytes are kept of nobody", users.memory());
}

proptest! {
    /// RATE-1 for each user over any history, with users that are forgotten and come again, reloads and refunds in between.
    #[test]
    fn no_user_gets_more_than_rate_and_burst(
        steps in prop::collection::vec((0u128..6, 0u64..3_000, 0u8..12), 1..400), most in 1u32..6, burst in 1u64..9,
    ) {
        let room = Arc::new(Room::default());
        room.bound(100, most);
        let limit = Limit::per_second(2, burst);
        let mut users = Users::new(room);
        let mut now = Mono(1);
        let mut witnesses: Vec<Witness> = (0..6).map(|_| Witness::new(limit, 0, now)).collect();
        for (user, millis, what) in steps {
            now = now.after(Duration::from_millis(millis));
            match what {
                0 => users.sweep(limit, now, 8),
                1 => users.give_back(limit, now, (7, Whose::Own), 3),
                _ => {
                    // Who shares a bucket with others has had less than its own would have given.
                    let alone = users.counts().0 < most as usize || !users.counts().1;
                    if users.take(limit, now, user, 1).is_ok() && alone {
                        prop_assert!(witnesses[user as usize].admitted(now, 1).is_ok(), "user {user}");
                    }
                }
            }
            prop_assert!(users.counts().0 <= most as usize);
        }
    }

    /// ACCT-1: after any history everything that runs has ended, and no bucket holds more than its burst.
    #[test]
    fn everything_comes_back(steps in prop::collection::vec((0usize..3, any::<bool>(), 0u64..40, 0u64..200), 1..200)) {
        let mut world = World::new(&plan(
            "user: { requests: 5/s, concurrency: 3 }, tenant: { requests: 9/s, bytes: 100/s, bytes_burst: 150, concurrency: 5 }",
        ));
        let mut open: Vec<Taken> = Vec::new();
        for (user, ends, bytes, millis) in steps {
            world.pass(millis);
            if ends && !open.is_empty() {
                let taken = open.swap_remove(user % open.len());
                world.end("a", &taken, bytes % 2 == 0, bytes);
            } else if let Ok(taken) = world.ask("a", ["u", "v", "w"][user], bytes) {
                open.push(taken);
            }
            prop_assert_eq!(world.left("tenant", "concurrency"), open.len() as u64);
        }
        open.iter().for_each(|taken| world.end("a", taken, false, 0));
        prop_assert_eq!((world.left("tenant", "concurrency"), world.left("user", "concurrency")), (0, 0));
        world.pass(10_000);
        prop_assert_eq!((world.left("tenant", "requests"), world.left("tenant", "bytes")), (9, 150));
    }
}
