//! The API over a small made-up table on a port, for tools that want a server: `cargo run -p holdfast-control --example serve_api -- 7499`. Then
//! `schemathesis run http://127.0.0.1:7499/openapi.json --exclude-checks positive_data_acceptance --exclude-path-regex events`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    reason = "a tool for tests, made of their parts"
)]

#[path = "../tests/api/support.rs"]
mod support;

use std::convert::Infallible;

use holdfast_control::api::Door;
use holdfast_decide::rollout::{Phase, Stage};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use support::Bench;

#[tokio::main]
async fn main() {
    let port: u16 = std::env::args().nth(1).expect("a port").parse().expect("a port");
    let bench = std::sync::Arc::new(Bench::new().await);
    bench.fleet.put(1, Phase::Canary, Stage::Canary);
    bench.fleet.put(2, Phase::Done, Stage::Done);
    bench.fleet.node("g1", 1, true);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let bench = bench.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let bench = bench.clone();
            async move { Ok::<_, Infallible>(answer(&bench, request).await) }
        });
        tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn answer(bench: &Bench, request: Request<Incoming>) -> Response<holdfast_control::api::Body> {
    match Door::open().caller(request.headers(), None) {
        Err(problem) => problem.response(),
        Ok(caller) => bench.api.respond(&caller, request).await.unwrap_or_else(|| {
            holdfast_control::api::Problem::new(StatusCode::NOT_FOUND, "not_found", "nothing is here").response()
        }),
    }
}
