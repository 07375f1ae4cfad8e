//! The regional stores: one small record of each client, written where the client is and copied to the others later. The highest version wins.

/// See the module.
pub struct Sessions {
    /// By region and client: the version that is there.
    has: Vec<Vec<u32>>,
    /// By client: the newest that was acknowledged, and when.
    newest: Vec<(u32, u64)>,
    /// The longest time after a write at which its client did not see it.
    unseen: u64,
}

impl Sessions {
    /// Empty stores.
    pub fn new(regions: usize, clients: usize) -> Self {
        Self { has: vec![vec![0; clients]; regions], newest: vec![(0, 0); clients], unseen: 0 }
    }

    /// A write, and the version that it made: above whatever the region knows, so one that it does not know may be as high.
    pub fn write(&mut self, now: u64, region: usize, client: usize) -> u32 {
        let version = self.has[region][client].max(self.newest[client].0) + 1;
        self.has[region][client] = version;
        self.newest[client] = (version, now);
        version
    }

    /// A copy arrives.
    pub fn copied(&mut self, to: usize, client: usize, version: u32) {
        let has = &mut self.has[to][client];
        *has = (*has).max(version);
    }

    /// Brings the stores together that are there.
    pub fn reconcile(&mut self, there: &[bool]) {
        for client in 0..self.newest.len() {
            let known = self.has.iter().zip(there).filter(|(_, there)| **there).map(|(has, _)| has[client]);
            let most = known.max().unwrap_or(0);
            for (has, _) in self.has.iter_mut().zip(there).filter(|(_, there)| **there) {
                has[client] = most;
            }
        }
    }

    /// A client reads its record.
    pub fn read(&mut self, now: u64, region: usize, client: usize) {
        let (newest, since) = self.newest[client];
        if self.has[region][client] < newest {
            self.unseen = self.unseen.max(now - since);
        }
    }

    /// See the field.
    pub fn unseen(&self) -> u64 {
        self.unseen
    }

    /// Newest writes that are nowhere.
    pub fn lost(&self) -> u64 {
        let is_lost = |client: usize| self.has.iter().all(|has| has[client] < self.newest[client].0);
        (0..self.newest.len()).filter(|client| is_lost(*client)).count() as u64
    }
}
