//! Seats, votes and loads over real sockets: what is said arrives, whoever has not the secret is refused, and a question that is dropped ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::net::TcpListener;

use holdfast_decide::rollout::Artifact;
use holdfast_placement::seats::{Seat, Seating, Sit, Told};
use holdfast_plane::{GatewayEnd, View, Wish};
use holdfast_testkit::eventually;
use holdfast_types::{GatewayName, ModelName, PoolName, Version};
use holdfast_wire::auth::Secret;
use holdfast_wire::follower::FollowerSettings;
use holdfast_wire::seats::{Answered, Asked, Ballot, Leave, Loaded, Peer, Phone, Unseated, Usher, listen};
use holdfast_wire::server::{Plane, ServerSettings, serve};
use support::SECRET;

const WITHIN: Duration = Duration::from_secs(10);

fn seat(name: &str) -> Seat {
    let peer = Some("127.0.0.1:7403".into());
    Seat { name: GatewayName::parse(name).unwrap(), home: u64::MAX - 1, life: 3, peer }
}

fn sit() -> Sit {
    Sit { seat: seat("g1"), promised: 6, drained: true, clean: true, leaving: false }
}

fn asking(wishes: Vec<Wish>) -> Asked {
    Asked { sit: sit(), wishes, telling: vec![wish().artifact.pool] }
}

fn seating() -> Seating {
    Seating {
        epoch: 7,
        lease: Duration::from_secs(10),
        alone: Duration::from_secs(3_600),
        bound: 8,
        seats: vec![seat("g1"), Seat { peer: None, ..seat("g2") }],
        unsure: true,
    }
}

fn wish() -> Wish {
    let artifact = Artifact {
        pool: PoolName::parse("cpu").unwrap(),
        model: ModelName::parse("screen").unwrap(),
        version: Version::parse("2").unwrap(),
    };
    Wish { artifact, servers: vec!["10.0.0.1:80".into()] }
}

/// Answers what it is asked as a test expects it.
struct Control;

impl Plane for Control {
    fn view(&self, _: &GatewayName) -> View {
        View::default()
    }

    fn sit(&self, asked: Asked) -> Option<Answered> {
        assert_eq!(asked, asking(vec![wish()]));
        let told = Told { seating: Some(seating()), next: Some(8), granted: true };
        Some(Answered { told, wishes: vec![wish(), wish()], telling: vec![wish().artifact.pool] })
    }

    fn attach(&self, _: GatewayEnd) {}
}

/// A gateway that loads for ever.
#[derive(Default)]
struct Other {
    loading: Arc<AtomicUsize>,
    reloads: AtomicUsize,
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[holdfast_wire::async_trait]
impl Peer for Other {
    fn vote(&self, epoch: u64) -> Ballot {
        Ballot { name: seat("g2").name, home: 42, yes: epoch == 7 }
    }

    async fn load(&self, asked: Wish, within: Duration) -> Loaded {
        assert_eq!(asked, wish());
        match within.as_secs() {
            1 => return Loaded::Ready("10.0.0.1:80".into()),
            2 => return Loaded::Shed { retry: Duration::from_millis(1_500), why: "budget".to_owned() },
            3 => return Loaded::Failed("no such file".to_owned()),
            4 => return Loaded::NotOwner,
            _ => {}
        }
        self.loading.fetch_add(1, SeqCst);
        let _counted = Counted(self.loading.clone());
        std::future::pending().await
    }

    fn reloads(&self, artifact: Artifact, server: Box<str>) {
        assert_eq!((artifact, &*server), (wish().artifact, "10.0.0.1:80"));
        self.reloads.fetch_add(1, SeqCst);
    }

    async fn leaves(&self, leave: Leave) -> bool {
        leave.artifact == wish().artifact
            && &*leave.server == "10.0.0.1:80"
            && !leave.taken_back
            && (leave.word, leave.renews) == (3, true)
    }
}

async fn control() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let settings = ServerSettings { secrets: vec![Secret::new(SECRET).unwrap()], ..ServerSettings::default() };
    tokio::spawn(serve(listener, settings, Arc::new(Control), std::future::pending()));
    url
}

