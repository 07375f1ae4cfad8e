//! A fleet in one thread: gateways, registrars over one record, servers, and a network that does what it likes.

#![allow(dead_code, clippy::panic, clippy::unwrap_used, reason = "a test fails loudly; each program uses a part of it")]

mod gateway;

use std::collections::BTreeMap;
use std::time::Duration;

use gateway::Gateway;
use holdfast_placement::seats::{Heard, Record, Registrar, Rules, Sit, Told};
use holdfast_types::{GatewayName, Mono};

pub const LEASE: Duration = Duration::from_secs(10);
/// How long gateways go on without a control plane.
pub const ALONE: Duration = Duration::from_secs(60);
/// No load lasts longer, by any clock.
pub const LOAD: u64 = 15_000;
/// The most loads on a server.
pub const MAX_LOADS: usize = 2;
pub const SERVERS: [&str; 4] = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"];

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub gateways: usize,
    pub bound: u32,
    /// Whether servers tell what they are loading.
    pub lists: bool,
    /// Whether gateways reach one another.
    pub peers: bool,
}

/// A load in flight on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    pub id: u64,
    pub server: usize,
    pub ends: u64,
}

#[derive(Clone, Debug)]
enum Message {
    Sit { control: usize, gateway: usize, life: u64, sit: Sit, sent: Mono },
    Told { gateway: usize, life: u64, told: Told, sent: Mono },
    Ask { from: usize, life: u64, to: usize, epoch: u64, sent: Mono },
    Vote { to: usize, life: u64, heard: Heard },
    Write { control: usize, claim: bool, expected: u64, record: Record, sent: Mono },
    Wrote { control: usize, claim: bool, version: Option<u64>, record: Record, sent: Mono },
}

#[derive(Default)]
struct Control {
    registrar: Option<Registrar>,
    version: u64,
    /// Until when the answer of a write is waited for.
    writing: Option<u64>,
    confirm_at: u64,
    dead: bool,
    rate: u64,
}

pub struct World {
    pub shape: Shape,
    /// Milliseconds.
    pub now: u64,
    random: u64,
    pub gateways: Vec<Gateway>,
    controls: Vec<Control>,
    record: (u64, Record),
    messages: BTreeMap<(u64, u64), Message>,
    number: u64,
    pub loads: Vec<Load>,
    /// Calm: nothing is lost, nobody dies.
    calm: bool,
    cut: u64,
}

