//! Whether what a gateway serves is known to be what the control plane has.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

/// What is known of the table that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It is the control plane's, and this link would tell of a change.
    Current {
        /// The control plane's URL.
        control: Arc<str>,
    },
    /// Nothing confirms it: there may be a later one.
    Stale {
        /// When it was confirmed last, or when the gateway started.
        since: Instant,
        /// Why nothing does.
        why: Arc<str>,
    },
}

impl Freshness {
    /// Whether nothing confirms the table.
    #[must_use]
    pub const fn is_stale(&self) -> bool {
        matches!(self, Self::Stale { .. })
    }
}

/// Writes what is known.
pub(super) struct Fresh {
    to: watch::Sender<Freshness>,
    confirmed: Instant,
}

pub(super) fn channel() -> (Fresh, watch::Receiver<Freshness>) {
    let confirmed = Instant::now();
    let (to, from) = watch::channel(Freshness::Stale { since: confirmed, why: "no control plane has answered".into() });
    (Fresh { to, confirmed }, from)
}

impl Fresh {
    /// This control plane has said now that it has what is held.
    pub(super) fn confirm(&mut self, control: &Arc<str>) {
        self.confirmed = Instant::now();
        self.put(Freshness::Current { control: control.clone() });
    }

    /// Nothing confirms it any more. `since` is when it was confirmed last.
    pub(super) fn doubt(&self, why: &str) {
        self.put(Freshness::Stale { since: self.confirmed, why: why.into() });
    }

    fn put(&self, now: Freshness) {
        self.to.send_if_modified(|was| {
            let changed = *was != now;
            *was = now;
            changed
        });
    }
}
