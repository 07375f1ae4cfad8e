//! Leases as the store has them: how many were ever granted, and to whom. An activation compares the record, so that no gateway serves which the
//! driver has not waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_store::{Error, ErrorKind, Json, RecordWrite, Result, Store};
use holdfast_types::GatewayName;
use serde::{Deserialize, Serialize};

/// The record's kind and id.
pub(in crate::rollouts) const ROSTER: (&str, &str) = ("roster", "gateways");
/// The most gateways in it. The eldest grants go first: a driver that has seen them goes on knowing them.
pub const MAX_GATEWAYS: usize = 256;
const FORM: u32 = 1;
/// Tries of a write that somebody else has overtaken.
const TRIES: usize = 32;

/// A lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    /// Which grant it was.
    pub(super) grant: u64,
    /// How long it lasts without a word. `None`: as long as the process of the control plane, in which the gateway is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) lease_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Form {
    form: u32,
    granted: u64,
    gateways: BTreeMap<String, Lease>,
}

/// The record as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Roster {
    /// The store's version of the record.
    pub(super) version: Option<u64>,
    /// How many leases were granted.
    pub(super) granted: u64,
    pub(super) gateways: BTreeMap<GatewayName, Lease>,
}

impl Roster {
    pub(super) async fn read(store: &dyn Store) -> Result<Self> {
        let Some(record) = store.record(ROSTER.0.to_owned(), ROSTER.1.to_owned()).await? else {
            return Ok(Self::default());
        };
        let damaged = || Error::Corrupt { what: "the roster of gateways".to_owned() };
        let form: Form = serde_json::from_slice(record.value.as_bytes()).map_err(|_| damaged())?;
        if form.form != FORM {
            return Err(damaged());
        }
        let named = form.gateways.into_iter().map(|(name, lease)| Some((GatewayName::parse(&name).ok()?, lease)));
        let gateways = named.collect::<Option<_>>().ok_or_else(damaged)?;
        Ok(Self { version: Some(record.version), granted: form.granted, gateways })
    }

    /// The record as it is: a write of it changes nothing but its version.
    pub(super) fn write(&self) -> Result<RecordWrite> {
        let gateways = self.gateways.iter().map(|(name, lease)| (name.to_string(), lease.clone())).collect();
        let form = Form { form: FORM, granted: self.granted, gateways };
        let (kind, id) = (ROSTER.0.to_owned(), ROSTER.1.to_owned());
        Ok(RecordWrite { kind, id, expected: self.version, value: Some(Json::of(&form)?) })
    }

    /// Grants one more lease, whoever else writes.
    pub(super) async fn grant(store: &Arc<dyn Store>, name: &GatewayName, lease: Option<Duration>) -> Result<Self> {
        let mut tries = 0;
        loop {
            let mut roster = Self::read(&**store).await?;
            roster.granted += 1;
            let lease_ms = lease.map(|l| u64::try_from(l.as_millis()).unwrap_or(u64::MAX));
            roster.gateways.insert(name.clone(), Lease { grant: roster.granted, lease_ms });
            while roster.gateways.len() > MAX_GATEWAYS {
                let eldest = roster.gateways.iter().min_by_key(|(_, l)| l.grant).map(|(name, _)| name.clone());
                eldest.into_iter().for_each(|name| _ = roster.gateways.remove(&name));
            }
            match store.write_record(roster.write()?).await {
                Ok(version) => return Ok(Self { version, ..roster }),
                Err(error) if error.kind() == ErrorKind::RecordConflict && tries < TRIES => tries += 1,
                // One grant too many is none too few.
                Err(error) => return Err(error),
            }
        }
    }
}