impl World {
    pub fn new(shape: Shape, seed: u64) -> Self {
        let mut world = Self {
            shape,
            now: 1_000,
            random: seed,
            gateways: Vec::new(),
            controls: Vec::new(),
            record: (0, Record::default()),
            messages: BTreeMap::new(),
            number: 0,
            loads: Vec::new(),
            calm: false,
            cut: 0,
        };
        for number in 0..shape.gateways {
            let rate = 900 + world.below(201);
            let mut gateway = Gateway::new(number, rate, shape, world.now);
            gateway.live(world.now);
            world.gateways.push(gateway);
        }
        for _ in 0..2 {
            let rate = 900 + world.below(201);
            world.controls.push(Control { rate, ..Control::default() });
        }
        world
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn clock(&self, rate: u64) -> Mono {
        Mono(self.now * 1_000 * rate)
    }

    fn send(&mut self, message: Message) {
        if !self.calm && self.chance(10) {
            return;
        }
        let delay = if self.calm {
            self.below(50)
        } else if self.chance(5) {
            self.below(15_000)
        } else {
            self.below(400)
        };
        self.number += 1;
        self.messages.insert((self.now + delay, self.number), message);
    }

    /// One step of time and whatever falls into it.
    pub fn step(&mut self) {
        let pause = self.below(200);
        let until = self.now + pause;
        while let Some(entry) = self.messages.first_entry().filter(|entry| entry.key().0 <= until) {
            let ((at, _), message) = entry.remove_entry();
            self.now = self.now.max(at);
            self.deliver(message);
            self.check();
        }
        self.now = until;
        let now = self.now;
        self.loads.retain(|load| load.ends > now);
        for index in 0..self.gateways.len() {
            self.act(index);
        }
        for index in 0..self.controls.len() {
            self.rule(index);
        }
        if !self.calm {
            self.harm();
        }
        self.check();
    }

    fn harm(&mut self) {
        let index = self.below(self.gateways.len() as u64) as usize;
        match self.below(400) {
            0 => self.gateways[index].die(),
            1..=3 => {
                let now = self.now;
                self.gateways[index].live(now);
            }
            4 | 5 => self.gateways[index].paused = self.now + self.below(40_000),
            // The folder is lost, and with it all promises.
            6 => self.gateways[index].lose_home(self.number),
            7 => self.cut = self.below(u64::MAX),
            8..=10 => self.cut = 0,
            11 => self.controls[index % 2].registrar = None,
            12 => self.controls[index % 2].dead = true,
            13 | 14 => self.controls[index % 2].dead = false,
            15 => self.gateways[index].leave(),
            _ => {}
        }
    }

    /// Whether two of the fleet reach one another: gateways first, then control planes.
    fn reaches(&self, a: usize, b: usize) -> bool {
        let (a, b) = (a.min(b) as u64, a.max(b) as u64);
        self.calm || self.cut & (1 << ((a * 8 + b) % 64)) == 0
    }

    fn act(&mut self, index: usize) {
        if self.gateways[index].stands_still(self.now) {
            return;
        }
        let now = self.now;
        // Polls and loads.
        let server = self.below(SERVERS.len() as u64) as usize;
        let loads = self.loads.clone();
        self.gateways[index].poll(now, server, &loads);
        let (server, lasts) = (self.below(SERVERS.len() as u64) as usize, 100 + self.below(LOAD - 5_000));
        self.number += 1;
        let load = Load { id: self.number, server, ends: now + lasts };
        if self.gateways[index].begins(now, load, &loads) {
            self.loads.push(load);
        }
        // Questions.
        if self.gateways[index].asks_at > now {
            return;
        }
        self.gateways[index].asks_at = now + 500 + self.below(1_500);
        let loads = self.loads.clone();
        let (life, sit, sent) = self.gateways[index].sits(now, &loads);
        // Who is refused by one asks the other.
        let first = if self.calm { 0 } else { self.below(2) as usize };
        let control = (0..2).map(|n| (first + n) % 2).find(|n| !self.controls[*n].dead).unwrap_or(first);
        if self.reaches(index, 6 + control) {
            self.send(Message::Sit { control, gateway: index, life, sit, sent });
        }
        for (to, epoch) in self.gateways[index].voters() {
            if self.reaches(index, to) {
                self.send(Message::Ask { from: index, life, to, epoch, sent });
            }
        }
    }

    /// A control plane that believes to lead.
    fn rule(&mut self, index: usize) {
        let (now, clock) = (self.now, self.clock(self.controls[index].rate));
        let calm = self.calm;
        let control = &mut self.controls[index];
        if control.dead || control.writing.is_some_and(|until| until > now) {
            return;
        }
        if control.writing.take().is_some() {
            // No answer: nobody knows.
            control.registrar = None;
        }
        let Some(registrar) = &mut control.registrar else {
            // While all is well one of them leads.
            if calm && index > 0 {
                return;
            }
            let (expected, record) = self.record.clone();
            if calm || self.chance(2) {
                self.controls[index].writing = Some(now + 5_000);
                self.send(Message::Write { control: index, claim: true, expected, record, sent: clock });
            }
            return;
        };
        let wanted = registrar.wants(clock);
        if wanted.is_none() && control.confirm_at > now {
            return;
        }
        let record = wanted.unwrap_or_else(|| registrar.record().clone());
        control.confirm_at = now + 1_500;
        control.writing = Some(now + 5_000);
        let expected = control.version;
        self.send(Message::Write { control: index, claim: false, expected, record, sent: clock });
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Sit { control, gateway, life, sit, sent } => {
                let clock = self.clock(self.controls[control].rate);
                let there = &mut self.controls[control];
                let Some(registrar) = there.registrar.as_mut().filter(|_| !there.dead) else { return };
                let told = registrar.sit(clock, sit);
                if self.reaches(gateway, 6 + control) {
                    self.send(Message::Told { gateway, life, told, sent });
                }
            }
            Message::Told { gateway, life, told, sent } => {
                let Told { seating, next, granted } = told;
                let now = self.now;
                self.gateways[gateway].hears(now, life, Heard::Control { sent, seating, next, granted });
            }
            Message::Ask { from, life, to, epoch, sent } => {
                let now = self.now;
                let Some((name, home, yes)) = self.gateways[to].vote(now, epoch) else { return };
                let heard = Heard::Vote { sent, peer: name, home, epoch, yes };
                if self.reaches(from, to) {
                    self.send(Message::Vote { to: from, life, heard });
                }
            }
            Message::Vote { to, life, heard } => {
                let now = self.now;
                self.gateways[to].hears(now, life, heard);
            }
            Message::Write { control, claim, expected, record, sent } => {
                let version = (self.record.0 == expected).then_some(expected + 1);
                if let Some(version) = version {
                    self.record = (version, record.clone());
                }
                self.send(Message::Wrote { control, claim, version, record, sent });
            }
            Message::Wrote { control, claim, version, record, sent } => {
                self.wrote(control, claim, version, record, sent);
            }
        }
    }

