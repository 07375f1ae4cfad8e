//! Gateways and control planes that do not behave: one that does not read, two of one name, one that lies.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod support;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Channel, Server as Grpc};
use tonic::{Code, Request, Response, Status, Streaming};

use holdfast_config::ResourceKind::Pin as PinKind;
use holdfast_testkit::eventually;
use holdfast_types::Revision;
use holdfast_wire::follower::{Follower, Freshness};
use holdfast_wire::held::Stamp;
use holdfast_wire::proto::control_client::ControlClient;
use holdfast_wire::proto::control_server::{Control, ControlServer};
use holdfast_wire::proto::{self, from_control, from_gateway};
use support::*;

/// A gateway by hand: says hello and hands out both directions.
async fn by_hand(server: &Server, gateway: &str) -> (mpsc::Sender<proto::FromGateway>, Streaming<proto::FromControl>) {
    let channel = Channel::from_shared(server.url()).unwrap().connect().await.unwrap();
    let (out, outbound) = mpsc::channel(8);
    let hello = proto::Hello { gateway: gateway.to_owned(), release: "by hand".to_owned(), has: None };
    out.send(proto::FromGateway { what: Some(from_gateway::What::Hello(hello)) }).await.unwrap();
    let mut ask = Request::new(ReceiverStream::new(outbound));
    ask.metadata_mut().insert("authorization", format!("Bearer {SECRET}").parse().unwrap());
    let stream = ControlClient::new(channel).follow(ask).await.unwrap().into_inner();
    (out, stream)
}

async fn heartbeats(out: mpsc::Sender<proto::FromGateway>) {
    let beat = || proto::FromGateway { what: Some(from_gateway::What::Heartbeat(proto::Heartbeat {})) };
    while out.send(beat()).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_gateway_that_does_not_read_is_let_go_and_disturbs_nobody() {
    // More than the windows of the transport hold.
    let entries = (0..3_000).map(|n| ((PinKind, Arc::from(format!("t{n}/m"))), Arc::new(json!("v".repeat(1_000)))));
    let first = table(1, entries.collect());
    let truth = Truth::new(first.clone());
    let mut settings = server_settings();
    settings.read_within = Duration::from_millis(300);
    let server = Server::with(&truth, settings, "127.0.0.1:0".parse().unwrap());
    let (out, mut stream) = by_hand(&server, "deaf").await;
    let beats = tokio::spawn(heartbeats(out));
    eventually("the deaf one", SOON, async || truth.status("deaf")).await;
    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    gateway.has(&first).await;
    eventually("the deaf one to be gone", SOON, async || truth.status("deaf").is_none().then_some(())).await;
    // Whatever was on its way can still be read; then it ends before the table does.
    let mut tail = false;
    while let Ok(Some(message)) = stream.message().await {
        tail |= matches!(message.what, Some(from_control::What::Table(part)) if part.tail.is_some());
    }
    assert!(!tail);
    beats.abort();
}

#[tokio::test]
async fn a_gateway_of_which_nothing_is_heard_is_gone() {
    let truth = Truth::new(table(1, pins(&[])));
    let mut settings = server_settings();
    settings.dead_after = Duration::from_millis(400);
    let server = Server::with(&truth, settings, "127.0.0.1:0".parse().unwrap());
    let (_out, mut stream) = by_hand(&server, "mute").await;
    eventually("the mute one", SOON, async || truth.status("mute")).await;
    eventually("the mute one to be gone", SOON, async || truth.status("mute").is_none().then_some(())).await;
    while let Ok(Some(_)) = stream.message().await {}
}

#[tokio::test]
async fn the_newer_of_two_links_of_one_name_wins() {
    let first = table(1, pins(&[("a/m", "1")]));
    let truth = Truth::new(first.clone());
    let server = Server::start(&truth);
    let (out, mut stream) = by_hand(&server, "g1").await;
    let beats = tokio::spawn(heartbeats(out));
    eventually("the older one", SOON, async || truth.status("g1")).await;
    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    gateway.has(&first).await;
    let ended = loop {
        match stream.message().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_eq!(ended.unwrap_err().code(), Code::AlreadyExists);
    eventually("the newer one's status", SOON, async || truth.status("g1").filter(|s| s.in_force == Revision(1))).await;
    beats.abort();
}

#[tokio::test]
async fn the_whole_table_is_sent_to_who_asks_for_it() {
    let truth = Truth::new(table(3, pins(&[("a/m", "1")])));
    let server = Server::start(&truth);
    let (out, mut stream) = by_hand(&server, "g1").await;
    let need = proto::NeedWhole { why: "doubt".to_owned() };
    let mut wholes = 0;
    while wholes < 3 {
        let message = tokio::time::timeout(SOON, stream.message()).await.unwrap().unwrap().unwrap();
        if let Some(from_control::What::Table(part)) = message.what {
            let head = part.head.unwrap();
            assert_eq!((head.base, head.makes.unwrap().revision, part.edits.len()), (None, 3, 1));
            wholes += 1;
            out.send(proto::FromGateway { what: Some(from_gateway::What::NeedWhole(need.clone())) }).await.unwrap();
        }
    }
}

#[tokio::test]
async fn there_are_no_more_gateways_than_may_be_and_a_place_is_given_back() {
    let first = table(1, pins(&[("a/m", "1")]));
    let truth = Truth::new(first.clone());
    let settings = holdfast_wire::server::ServerSettings { max_gateways: 1, ..server_settings() };
    let server = Server::with(&truth, settings, "127.0.0.1:0".parse().unwrap());
    let (out, stream) = by_hand(&server, "other").await;
    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    let fresh = gateway.follower.freshness();
    eventually("the refusal", SOON, async || {
        matches!(&*fresh.borrow(), Freshness::Stale { why, .. } if why.contains("as many gateways")).then_some(())
    })
    .await;
    drop((out, stream));
    gateway.has(&first).await;
}

/// A control plane that says what it was given, to whoever comes.
struct Script {
    says: Vec<from_control::What>,
    heard: mpsc::Sender<from_gateway::What>,
}

type Outbound = Pin<Box<ReceiverStream<Result<proto::FromControl, Status>>>>;

#[tonic::async_trait]
impl Control for Script {
    type FollowStream = Outbound;
    type FetchStream = Outbound;

    async fn follow(&self, ask: Request<Streaming<proto::FromGateway>>) -> Result<Response<Outbound>, Status> {
        let (out, outbound) = mpsc::channel(16);
        for what in &self.says {
            out.send(Ok(proto::FromControl { what: Some(what.clone()) })).await.unwrap();
        }
        let (mut inbound, heard) = (ask.into_inner(), self.heard.clone());
        tokio::spawn(async move {
            let _out = out;
            while let Ok(Some(message)) = inbound.message().await {
                let _ = heard.send(message.what.unwrap()).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outbound))))
    }

    async fn fetch(&self, _: Request<proto::FetchRequest>) -> Result<Response<Outbound>, Status> {
        Err(Status::unimplemented("not by this one"))
    }
}

async fn scripted(says: Vec<from_control::What>) -> (String, mpsc::Receiver<from_gateway::What>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (heard, hears) = mpsc::channel(1_024);
    let service = ControlServer::new(Script { says, heard });
    tokio::spawn(Grpc::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)));
    (url, hears)
}