async fn other() -> (String, Arc<Other>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, peer) = (listener.local_addr().unwrap().to_string(), Arc::new(Other::default()));
    tokio::spawn(listen(listener, vec![Secret::new(SECRET).unwrap()], None, peer.clone()));
    (address, peer)
}

fn usher(urls: Vec<String>, secret: Option<&str>) -> Usher {
    let secret = secret.map(|secret| Secret::new(secret).unwrap());
    Usher::new(FollowerSettings { secret, ..FollowerSettings::new(seat("g1").name, urls) }).unwrap()
}

fn phone(secret: Option<&str>) -> Phone {
    Phone::new(seat("g1").name, secret.map(|secret| Secret::new(secret).unwrap()), None)
}

#[tokio::test]
async fn a_seat_is_asked_for_of_one_control_plane_after_the_other() {
    let silent = "http://127.0.0.1:9".to_owned();
    let mut ushered = usher(vec![silent.clone(), control().await], Some(SECRET));
    for _ in 0..2 {
        let answered = ushered.sit(&asking(vec![wish()]), WITHIN).await.unwrap();
        assert_eq!(answered.told, Told { seating: Some(seating()), next: Some(8), granted: true });
        assert_eq!((answered.wishes, answered.telling), (vec![wish(), wish()], vec![wish().artifact.pool]));
    }
    let refused = usher(vec![control().await], None).sit(&asking(Vec::new()), WITHIN).await.unwrap_err();
    assert!(matches!(&refused, Unseated::NoAnswer(why) if why.contains("secret")), "{refused}");
    // A server that is none of this service is a release that knows no seats.
    let (address, _) = other().await;
    let unknown =
        usher(vec![format!("http://{address}")], Some(SECRET)).sit(&asking(Vec::new()), WITHIN).await.unwrap_err();
    assert_eq!(unknown, Unseated::Unknown);
    assert!(usher(vec![silent], Some(SECRET)).sit(&asking(Vec::new()), WITHIN).await.is_err());
}

#[tokio::test]
async fn gateways_ask_one_another() {
    let (address, peer) = other().await;
    let asking = phone(Some(SECRET));
    for (epoch, yes) in [(7, true), (6, false)] {
        let ballot = asking.vote(&address, epoch, WITHIN).await.unwrap();
        assert_eq!((ballot.name, ballot.home, ballot.yes), (seat("g2").name, 42, yes));
    }
    let seconds = Duration::from_secs;
    for (within, loaded) in [
        (1, Loaded::Ready("10.0.0.1:80".into())),
        (2, Loaded::Shed { retry: Duration::from_millis(1_500), why: "budget".to_owned() }),
        (3, Loaded::Failed("no such file".to_owned())),
        (4, Loaded::NotOwner),
    ] {
        assert_eq!(asking.load(&address, &wish(), seconds(within)).await.unwrap(), loaded);
    }
    let leave = |server: &str, taken_back| Leave {
        artifact: wish().artifact,
        server: server.into(),
        within: seconds(1),
        taken_back,
        word: 3,
        renews: true,
    };
    assert!(asking.leaves(&address, &leave("10.0.0.1:80", false), WITHIN).await.unwrap());
    assert!(!asking.leaves(&address, &leave("10.0.0.1:81", false), WITHIN).await.unwrap());
    assert!(!asking.leaves(&address, &leave("10.0.0.1:80", true), WITHIN).await.unwrap());
    asking.reloads(&address, &wish().artifact, "10.0.0.1:80", WITHIN).await.unwrap();
    assert_eq!(peer.reloads.load(SeqCst), 1);
    assert!(phone(None).vote(&address, 7, WITHIN).await.is_err(), "without the secret");
    assert!(asking.vote("127.0.0.1:9", 7, WITHIN).await.is_err(), "nobody there");

    // Who asks no more is not loaded for any more.
    let wishes = wish();
    let mut asked = Box::pin(asking.load(&address, &wishes, seconds(60)));
    eventually("the load to be asked for", WITHIN, async || {
        let _ = tokio::time::timeout(Duration::from_millis(20), &mut asked).await;
        (peer.loading.load(SeqCst) == 1).then_some(())
    })
    .await;
    drop(asked);
    eventually("the question to end", WITHIN, async || (peer.loading.load(SeqCst) == 0).then_some(())).await;
}
