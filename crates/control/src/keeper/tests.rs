use super::*;
use crate::desk::{Desk, DeskSettings, Frame};
use crate::rollouts::{Link, Now, Settings};
use holdfast_plane::{Status, View, pair};
use holdfast_store::{Change, Edit, Embedded, EmbeddedOptions, Json, Key, Place, Purpose, Space};
use holdfast_testkit::{TempDir, eventually};
use holdfast_types::GatewayName;

const PATIENCE: Duration = Duration::from_secs(30);

/// One tenant, desired and in force at this subset.
fn change(head: u64, at_ms: u64) -> Change {
    let key = Key::new("tenant", "acme").unwrap();
    let value = Json::of(&serde_json::json!({ "name": "acme", "subset": head })).unwrap();
    let edits = [Space::Desired, Space::InForce]
        .map(|space| Edit { place: Place { space, key: key.clone() }, value: Some(value.clone()) });
    let (author, reason) = ("somebody".to_owned(), "a test".to_owned());
    Change { purpose: Purpose::Change, base: Some(Revision(head)), author, reason, at_ms, edits: edits.into() }
}

fn said(name: &GatewayName, oldest: u64) -> Arc<Status> {
    Arc::new(Status { in_force: Revision(60), oldest: Revision(oldest), ..Status::of(name.clone()) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_forgets_what_is_old_and_nothing_that_is_in_flight() {
    let dir = TempDir::new();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(&dir.join("store"), EmbeddedOptions::default()).await.unwrap());
    let now = Clock::wall_millis();
    for head in 0..60 {
        store.append(change(head, if head < 50 { head } else { now })).await.unwrap();
    }
    let desk = Desk::open(store.clone(), Frame::new(serde_json::json!({})), DeskSettings::default()).await.unwrap();
    let clock: Now = Arc::new(Clock::now);
    let sessions = Sessions::new(store.clone(), clock.clone());
    let rollouts = Rollouts::new(desk, sessions.clone(), Settings::default(), clock);
    let history = History { keep: Duration::from_secs(86_400), revisions: 5 };
    let rhythm = Rhythm { step: Duration::from_millis(5), rest: Duration::from_millis(5) };
    let keeper = Keeper::new(store.clone(), sessions.clone(), rollouts.clone(), history, rhythm);
    let name = GatewayName::parse("g1").unwrap();
    let (end, gateway) = pair(name.clone(), View::default());
    sessions.attach(end, Link::Local).await.unwrap();
    let working = tokio::spawn(keeper.clone().run(|| 0.5, std::future::pending()));
    let driving = tokio::spawn(rollouts.clone().run(std::future::pending()));
    eventually("the lead", PATIENCE, async || rollouts.leads().then_some(())).await;
    let term = rollouts.term().unwrap();

    assert!(!keeper.step(term, false).await.unwrap(), "the gateway has not spoken yet");
    gateway.status.send_replace(said(&name, 20));
    let floor = async || store.head().await.unwrap().floor.0;
    eventually("the oldest request in flight", PATIENCE, async || (floor().await == 20).then_some(())).await;
    assert!(store.read(Space::InForce, Some(Revision(20)), None, 10).await.is_ok());
    assert!(store.read(Space::InForce, Some(Revision(19)), None, 10).await.is_err());
    gateway.status.send_replace(said(&name, 60));
    eventually("the last old one", PATIENCE, async || (floor().await == 50).then_some(())).await;
    keeper.set(History { keep: Duration::ZERO, revisions: 5 });
    eventually("the last five", PATIENCE, async || (floor().await == 55).then_some(())).await;
    keeper.set(History { keep: Duration::ZERO, revisions: 1 });
    eventually("what a revert leads to", PATIENCE, async || (floor().await == 59).then_some(())).await;
    assert!(store.history(None, 100).await.unwrap().iter().all(|header| header.revision.0 >= 59));
    assert!(keeper.step(term + 1, true).await.is_ok(), "a later leader may");
    assert!(keeper.step(term, true).await.is_err(), "and the one before it no longer");
    working.abort();
    driving.abort();
}