fn whole(of: &holdfast_plane::Table, digest: Option<&[u8]>) -> from_control::What {
    let mut makes = Stamp::of(of).unwrap().wire();
    if let Some(digest) = digest {
        makes.digest = digest.to_vec().into();
    }
    let edits = of.entries.iter().map(|((kind, name), value)| proto::Edit {
        kind: kind.as_str().to_owned(),
        name: name.to_string(),
        value: Some(value.to_string().into()),
    });
    let edits: Vec<_> = edits.collect();
    let tail = Some(proto::Tail { edits: edits.len() as u64, orders: None });
    from_control::What::Table(proto::TablePart {
        head: Some(proto::Head { makes: Some(makes), base: None }),
        edits,
        tail,
    })
}

#[tokio::test]
async fn a_table_that_is_not_what_it_says_is_refused_and_the_next_control_plane_is_taken() {
    let good = table(5, pins(&[("a/m", "1")]));
    let (liar, _heard) = scripted(vec![whole(&good, Some(&[7; 32]))]).await;
    let (honest, _heard) = scripted(vec![whole(&good, None)]).await;
    let (follower, end) = Follower::start(follower_settings(vec![liar, honest.clone()]), None).unwrap();
    eventually("the table", SOON, async || (end.view.borrow().table.entries == good.entries).then_some(())).await;
    assert_eq!(*follower.freshness().borrow(), Freshness::Current { control: honest.into() });
}

#[tokio::test]
async fn a_delta_upon_something_else_makes_the_gateway_ask_for_the_whole() {
    let (first, third) = (table(5, pins(&[("a/m", "1")])), table(7, pins(&[("b/m", "1")])));
    let from_control::What::Table(mut delta) = whole(&third, None) else { unreachable!() };
    delta.head.as_mut().unwrap().base = Some(Stamp::of(&table(6, pins(&[]))).unwrap().wire());
    let (url, mut heard) = scripted(vec![whole(&first, None), from_control::What::Table(delta)]).await;
    let (_follower, end) = Follower::start(follower_settings(vec![url]), None).unwrap();
    eventually("the first", SOON, async || (end.view.borrow().table.revision == Revision(5)).then_some(())).await;
    let why = loop {
        let said = tokio::time::timeout(SOON, heard.recv()).await.unwrap().unwrap();
        if let from_gateway::What::NeedWhole(need) = said {
            break need.why;
        }
    };
    assert!(why.contains("revision 6"), "{why}");
    assert_eq!(end.view.borrow().table.entries, first.entries);
}

#[tokio::test]
async fn a_control_plane_that_falls_silent_is_left() {
    let first = table(5, pins(&[("a/m", "1")]));
    let (silent, _heard) = scripted(vec![whole(&first, None)]).await;
    let second = edited(&first, [edit(PinKind, "a/m", None)]);
    let server = Server::start(&Truth::new(second.clone()));
    let mut settings = follower_settings(vec![silent, server.url()]);
    settings.dead_after = Duration::from_millis(400);
    let gateway = Gateway::start(settings);
    gateway.has(&first).await;
    gateway.has(&second).await;
}
