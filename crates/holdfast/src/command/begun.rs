//! Which roll-out a change has begun, for those who do not wait for it.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::steps::PAUSE;
use crate::admin::{Admin, encoded};

/// A roll-out nearly always begins at once.
const SOON: Duration = Duration::from_secs(2);

/// What is known of the way of a change a moment after it was made.
pub enum Begun {
    /// It is this roll-out.
    Rollout(u64),
    /// No roll-out has begun, in the words for why.
    Waits(String),
    /// Nothing yet.
    Nothing,
}

impl Begun {
    /// A line for a person.
    pub fn line(&self) -> String {
        match self {
            Self::Rollout(id) => format!("roll-out {id} has begun: `holdfast rollout show {id} --follow` follows it"),
            Self::Waits(why) => format!("no roll-out has begun: {why}"),
            Self::Nothing => {
                "no roll-out has begun yet: `holdfast rollout list --running` shows it when it has".to_owned()
            }
        }
    }
}

/// Looks for the roll-out of a pin (`TENANT/MODEL`) for a moment: one after `before`, or an older one that goes on with it. That nobody answers is no failure:
/// the change is made.
pub async fn begun(admin: &Admin, pin: &str, before: u64) -> Begun {
    let end = Instant::now() + SOON;
    loop {
        let newest = newest(admin, pin).await;
        let id = newest.as_ref().and_then(|rollout| rollout["rollout"].as_u64());
        let late = Instant::now() >= end;
        match id {
            Some(id) if id > before => return Begun::Rollout(id),
            // A way back goes on in the roll-out that led there.
            Some(id) if late && newest.is_some_and(|r| r["over"] == false && r["phase"] != "retain") => {
                return Begun::Rollout(id);
            }
            _ if late => return waits(admin, pin).await.map_or(Begun::Nothing, Begun::Waits),
            _ => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn newest(admin: &Admin, pin: &str) -> Option<Value> {
    let mut page = admin.get(&format!("/v1/rollouts?limit=1&pin={}", encoded(pin))).await.ok()?;
    Some(page.get_mut("items")?.get_mut(0)?.take())
}

async fn waits(admin: &Admin, pin: &str) -> Option<String> {
    let (tenant, _) = pin.split_once('/')?;
    let (rows, _) = admin.all(&format!("/v1/pins?pending=true&tenant={}", encoded(tenant))).await.ok()?;
    rows.iter().find(|row| row["name"] == pin)?["waits"].as_str().map(str::to_owned)
}