    fn wrote(&mut self, control: usize, claim: bool, version: Option<u64>, record: Record, sent: Mono) {
        let clock = self.clock(self.controls[control].rate);
        let rules = Rules { lease: LEASE, alone: ALONE, bound: self.shape.bound };
        let there = &mut self.controls[control];
        // One that was given up is given up, whatever came of it.
        if there.writing.take().is_none() {
            return;
        }
        match (version, claim, &mut there.registrar) {
            (None, ..) => there.registrar = None,
            (Some(version), true, None) => {
                there.registrar = Some(Registrar::new(rules, record, sent, clock));
                there.version = version;
            }
            (Some(version), false, Some(registrar)) if version == there.version + 1 => {
                registrar.written(sent, record);
                there.version = version;
            }
            _ => there.registrar = None,
        }
    }

    fn check(&self) {
        let now = self.now;
        let mut seatings = self.gateways.iter().filter_map(|g| g.loads_under(now)).collect::<Vec<_>>();
        seatings.sort_unstable();
        seatings.dedup();
        assert!(seatings.len() <= 1, "loads are started under seatings {seatings:?} at once");
        let running: Vec<&Load> = self.loads.iter().filter(|load| load.ends > now).collect();
        let all = running.len();
        assert!(all <= self.shape.bound as usize, "{all} loads in the fleet, {} are allowed", self.shape.bound);
        for (server, name) in SERVERS.iter().enumerate() {
            let here = running.iter().filter(|load| load.server == server).count();
            assert!(here <= MAX_LOADS, "{here} loads on {name}");
        }
    }

    /// From now on nothing goes wrong any more.
    pub fn heal(&mut self) {
        self.calm = true;
        let now = self.now;
        for gateway in &mut self.gateways {
            gateway.paused = 0;
            gateway.stay();
            gateway.live(now);
        }
        for control in &mut self.controls {
            control.dead = false;
            control.registrar = None;
        }
    }

    pub fn lose_controls(&mut self) {
        self.controls.iter_mut().for_each(|control| (control.dead, control.registrar) = (true, None));
    }

    pub fn kill(&mut self, index: usize) {
        self.gateways[index].die();
    }

    pub fn loading_gateways(&self) -> usize {
        self.gateways.iter().filter(|g| g.loads_under(self.now).is_some()).count()
    }

    pub fn all_may_load(&self) {
        let states: Vec<String> = self.gateways.iter().map(|g| g.state(self.now)).collect();
        let (loading, all) = (self.loading_gateways(), self.gateways.len());
        assert_eq!(loading, all, "who may load: {states:#?}, the record: {:?}", self.record);
    }

    pub fn all_is_well(&self) {
        self.all_may_load();
        let seating = &self.record.1.seating;
        assert_eq!(seating.seats.len(), self.gateways.len());
        let parts: u32 = seating.seats.iter().map(|seat| seating.share(&seat.name)).sum();
        assert_eq!(parts, self.shape.bound);
        for server in SERVERS {
            assert!(seating.owner(server).is_some_and(|seat| seating.share(&seat.name) > 0));
        }
    }
}

pub fn name(number: usize) -> GatewayName {
    GatewayName::parse(&format!("g{number}")).unwrap()
}
