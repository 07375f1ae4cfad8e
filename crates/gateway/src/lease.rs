//! What a long answer holds of a replica: its connection and its place in the count. Ended at the deadline, whether or not the client reads.
//!
//! An answer's body is driven by the client's reading. One who opens no window is never polled, so no timer inside the body would fire. So the
//! worker keeps a list of what is lent, and looks through it from time to time.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::time::Instant;

use holdfast_net::ReplicaConn;

use crate::fleet::InFlight;
use crate::upstream_body::UpstreamBody;

struct Lent {
    conn: ReplicaConn<UpstreamBody>,
    in_flight: InFlight,
}

/// What one answer holds. Dropping it gives all of it back; the connection is closed then, unless [`Lease::complete`] came first.
pub struct Lease(Arc<Mutex<Option<Lent>>>);

impl Lease {
    /// The answer has been read to its end: the connection may serve again.
    pub fn complete(&self) {
        if let Some(lent) = self.0.lock().take() {
            drop(lent.in_flight);
            lent.conn.give_back();
        }
    }

    /// The answer is given up.
    pub fn end(&self) {
        self.0.lock().take();
    }

    /// Whether it has ended, by whatever.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.lock().is_none()
    }

    /// Looks at what is in flight.
    pub fn with_in_flight(&self, look: impl FnOnce(&InFlight)) {
        if let Some(lent) = &*self.0.lock() {
            look(&lent.in_flight);
        }
    }
}

/// A worker's leases. As many as it passes answers on, and those that ended since the last look.
#[derive(Default)]
pub struct Leases(Mutex<Vec<(Instant, Watched)>>);

type Watched = Weak<Mutex<Option<Lent>>>;

impl Leases {
    /// Lends until the deadline.
    #[must_use]
    pub fn lend(&self, conn: ReplicaConn<UpstreamBody>, in_flight: InFlight, until: Instant) -> Lease {
        let lease = Arc::new(Mutex::new(Some(Lent { conn, in_flight })));
        self.0.lock().push((until, Arc::downgrade(&lease)));
        Lease(lease)
    }

    /// Ends what is over its time, and forgets what has ended by itself.
    pub fn sweep(&self, now: Instant) {
        let mut over = Vec::new();
        self.0.lock().retain(|(until, lease)| {
            let Some(lease) = lease.upgrade() else { return false };
            let keep = *until > now;
            if !keep {
                over.push(lease);
            }
            keep
        });
        for lease in over {
            lease.lock().take();
        }
    }
}
