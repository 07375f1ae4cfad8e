//! The replicas: what they hold, what they load, and how they answer. A replica has memory, and is in one of the troubles of [`Fault`].

use std::collections::{BTreeMap, BTreeSet};

use holdfast_placement::residency::{LoadError, Op, Proof, ServerIx};

use super::Mistake;
use super::acts::Fault;
use super::gateway::{Polled, Told};
use super::world::{Ev, Process, World};

pub(super) struct Load {
    number: u64,
    version: u32,
    /// Everybody who asked for it.
    pub(super) from: Vec<(Process, Op)>,
}

/// What a load has brought.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    pub(super) right: bool,
    /// Each load makes another copy.
    pub(super) copy: u64,
}

#[derive(Default)]
pub(super) struct Server {
    pub(super) up: bool,
    /// Each start is another one: what was said to an earlier one is lost.
    pub(super) starts: u64,
    pub(super) held: BTreeMap<u32, Weights>,
    pub(super) loads: Vec<Load>,
    pub(super) faults: Vec<Fault>,
    /// When, and by which gateway, a version was last unloaded that was good.
    pub(super) left: BTreeMap<u32, (u64, usize)>,
}

/// What a gateway asks of a replica.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Load { op: Op, version: u32 },
    Verify { op: Op, version: u32 },
    Unload { op: Op, version: u32 },
    Poll { started: u64 },
    Infer { request: u64, version: u32 },
}

impl Server {
    pub(super) fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    pub(super) fn loading(&self) -> BTreeSet<u32> {
        self.loads.iter().map(|l| l.version).collect()
    }

    fn in_flight(&self) -> u64 {
        self.loads.iter().map(|l| l.from.len() as u64).sum()
    }
}

