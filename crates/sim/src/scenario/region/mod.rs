//! The world `region`: clients of several regions, each with caches before an origin and with a regional store that is copied to the others a little
//! later. One region is lost, comes back with checks that flap, and gets its clients back by and by.
//!
//! Who gets clients is decided by [`holdfast_decide::regions`]; clients keep an answer for as long as a DNS record may be kept.

mod report;
mod store;

use std::time::Duration;

use holdfast_decide::regions::{Effect, Event, FULL, Regions, Rules};
use holdfast_placement::health::HealthConfig;
use holdfast_types::Mono;

use super::{Ask, Broken, Knob, Report, Set, World, knob};
use crate::chance::Chance;
use crate::queue::Queue;
use store::Sessions;

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
/// Load is looked at over this many seconds.
const WINDOW: u64 = 10;
/// Time starts here on the machine's clock, so that a time before it is one, too.
const START: u64 = 10_000 * SECOND;

const KNOBS: &[Knob] = &[
    knob("regions", 3, 2, 32, "regions; each has as many clients near to it"),
    knob("clients", 600, 1, 1_000_000, "clients"),
    knob("rate", 60, 1, 1_000_000, "requests per second of all of them, a Poisson process"),
    knob("keys", 3_000, 1, 10_000_000, "what is asked for, all as often; each region caches it by itself"),
    knob("entry_ttl_s", 600, 1, 86_400, "how long an entry of a cache lives, with a tenth of jitter either way"),
    knob(
        "origin_percent",
        55,
        1,
        1_000,
        "what a region's origin bears, in per cent of a region's even part of the requests",
    ),
    knob(
        "room_percent",
        200,
        1,
        10_000,
        "what a region bears, in the same: the room for others' clients is there beforehand",
    ),
    knob("ttl_s", 60, 1, 3_600, "how long clients keep to the region that they were told"),
    knob("check_s", 5, 1, 600, "between two checks of a region"),
    knob("lost_checks", 500, 0, 100_000, "one of so many checks fails for no reason; 0: none"),
    knob("writes", 20, 0, 100_000, "writes per second to regional stores"),
    knob("lag_ms", 2_000, 0, 600_000, "how long after a write other regions have it"),
    knob("reconcile_s", 10, 0, 3_600, "how long it takes to bring the stores together"),
    knob("lose_at_s", 100, 1, 86_400, "when a region is lost"),
    knob("lost_s", 120, 1, 86_400, "for how long"),
    knob("flaps", 3, 0, 1_000, "how often it goes again after that"),
    knob("flap_up_s", 40, 1, 3_600, "how long it is there between"),
    knob("flap_down_s", 20, 1, 3_600, "and gone"),
    knob("damped", 1, 0, 1, "0: one check decides, to compare"),
    knob("gradual", 1, 0, 1, "0: a region that is back gets all of its clients at once, to compare"),
    knob("return_s", 480, 1, 86_400, "from the first share of a region that is back to the whole"),
    knob("seconds", 1_100, 20, 86_400, "how long"),
];

/// See the module.
pub static WORLD: World = World {
    name: "region",
    about: "regions, of which one is lost and comes back",
    knobs: KNOBS,
    at_most: &[],
    figures: &[
        ("out_after_s", "how long after the loss the region had no share of the clients any more"),
        (
            "last_failure_s",
            "how long after the loss a client was the last to be sent there in vain, of those before it came back",
        ),
        ("failed", "of all requests: those that found a region that was gone"),
        ("outs", "how often the region was put out"),
        ("other_outs", "how often others were"),
        ("crowded", "of all requests: those for which a region had no room"),
        ("cold", "of all requests: those that a region's origin could not bear"),
        ("origin_peak", "of what it bears: the most that the origin of the lost region got in 10 s after the loss"),
        ("jump", "the most by which the region's part of its own clients' requests grew from one minute to the next"),
        ("whole_s", "how long after it was there for good the region had the whole of its share again; 0: never"),
        ("unseen_longest_s", "the longest time for which a client did not see its own write"),
        ("lost_writes", "acknowledged writes that no region has in the end"),
    ],
    promises: &["REGION-1"],
    run: simulate,
};

