//! The admin port of a control plane: whether it lives and is ready, metrics, and whatever its admin API answers.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::json;

use holdfast_gateway::{Access, Answer, problem, serve_admin};
use holdfast_net::tls::Entrance;
use holdfast_net::{Listener, Tasks};
use holdfast_telemetry::Registry;

use super::Board;

/// Answers until the process ends.
pub async fn listen(listener: Listener, entrance: Entrance, board: Arc<Board>, access: Access, tasks: Tasks) {
    let answer = move |request: Request<Incoming>| {
        let (board, access) = (board.clone(), access.clone());
        async move { route(&board, &access, request).await }
    };
    serve_admin(listener, entrance, tasks, || (), answer).await;
}

async fn route(board: &Board, access: &Access, request: Request<Incoming>) -> Answer {
    let path = request.uri().path();
    let is_probe = matches!(path, "/livez" | "/healthz" | "/readyz");
    if !is_probe && let Err(refused) = access(request.headers(), request.extensions()) {
        return *refused;
    }
    if !is_probe && path != "/metrics" {
        return match board.also() {
            Some(also) => also(request).await,
            None => problem(StatusCode::NOT_FOUND, "there is nothing at this path"),
        };
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return problem(StatusCode::METHOD_NOT_ALLOWED, "this resource is read only");
    }
    match path {
        "/readyz" => {
            let query = request.uri().query().unwrap_or_default();
            let verbose = query.split('&').any(|word| word == "verbose" || word.starts_with("verbose="));
            let (ready, body) = board.ready(verbose);
            let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            answer(status, "application/json", body.to_string())
        }
        "/metrics" => answer(StatusCode::OK, Registry::CONTENT_TYPE, board.metrics()),
        _ => answer(StatusCode::OK, "application/json", json!({ "live": true }).to_string()),
    }
}

fn answer(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
