//! The world `quorum`: replicas of small records, R of which answer a read and W of which take a write ([`holdfast_quorum::round`]), and a cut between
//! them.

use std::collections::BTreeMap;

use holdfast_quorum::round::{Progress, Read, Stamp, Witness, Write};
use holdfast_quorum::shape::Quorum;

use super::{Ask, Broken, Knob, Report, Series, Set, World, knob};
use crate::chance::Chance;
use crate::queue::Queue;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// A replica that has not answered by then will not.
const TIMEOUT: u64 = 500 * MS;
/// Between two tries to replay what a replica has missed.
const REPLAY: u64 = SECOND;

const KNOBS: &[Knob] = &[
    knob("replicas", 5, 1, 64, "replicas of every key"),
    knob("r", 3, 1, 64, "answers that a read needs"),
    knob("w", 3, 1, 64, "replicas that have to take a write"),
    knob("gateways", 4, 2, 64, "gateways, each of which reads and writes"),
    knob("keys", 50, 1, 100_000, "keys, such as tokens that are revoked"),
    knob("reads", 150, 1, 100_000, "reads per second"),
    knob("writes", 30, 1, 100_000, "writes per second"),
    knob("delay_ms", 4, 1, 400, "the way to a replica; one in twenty takes ten times as long"),
    knob("lost", 100, 0, 100_000, "one of so many messages is lost; 0: none"),
    knob("cut_at_s", 0, 0, 3_600, "when replicas are cut off; 0: never"),
    knob("cut_s", 10, 1, 3_600, "for how long"),
    knob("cut_off", 2, 0, 64, "how many of them, with half of the gateways"),
    knob("repair", 1, 0, 1, "0: stale replicas are not repaired, and hints not kept"),
    knob("seconds", 30, 4, 3_600, "how long"),
];

/// See the module.
pub static WORLD: World = World {
    name: "quorum",
    about: "small records on replicas, read by R and written to W of them",
    knobs: KNOBS,
    at_most: &[("r", "replicas"), ("w", "replicas"), ("cut_off", "replicas")],
    figures: &[
        ("reads_done", "of the reads outside of a cut: those that were answered"),
        ("writes_done", "of the writes outside of a cut: those that were acknowledged"),
        ("big_reads", "of the reads on the side of more replicas during a cut: those that were answered"),
        ("big_writes", "the same of writes"),
        ("small_reads", "of the reads on the side of fewer replicas: those that were answered"),
        ("small_writes", "the same of writes"),
        ("stale_reads", "reads that missed a write that was acknowledged before they began"),
        ("stale_longest_ms", "the longest time after it that an acknowledged write was missed"),
        ("differ", "keys of which replicas hold different versions 10 s after the end"),
    ],
    promises: &["QUORUM-1"],
    run: simulate,
};

enum Message {
    Asks { op: u64 },
    Holds { op: u64, version: Stamp },
    Takes { op: u64, key: usize, version: Stamp },
    Taken { op: u64 },
    Repairs { key: usize, version: Stamp },
}

enum Ev {
    Begins { write: bool },
    Arrives { replica: usize, gateway: usize, what: Message },
    TimesOut { op: u64 },
    Replays { gateway: usize },
    Cut(bool),
}

struct Op {
    gateway: usize,
    key: usize,
    begun: u64,
    floor: Stamp,
    read: Read,
    /// None: it is a read, or a write that has not heard of enough versions yet.
    write: Option<Write>,
    is_write: bool,
    /// Where it began.
    side: usize,
    over: bool,
}

/// Done and begun, of one kind on one side.
#[derive(Clone, Copy, Default)]
struct Done {
    done: u64,
    begun: u64,
}

impl Done {
    fn share(self) -> f64 {
        if self.begun == 0 { 1.0 } else { self.done as f64 / self.begun as f64 }
    }
}

struct Store<'a> {
    set: &'a Set,
    shape: Quorum,
    chance: Chance,
    queue: Queue<Ev>,
    now: u64,
    replicas: Vec<Vec<Stamp>>,
    ops: BTreeMap<u64, Op>,
    next: u64,
    cut: bool,
    /// What each gateway keeps for replicas that have missed it.
    hints: Vec<BTreeMap<(usize, usize), Stamp>>,
    witness: Witness,
    /// When each version of a key was acknowledged.
    when: BTreeMap<(usize, Stamp), u64>,
    /// By side (0 whole, 1 more, 2 fewer replicas) and kind (0 reads, 1 writes).
    done: [[Done; 2]; 3],
    stale: (u64, u64),
    broken: Option<Broken>,
    seconds: Vec<[u64; 3]>,
}

fn simulate(ask: &Ask<'_>) -> Report {
    let small = |name: &str| u32::try_from(ask.set.get(name)).unwrap_or(1);
    let shape = Quorum::new(small("replicas"), small("r"), small("w"));
    let Ok(shape) = shape else { return Report::default() };
    let mut store = Store::new(ask, shape);
    let end = ask.set.get("seconds") * SECOND;
    while let Some((at, event)) = store.queue.take(end + 10 * SECOND) {
        store.now = at;
        store.happens(event, at < end);
    }
    store.report()
}