enum Ev {
    Request,
    Write,
    Check,
    Gone(bool),
    Copied { to: usize, from: usize, client: usize, version: u32, at: u64 },
    Reconciled { region: usize },
}

struct Client {
    order: Vec<usize>,
    place: u16,
    /// Where it was told to go, and until when it keeps to that.
    told: (usize, u64),
}

/// What a region had in one window.
#[derive(Clone, Copy, Default)]
struct Window {
    requests: u64,
    /// Of its own clients, wherever they went.
    own: u64,
    /// Of its own clients, here.
    own_here: u64,
    origin: u64,
    failed: u64,
}

struct Earth<'a> {
    set: &'a Set,
    chance: Chance,
    queue: Queue<Ev>,
    now: u64,
    regions: Regions,
    rules: Rules,
    clients: Vec<Client>,
    /// Since when a region is gone, if it is.
    gone: Vec<Option<u64>>,
    caches: Vec<Vec<u64>>,
    sessions: Sessions,
    windows: Vec<Vec<Window>>,
    victim: usize,
    acts: Vec<(u64, bool)>,
    counts: Counts,
    broken: Option<Broken>,
    log: Vec<String>,
}

#[derive(Default)]
struct Counts {
    requests: u64,
    failed: u64,
    crowded: u64,
    cold: u64,
    outs: u64,
    other_outs: u64,
    out_at: Option<u64>,
    last_failure: u64,
    whole_at: Option<u64>,
}

fn simulate(ask: &Ask<'_>) -> Report {
    let mut earth = Earth::new(ask);
    let end = ask.set.get("seconds") * SECOND;
    while let Some((at, event)) = earth.queue.take(end) {
        earth.now = at;
        earth.happens(event);
        if earth.broken.is_some() {
            break;
        }
    }
    earth.report(ask.log)
}

fn rules(set: &Set) -> Rules {
    let damped = set.get("damped") == 1;
    let rules = Rules::default();
    let health = if damped {
        rules.health
    } else {
        HealthConfig { fall: 1, rise: 1, eject_base: Duration::ZERO, ..rules.health }
    };
    let return_over = Duration::from_secs(if set.get("gradual") == 1 { set.get("return_s") } else { 0 });
    Rules { health, return_over, ttl: Duration::from_secs(set.get("ttl_s")), ..rules }
}

impl<'a> Earth<'a> {
    fn new(ask: &Ask<'a>) -> Self {
        let set = ask.set;
        let (regions, clients) = (set.count("regions"), set.count("clients"));
        let rules = rules(set);
        let windows = usize::try_from(set.get("seconds").div_ceil(WINDOW)).unwrap_or(0) + 1;
        let mut earth = Self {
            set,
            chance: Chance::new(ask.seed),
            queue: Queue::default(),
            now: 0,
            regions: Regions::new(regions, rules.clone(), Mono(START)),
            rules,
            clients: Vec::with_capacity(clients),
            gone: vec![None; regions],
            caches: vec![vec![0; set.count("keys")]; regions],
            sessions: Sessions::new(regions, clients),
            windows: vec![vec![Window::default(); windows]; regions],
            victim: usize::try_from(ask.seed).unwrap_or(0) % regions,
            acts: Vec::new(),
            counts: Counts::default(),
            broken: None,
            log: Vec::new(),
        };
        for client in 0..clients {
            earth.comes(client);
        }
        earth.warm();
        earth.plan(ask);
        for event in [Ev::Request, Ev::Write, Ev::Check] {
            earth.queue.put(0, event);
        }
        earth
    }

