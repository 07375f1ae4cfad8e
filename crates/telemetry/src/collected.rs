//! Metrics whose values live elsewhere: the state that owns them is read when metrics are scraped, so that nothing is counted twice.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::registry::{Kind, Registry, Sink};

/// Values that live elsewhere and are read when metrics are scraped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Collected {
    /// `holdfast_resident{pool,replica,model,version}`: 1 for each version that a replica holds.
    Resident,
    /// `holdfast_quarantined{pool,replica,model,version}`: 1 for each quarantined version.
    Quarantined,
    /// `holdfast_replica_up{pool,replica}`: 1 or 0.
    ReplicaUp,
    /// `holdfast_replica_in_flight{pool,replica}`.
    ReplicaInFlight,
    /// `holdfast_replica_name_failing_time_seconds{pool,replica}`.
    ReplicaNameFailing,
    /// `holdfast_loads_in_flight{pool}`.
    LoadsInFlight,
    /// `holdfast_load_queue{pool}`.
    LoadQueue,
    /// `holdfast_table_oldest_in_flight_revision`.
    OldestInFlightRevision,
    /// `holdfast_table_stale_time_seconds`.
    TableStale,
    /// `holdfast_seat_epoch`.
    SeatEpoch,
    /// `holdfast_seat_lease_left_time_seconds`.
    SeatLeaseLeft,
    /// `holdfast_seats`.
    Seats,
}

impl Collected {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 12] = [
        Self::Resident,
        Self::Quarantined,
        Self::ReplicaUp,
        Self::ReplicaInFlight,
        Self::ReplicaNameFailing,
        Self::LoadsInFlight,
        Self::LoadQueue,
        Self::OldestInFlightRevision,
        Self::TableStale,
        Self::SeatEpoch,
        Self::SeatLeaseLeft,
        Self::Seats,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Resident => "holdfast_resident",
            Self::Quarantined => "holdfast_quarantined",
            Self::ReplicaUp => "holdfast_replica_up",
            Self::ReplicaInFlight => "holdfast_replica_in_flight",
            Self::ReplicaNameFailing => "holdfast_replica_name_failing_time_seconds",
            Self::LoadsInFlight => "holdfast_loads_in_flight",
            Self::LoadQueue => "holdfast_load_queue",
            Self::OldestInFlightRevision => "holdfast_table_oldest_in_flight_revision",
            Self::TableStale => "holdfast_table_stale_time_seconds",
            Self::SeatEpoch => "holdfast_seat_epoch",
            Self::SeatLeaseLeft => "holdfast_seat_lease_left_time_seconds",
            Self::Seats => "holdfast_seats",
        }
    }

    const fn help(self) -> &'static str {
        match self {
            Self::Resident => "1 for each model version that a replica holds.",
            Self::Quarantined => "1 for each model version that a replica is not trusted with.",
            Self::ReplicaUp => "Whether a replica is in service (1) or not (0).",
            Self::ReplicaInFlight => "Requests sent to a replica and not yet answered in full.",
            Self::ReplicaNameFailing => "For how long look-ups of a replica's name have failed; 0 while they do not.",
            Self::LoadsInFlight => "Model loads that are running.",
            Self::LoadQueue => "Model loads that wait for a place.",
            Self::TableStale => "For how long no control plane has confirmed the routing table; 0 while one does.",
            Self::SeatEpoch => "The seating under which this gateway starts loads; no sample outside a fleet.",
            Self::SeatLeaseLeft => "For how long this gateway may start loads without a further word; 0: it may not.",
            Self::Seats => "The gateways that share the bound on loads.",
            Self::OldestInFlightRevision => "The oldest routing table that a request in flight was resolved with.",
        }
    }

    /// The labels, in the order in which a sample gives their values.
    #[must_use]
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Resident | Self::Quarantined => &["pool", "replica", "model", "version"],
            Self::ReplicaUp | Self::ReplicaInFlight | Self::ReplicaNameFailing => &["pool", "replica"],
            Self::LoadsInFlight | Self::LoadQueue => &["pool"],
            Self::OldestInFlightRevision | Self::TableStale | Self::SeatEpoch | Self::SeatLeaseLeft | Self::Seats => {
                &[]
            }
        }
    }
}

type Read = Arc<dyn Fn(&mut Sink<'_>) + Send + Sync>;
type Slot = Arc<RwLock<Option<Read>>>;

/// Who is asked for each of them.
pub(crate) struct Collectors([Slot; Collected::ALL.len()]);

impl fmt::Debug for Collectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collectors")
    }
}

impl Collectors {
    /// Registers all of them, without samples as yet.
    pub(crate) fn register(registry: &Registry) -> Self {
        Self(Collected::ALL.map(|what| {
            let slot = Slot::default();
            let reader = Arc::clone(&slot);
            let read = move |sink: &mut Sink<'_>| {
                // Copied out, so that a callback that sets another does not meet its own lock.
                let read = reader.read().clone();
                if let Some(read) = read {
                    read(sink);
                }
            };
            registry.collector(what.name(), what.help(), Kind::Gauge, what.labels(), Box::new(read));
            slot
        }))
    }

    pub(crate) fn set(&self, what: Collected, read: impl Fn(&mut Sink<'_>) + Send + Sync + 'static) {
        if let Some(slot) = self.0.get(what as usize) {
            *slot.write() = Some(Arc::new(read));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_discriminant_order() {
        for (i, what) in Collected::ALL.into_iter().enumerate() {
            assert_eq!(what as usize, i);
        }
    }

    #[test]
    fn the_last_callback_wins_and_is_asked_at_each_scrape() {
        let registry = Registry::new(10);
        let collectors = Collectors::register(&registry);
        let shown = || {
            let mut out = String::new();
            registry.render(&mut out);
            out
        };
        assert!(!shown().contains("\nholdfast_load_queue{"));
        collectors.set(Collected::LoadQueue, |sink| sink.sample(&["old"], 1.0));
        let calls = crate::metric::Counter::default();
        collectors.set(Collected::LoadQueue, move |sink| {
            calls.inc();
            sink.sample(&["p"], calls.get() as f64);
        });
        assert!(shown().contains("\nholdfast_load_queue{pool=\"p\"} 1\n"));
        let second = shown();
        assert!(second.contains("\nholdfast_load_queue{pool=\"p\"} 2\n") && !second.contains("\"old\""));
    }
}