impl World<'_> {
    /// Something asked of a replica arrives there, at the start of it that was connected to.
    pub(super) fn at_server(&mut self, replica: usize, starts: u64, from: Process, ask: Ask) {
        let server = &self.servers[replica];
        if !server.up || server.starts != starts || self.cut_replica(from.ix, replica) {
            return self.broke_off(replica, from, ask);
        }
        match ask {
            Ask::Load { op, version } => self.begin_load(replica, from, op, version),
            Ask::Verify { op, version } => {
                let held = server.held.get(&version).copied();
                let trusts = self.setup.mistake == Some(Mistake::TrustsLoads);
                let proof = match held {
                    Some(weights) if weights.right || trusts => Proof::Proven,
                    Some(_) => Proof::Wrong("a known question got another answer".to_owned()),
                    None => Proof::Unknown("not loaded".to_owned()),
                };
                let copy = held.map(|w| (super::gateway::pair(replica, version), w.copy));
                self.tell_gateway(from, Told::Verified { op, proof, copy });
            }
            Ask::Unload { op, version } => {
                self.unloads(replica, from, op, version);
                self.tell_gateway(from, Told::Unloaded { op, well: true });
            }
            Ask::Poll { started } => {
                let (held, loading) = (server.held.keys().copied().collect(), server.loading().into_iter().collect());
                let polled = Polled { replica, starts, started, index: Some((held, loading)) };
                self.tell_gateway(from, Told::Polled(polled));
            }
            Ask::Infer { request, version } => {
                let took = self.chance.within(&self.setup.service.clone());
                let at = self.now + took;
                self.queue.put(at, Ev::Infers { replica, starts, from, request, version });
            }
        }
    }

    /// The connection broke, or nothing came through.
    fn broke_off(&mut self, replica: usize, from: Process, ask: Ask) {
        let starts = self.servers[replica].starts;
        let told = match ask {
            Ask::Load { op, .. } => Told::Loaded { op, replica, result: Err(error("the connection broke")) },
            Ask::Verify { op, .. } => {
                Told::Verified { op, proof: Proof::Unknown("the connection broke".to_owned()), copy: None }
            }
            Ask::Unload { op, .. } => Told::Unloaded { op, well: false },
            Ask::Poll { started } => Told::Polled(Polled { replica, starts, started, index: None }),
            Ask::Infer { request, .. } => Told::Broke { request, replica },
        };
        self.tell_gateway(from, told);
    }

    /// What a replica says, if the way is open: else its connection is broken there, too.
    fn answer(&mut self, replica: usize, from: Process, told: Told) {
        if self.cut_replica(from.ix, replica) {
            let broken = match told {
                Told::Loaded { op, replica, .. } => {
                    Told::Loaded { op, replica, result: Err(error("the connection broke")) }
                }
                Told::Inferred { request, .. } => Told::Broke { request, replica },
                other => other,
            };
            return self.tell_gateway(from, broken);
        }
        self.tell_gateway(from, told);
    }

    fn begin_load(&mut self, replica: usize, from: Process, op: Op, version: u32) {
        let number = self.number();
        let told = self.told_of.remove(&(from, op)).unwrap_or_default();
        let slow = if self.servers[replica].has(Fault::Slow) { 10 } else { 1 };
        let took = self.chance.within(&self.setup.load.clone()) * slow;
        let server = &mut self.servers[replica];
        if server.held.contains_key(&version) {
            return self.tell_gateway(from, Told::Loaded { op, replica, result: Ok(()) });
        }
        if let Some(load) = server.loads.iter_mut().find(|l| l.version == version) {
            load.from.push((from, op));
            return self.load_has_begun(from);
        }
        let full = (server.held.len() + server.loads.len()) as u64 >= self.setup.room;
        if full || server.has(Fault::Fails) {
            self.tally.failed_loads += 1;
            let why = if full { "out of memory" } else { "the file cannot be read" };
            return self.tell_gateway(from, Told::Loaded { op, replica, result: Err(error(why)) });
        }
        server.loads.push(Load { number, version, from: vec![(from, op)] });
        self.copies.insert(number, told);
        let server = &self.servers[replica];
        self.tally.most_loads = self.tally.most_loads.max(server.in_flight());
        let starts = server.starts;
        self.second().loads += 1;
        self.load_has_begun(from);
        self.queue.put(self.now + took, Ev::Loaded { replica, starts, number });
    }

    /// A load has come to its end.
    pub(super) fn load_ends(&mut self, replica: usize, starts: u64, number: u64) {
        let server = &mut self.servers[replica];
        if !server.up || server.starts != starts {
            return;
        }
        let Some(at) = server.loads.iter().position(|l| l.number == number) else { return };
        let load = server.loads.remove(at);
        let fails = server.has(Fault::Fails);
        if !fails {
            let right = !server.has(Fault::Wrong);
            server.held.insert(load.version, Weights { right, copy: number });
        }
        self.tally.failed_loads += u64::from(fails);
        for (from, op) in load.from {
            let result = if fails { Err(error("the file ended early")) } else { Ok(()) };
            self.answer(replica, from, Told::Loaded { op, replica, result });
        }
    }

    /// An inference has come to its end.
    pub(super) fn infers(&mut self, replica: usize, starts: u64, from: Process, request: u64, version: u32) {
        let server = &self.servers[replica];
        if !server.up || server.starts != starts {
            return self.tell_gateway(from, Told::Broke { request, replica });
        }
        let other = (version + 1) % self.setup.versions.max(1);
        let told = match server.held.get(&version) {
            None => Told::NotLoaded { request, replica },
            Some(weights) => {
                let named = if server.has(Fault::Misnames) { other } else { version };
                Told::Inferred { request, replica, named, weights: *weights }
            }
        };
        self.answer(replica, from, told);
    }

    /// Its process dies: whoever had a connection sees it break.
    pub(super) fn server_dies(&mut self, replica: usize) {
        let server = &mut self.servers[replica];
        if !server.up {
            return;
        }
        server.up = false;
        server.held.clear();
        let loads = std::mem::take(&mut server.loads);
        self.note(|| format!("replica {replica} dies"));
        for (from, op) in loads.into_iter().flat_map(|l| l.from) {
            self.tell_gateway(from, Told::Loaded { op, replica, result: Err(error("the connection broke")) });
        }
        for gateway in 0..self.gateways.len() {
            let to = self.process_of(gateway);
            if !self.cut_replica(gateway, replica) {
                self.tell_gateway(to, Told::Reset { replica });
            }
        }
    }

    pub(super) fn server_starts(&mut self, replica: usize) {
        let server = &mut self.servers[replica];
        if !server.up {
            server.up = true;
            server.starts += 1;
            self.note(|| format!("replica {replica} is back, empty"));
        }
    }
}

fn error(text: &str) -> LoadError {
    LoadError { text: text.to_owned(), permanent: false }
}

/// Each replica is a server of its own.
pub(super) fn server_ix(replica: usize) -> ServerIx {
    ServerIx(u32::try_from(replica).unwrap_or(u32::MAX))
}