impl<'a> Store<'a> {
    fn new(ask: &Ask<'a>, shape: Quorum) -> Self {
        let set = ask.set;
        let mut queue = Queue::default();
        for write in [false, true] {
            queue.put(0, Ev::Begins { write });
        }
        for gateway in 0..set.count("gateways") {
            queue.put(REPLAY, Ev::Replays { gateway });
        }
        let from = set.get("cut_at_s") * SECOND;
        if from > 0 && !ask.without.contains(&0) {
            queue.put(from, Ev::Cut(true));
            queue.put(from + set.get("cut_s") * SECOND, Ev::Cut(false));
        }
        Self {
            set,
            shape,
            chance: Chance::new(ask.seed),
            queue,
            now: 0,
            replicas: vec![vec![Stamp::default(); set.count("keys")]; set.count("replicas")],
            ops: BTreeMap::new(),
            next: 0,
            cut: false,
            hints: vec![BTreeMap::new(); set.count("gateways")],
            witness: Witness::default(),
            when: BTreeMap::new(),
            done: Default::default(),
            stale: (0, 0),
            broken: None,
            seconds: vec![[0; 3]; set.count("seconds") + 1],
        }
    }

    fn happens(&mut self, event: Ev, begins: bool) {
        match event {
            Ev::Begins { write } if begins => self.begins(write),
            Ev::Begins { .. } => {}
            Ev::Arrives { replica, gateway, what } => self.arrives(replica, gateway, what),
            Ev::TimesOut { op } => self.times_out(op),
            Ev::Replays { gateway } => {
                let hints: Vec<_> = self.hints[gateway].iter().map(|(at, version)| (*at, *version)).collect();
                for ((replica, key), version) in hints {
                    self.send(replica, gateway, Message::Repairs { key, version });
                }
                self.queue.put(self.now + REPLAY, Ev::Replays { gateway });
            }
            Ev::Cut(cut) => self.cut = cut,
        }
    }

    /// Whether a replica and a gateway are on two sides of the cut.
    fn apart(&self, replica: usize, gateway: usize) -> bool {
        let off = |ix: usize, of: usize| ix < of;
        self.cut && off(replica, self.set.count("cut_off")) != self.is_cut_off(gateway)
    }

    fn is_cut_off(&self, gateway: usize) -> bool {
        gateway < self.set.count("gateways") / 2
    }