    /// A client: the region near to it first, the others by chance; told where to go some time ago.
    fn comes(&mut self, client: usize) {
        let count = self.gone.len();
        let mut order: Vec<usize> = (0..count).map(|nth| (client + nth) % count).collect();
        for nth in 1..count {
            let other = nth + self.index(count - nth);
            order.swap(nth, other);
        }
        let place = u16::try_from(self.chance.below(u64::from(FULL))).unwrap_or(0);
        let told = (order[0], self.chance.below(self.set.get("ttl_s") * SECOND));
        self.clients.push(Client { order, place, told });
    }

    fn index(&mut self, below: usize) -> usize {
        usize::try_from(self.chance.below(below.max(1) as u64)).unwrap_or(0)
    }

    /// Requests per second of one region, in an even world, times 100.
    fn even(&self) -> u64 {
        self.set.get("rate") * 100 / self.gone.len().max(1) as u64
    }

    /// As it is after a long time: see the world `cache`.
    fn warm(&mut self) {
        let (keys, ttl) = (self.set.get("keys"), self.set.get("entry_ttl_s"));
        let reads = self.even() * ttl / 100;
        for region in 0..self.caches.len() {
            for key in 0..self.caches[region].len() {
                let (there, until) = (self.chance.below(reads + keys) < reads, self.chance.below(ttl * SECOND));
                self.caches[region][key] = if there { until } else { 0 };
            }
        }
    }

    fn plan(&mut self, ask: &Ask<'_>) {
        // At any time between two checks.
        let at = self.set.get("lose_at_s") * SECOND + self.chance.below(self.set.get("check_s") * SECOND);
        let back = at + self.set.get("lost_s") * SECOND;
        self.acts = vec![(at, true), (back, false)];
        let (up, down) = (self.set.get("flap_up_s") * SECOND, self.set.get("flap_down_s") * SECOND);
        for nth in 0..self.set.get("flaps") {
            let from = back + nth * (up + down) + up;
            self.acts.extend([(from, true), (from + down, false)]);
        }
        for (_, (at, gone)) in self.acts.iter().enumerate().filter(|(ix, _)| !ask.without.contains(ix)) {
            self.queue.put(*at, Ev::Gone(*gone));
        }
    }

    fn happens(&mut self, event: Ev) {
        match event {
            Ev::Request => {
                self.request();
                let next = self.now + self.chance.exponential(SECOND / self.set.get("rate").max(1));
                self.queue.put(next, Ev::Request);
            }
            Ev::Write => {
                if let Some(mean) = SECOND.checked_div(self.set.get("writes")) {
                    self.write();
                    let next = self.now + self.chance.exponential(mean);
                    self.queue.put(next, Ev::Write);
                }
            }
            Ev::Check => self.check(),
            Ev::Gone(true) => {
                self.gone[self.victim] = Some(self.now);
                // Who comes back is another process; what is on its disks is still there.
                self.caches[self.victim].fill(0);
            }
            Ev::Gone(false) => self.gone[self.victim] = None,
            Ev::Copied { to, from, client, version, at } => {
                let arrives = self.gone[from].is_none_or(|since| since > at) && self.gone[to].is_none();
                if arrives {
                    self.sessions.copied(to, client, version);
                }
            }
            Ev::Reconciled { region } => {
                let there: Vec<bool> = self.gone.iter().map(Option::is_none).collect();
                if there[region] {
                    self.sessions.reconcile(&there);
                    self.tell(Event::Reconciled { region });
                }
            }
        }
    }

