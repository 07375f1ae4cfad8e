//! Pins that move under submissions, and their retries.

use holdfast_testkit::http::Answer;
use holdfast_testkit::{Holdfast, eventually};
use serde_json::{Value, json};

use super::fixture::{One, PATIENCE, ask, resolved, version_of};
use super::fleet::text;

impl One {
    /// Moves all pins of `screen`.
    pub async fn pin(&mut self, version: &str) {
        pin(&mut self.gateway, &mut self.config, version).await;
    }
}

pub async fn pin(gateway: &mut Holdfast, config: &mut Value, version: &str) {
    for tenant in 0..2 {
        config["tenants"][tenant]["pins"]["screen"] = json!(version);
    }
    let text = text(config);
    gateway.edit_config(|_| text);
    gateway.proc.sighup();
    eventually("the pin to move", PATIENCE, async || {
        let globex = ask(gateway, &[("x-tenant", "globex")]).await;
        let acme = ask(gateway, &[]).await;
        (version_of(&acme) == version && version_of(&globex) == version).then_some(())
    })
    .await;
}

/// A retry's answer: the same version and revision as at first, as a replay.
#[track_caller]
pub fn same_again(first: &Answer, again: &Answer) {
    let (version, revision, _) = resolved(first);
    assert_eq!(resolved(again), (version, revision, "replay".to_owned()));
}