    /// 0: there is no cut; 1: the side of more replicas; 2: that of fewer.
    fn side(&self, gateway: usize) -> usize {
        let off_is_more = self.set.count("cut_off") * 2 > self.set.count("replicas");
        match (self.cut, self.is_cut_off(gateway) == off_is_more) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 2,
        }
    }

    fn send(&mut self, replica: usize, gateway: usize, what: Message) {
        let lost = self.set.get("lost");
        if lost > 0 && self.chance.one_in(lost) {
            return;
        }
        let most = self.set.get("delay_ms") * MS * if self.chance.one_in(20) { 10 } else { 1 };
        let at = self.now + self.chance.within(&(most / 4..most.max(2)));
        self.queue.put(at, Ev::Arrives { replica, gateway, what });
    }

    fn begins(&mut self, is_write: bool) {
        let rate = self.set.get(if is_write { "writes" } else { "reads" });
        let at = self.now + self.chance.exponential(SECOND / rate.max(1));
        self.queue.put(at, Ev::Begins { write: is_write });
        let below = |chance: &mut Chance, end: usize| usize::try_from(chance.below(end.max(1) as u64)).unwrap_or(0);
        let (gateway, key) =
            (below(&mut self.chance, self.hints.len()), below(&mut self.chance, self.set.count("keys")));
        let (op, floor) = (self.next, self.witness.floor(key as u64));
        self.next += 1;
        let read = Read::new(self.shape);
        let side = self.side(gateway);
        let made = Op { gateway, key, begun: self.now, floor, read, write: None, is_write, side, over: false };
        self.ops.insert(op, made);
        self.done[side][usize::from(is_write)].begun += 1;
        for replica in 0..self.replicas.len() {
            self.send(replica, gateway, Message::Asks { op });
        }
        self.queue.put(self.now + TIMEOUT, Ev::TimesOut { op });
    }

    fn arrives(&mut self, replica: usize, gateway: usize, what: Message) {
        if self.apart(replica, gateway) {
            return;
        }
        match what {
            Message::Asks { op } => {
                let Some(known) = self.ops.get(&op) else { return };
                let version = self.replicas[replica][known.key];
                self.send(replica, gateway, Message::Holds { op, version });
            }
            Message::Takes { op, key, version } => {
                self.holds(replica, key, version);
                self.send(replica, gateway, Message::Taken { op });
            }
            Message::Repairs { key, version } => {
                self.holds(replica, key, version);
                self.hints[gateway].remove(&(replica, key));
            }
            Message::Holds { op, version } => self.hears(op, replica, version),
            Message::Taken { op } => self.taken(op, replica),
        }
    }

    fn holds(&mut self, replica: usize, key: usize, version: Stamp) {
        let held = &mut self.replicas[replica][key];
        *held = version.max(*held);
    }

    fn hears(&mut self, number: u64, replica: usize, version: Stamp) {
        let Some(op) = self.ops.get_mut(&number) else { return };
        let Progress::Done(newest) = op.read.answered(small(replica), version) else { return };
        let (gateway, key) = (op.gateway, op.key);
        if op.is_write {
            let version = newest.next(small(gateway) + 1);
            op.write = Some(Write::new(self.shape, version));
            for replica in 0..self.replicas.len() {
                self.send(replica, gateway, Message::Takes { op: number, key, version });
            }
            return;
        }
        op.over = true;
        let (side, floor, stale): (usize, Stamp, Vec<u32>) = (op.side, op.floor, op.read.stale().collect());
        self.done[side][0].done += 1;
        self.second()[0] += 1;
        if self.set.get("repair") == 1 {
            for replica in stale {
                self.send(replica as usize, gateway, Message::Repairs { key, version: newest });
            }
        }
        if let Err(missed) = Witness::read(floor, newest) {
            self.missed(key, missed);
        }
    }

    /// An acknowledged write was missed by a read that began after it.
    fn missed(&mut self, key: usize, missed: Stamp) {
        let old = self.when.get(&(key, missed)).map_or(0, |at| self.now - at);
        self.second()[2] += 1;
        self.stale = (self.stale.0 + 1, self.stale.1.max(old));
        if self.shape.reads_meet_writes() {
            let what =
                format!("QUORUM-1: a read of key {key} missed version {missed:?}, acknowledged {} ms before", old / MS);
            self.broken.get_or_insert(Broken { at: self.now / MS, what });
        }
    }

    fn taken(&mut self, number: u64, replica: usize) {
        let Some(op) = self.ops.get_mut(&number) else { return };
        let Some(write) = &mut op.write else { return };
        if let Progress::Done(version) = write.taken(small(replica)) {
            op.over = true;
            let (side, key) = (op.side, op.key);
            self.witness.written(key as u64, version);
            self.when.insert((key, version), self.now);
            self.done[side][1].done += 1;
            self.second()[1] += 1;
        }
    }

    /// Whoever has not answered will not; what a write has missed is kept as a hint, whether or not it was acknowledged.
    fn times_out(&mut self, number: u64) {
        let Some(op) = self.ops.get(&number) else { return };
        if !op.over && op.begun + 2 * TIMEOUT > self.now && op.write.is_some() {
            // The second half of a write has its own time.
            return self.queue.put(self.now + TIMEOUT, Ev::TimesOut { op: number });
        }
        let Some(op) = self.ops.remove(&number) else { return };
        let Some(write) = op.write.filter(|_| self.set.get("repair") == 1) else { return };
        for replica in write.missed() {
            let kept = self.hints[op.gateway].entry((replica as usize, op.key)).or_default();
            *kept = write.version.max(*kept);
        }
    }

    fn second(&mut self) -> &mut [u64; 3] {
        let last = self.seconds.len() - 1;
        &mut self.seconds[usize::try_from(self.now / SECOND).unwrap_or(0).min(last)]
    }

    fn report(self) -> Report {
        let differs = |key: &usize| self.replicas.iter().any(|r| r[*key] != self.replicas[0][*key]);
        let differ = (0..self.set.count("keys")).filter(differs).count();
        let [whole, more, fewer] = self.done;
        let figures = vec![
            ("reads_done", whole[0].share()),
            ("writes_done", whole[1].share()),
            ("big_reads", more[0].share()),
            ("big_writes", more[1].share()),
            ("small_reads", fewer[0].share()),
            ("small_writes", fewer[1].share()),
            ("stale_reads", self.stale.0 as f64),
            ("stale_longest_ms", (self.stale.1 / MS) as f64),
            ("differ", differ as f64),
        ];
        let end = self.set.count("seconds");
        let of =
            |name, ix: usize| Series { name, values: self.seconds.iter().take(end).map(|s| s[ix] as f64).collect() };
        let (at, s, off) = (self.set.get("cut_at_s"), self.set.get("cut_s"), self.set.get("cut_off"));
        let act = || format!("{off} replicas and half of the gateways are cut off from {at} s on, for {s} s");
        Report {
            broken: self.broken,
            figures,
            series: vec![of("reads answered/s", 0), of("writes acknowledged/s", 1), of("stale reads/s", 2)],
            acts: if at > 0 { vec![act()] } else { Vec::new() },
            log: Vec::new(),
        }
    }
}

fn small(ix: usize) -> u32 {
    u32::try_from(ix).unwrap_or(u32::MAX)
}
