//! How many connections there may be, in all and from one address. Checked before a byte is read.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// The bounds.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// Connections in all.
    pub total: u32,
    /// Connections from one address.
    pub per_address: u32,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There are as many as may be.
    Total,
    /// This address has as many as it may have.
    Address,
}

impl Refused {
    /// The reason as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Address => "address",
        }
    }
}

#[derive(Debug)]
struct State {
    limits: AdmissionLimits,
    total: u32,
    /// Only addresses that have a connection, so never more entries than connections.
    per_address: HashMap<IpAddr, u32>,
}

/// The count of one listener's connections. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Admission(Arc<Mutex<State>>);

/// One admitted connection. Dropping it gives the place back.
#[derive(Debug)]
pub struct ConnPermit {
    state: Arc<Mutex<State>>,
    address: IpAddr,
}

impl Admission {
    /// Counts from zero.
    #[must_use]
    pub fn new(limits: AdmissionLimits) -> Self {
        Self(Arc::new(Mutex::new(State { limits, total: 0, per_address: HashMap::new() })))
    }

    /// Sets new bounds. Connections that are there stay.
    pub fn set_limits(&self, limits: AdmissionLimits) {
        self.0.lock().limits = limits;
    }

    /// Takes a place for a connection from this address.
    ///
    /// # Errors
    /// [`Refused`], if there is none.
    pub fn admit(&self, address: IpAddr) -> Result<ConnPermit, Refused> {
        let address = address.to_canonical();
        let mut state = self.0.lock();
        if state.total >= state.limits.total {
            return Err(Refused::Total);
        }
        let most = state.limits.per_address;
        let here = state.per_address.entry(address).or_insert(0);
        if *here >= most {
            return Err(Refused::Address);
        }
        *here += 1;
        state.total += 1;
        Ok(ConnPermit { state: self.0.clone(), address })
    }

    /// Connections that hold a place.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.0.lock().total
    }
}

impl Drop for ConnPermit {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.total = state.total.saturating_sub(1);
        if let Some(here) = state.per_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                state.per_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_back_and_refusals_take_none() {
        let admission = Admission::new(AdmissionLimits { total: 3, per_address: 2 });
        let a: IpAddr = [10, 0, 0, 1].into();
        let b: IpAddr = [10, 0, 0, 2].into();
        let first = admission.admit(a).unwrap();
        let _second = admission.admit(a).unwrap();
        assert_eq!(admission.admit(a).err(), Some(Refused::Address));
        let _third = admission.admit(b).unwrap();
        assert_eq!(admission.admit(b).err(), Some(Refused::Total));
        drop(first);
        assert!(admission.admit(a).is_ok());
        assert_eq!(admission.connections(), 2, "the last permit was dropped at once");
    }

    #[test]
    fn an_address_has_one_form() {
        let admission = Admission::new(AdmissionLimits { total: 9, per_address: 1 });
        let _v4 = admission.admit("127.0.0.1".parse().unwrap()).unwrap();
        assert!(admission.admit("::ffff:127.0.0.1".parse().unwrap()).is_err());
    }
}