    fn tell(&mut self, event: Event) {
        let mut effects = Vec::new();
        // No event of this world is a command that could be refused.
        let _ = self.regions.apply(Mono(START + self.now), event, &mut effects);
        for effect in effects {
            self.log.push(format!("{:>8.3} s  {effect:?}", self.now as f64 / SECOND as f64));
            match effect {
                Effect::Out { region, .. } if region == self.victim => {
                    self.counts.outs += 1;
                    self.counts.out_at.get_or_insert(self.now);
                }
                Effect::Out { .. } => self.counts.other_outs += 1,
                Effect::Back { region } if region == self.victim => self.counts.whole_at = Some(self.now),
                Effect::Reconcile { region } => {
                    let at = self.now + self.set.get("reconcile_s") * SECOND;
                    self.queue.put(at, Ev::Reconciled { region });
                }
                Effect::Back { .. } | Effect::Raise { .. } | Effect::Alone { .. } => {}
            }
        }
    }

    fn check(&mut self) {
        for region in 0..self.gone.len() {
            let (lost, there) = (self.set.get("lost_checks"), self.gone[region].is_none());
            let mut answers = || there && (lost == 0 || !self.chance.one_in(lost));
            let (balancer, application) = (answers(), answers());
            self.tell(Event::Checked { region, balancer, application });
        }
        self.queue.put(self.now + self.set.get("check_s") * SECOND, Ev::Check);
    }

    /// Where a client goes: where it was told, or, if that is too long ago, where it is told now.
    fn asks(&mut self, client: usize) -> usize {
        let client = &mut self.clients[client];
        if client.told.1 <= self.now {
            let to = self.regions.send(&client.order, client.place, Mono(START + self.now));
            client.told = (to.unwrap_or(client.order[0]), self.now + self.set.get("ttl_s") * SECOND);
        }
        client.told.0
    }

    fn window(&mut self, region: usize) -> &mut Window {
        let last = self.windows[region].len() - 1;
        let at = usize::try_from(self.now / SECOND / WINDOW).unwrap_or(0).min(last);
        &mut self.windows[region][at]
    }

    fn request(&mut self) {
        let client = self.index(self.clients.len());
        let (region, home) = (self.asks(client), self.clients[client].order[0]);
        self.counts.requests += 1;
        self.window(home).own += 1;
        if let Some(since) = self.gone[region] {
            return self.fails(region, since);
        }
        self.window(home).own_here += u64::from(region == home);
        let room = self.even() * self.set.get("room_percent") * WINDOW / 10_000;
        let bears = self.even() * self.set.get("origin_percent") * WINDOW / 10_000;
        let window = self.window(region);
        window.requests += 1;
        if window.requests > room {
            self.counts.crowded += 1;
            return;
        }
        self.sessions.read(self.now, region, client);
        let key = self.index(self.caches[region].len());
        if self.caches[region][key] > self.now {
            return;
        }
        let window = self.window(region);
        window.origin += 1;
        if window.origin > bears {
            self.counts.cold += 1;
            return;
        }
        let ttl = self.set.get("entry_ttl_s") * SECOND;
        self.caches[region][key] = self.now + ttl - ttl / 10 + self.chance.below((ttl / 5).max(1));
    }

    fn fails(&mut self, region: usize, since: u64) {
        self.window(region).failed += 1;
        self.counts.failed += 1;
        let lost_at = self.acts[0].0;
        if since == lost_at {
            self.counts.last_failure = self.now - lost_at;
        }
        let checks = (u64::from(self.rules.health.fall) + 1) * self.set.get("check_s") * SECOND;
        let bound = checks + self.set.get("ttl_s") * SECOND;
        if self.now - since > bound {
            let late = (self.now - since) / MS;
            let what = format!("REGION-1: a client was sent to a region {late} ms after it was lost");
            self.broken.get_or_insert(Broken { at: self.now / MS, what });
        }
    }

    fn write(&mut self) {
        let client = self.index(self.clients.len());
        let region = self.asks(client);
        if self.gone[region].is_some() {
            return;
        }
        let version = self.sessions.write(self.now, region, client);
        let lag = self.set.get("lag_ms") * MS;
        for to in (0..self.gone.len()).filter(|to| *to != region) {
            let (from, at) = (region, self.now);
            self.queue.put(at + lag, Ev::Copied { to, from, client, version, at });
        }
    }
}
