//! The admin API: the truth of the table, its history, roll-outs and gateways, as resources under `/v1`.
//!
//! `routes` is the one table of paths, methods, roles and parameters; requests are matched with it and the OpenAPI document is made from it.
//! A [`Door`] says who asks; [`Api::respond`] answers whoever it let in, and leaves paths that are none of its own to the caller. Everything is
//! bounded: bodies, pages, streams. Whatever is refused is a [`Problem`].
//!
//! A change with `If-Match` is made against the revision at which the resource was looked at, and looked at again if somebody else was faster:
//! so it is refused exactly if the resource itself has changed.

mod answer;
mod apply;
mod auth;
mod certificates;
mod change;
mod cold;
mod driven;
mod events;
mod fleet;
mod history;
mod openapi;
mod own_tokens;
mod problem;
mod render;
mod request;
mod resources;
mod rollouts;
mod routes;
mod schemas;
mod streams;
mod tokens;

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use tokio::sync::Semaphore;

use crate::desk::Desk;

pub use auth::{Caller, Door, Role};
pub use certificates::Names;
pub use cold::Retained;
pub use driven::Driven;
pub use fleet::{Fleet, FleetError, Later, NodeView, RolloutView};
pub use openapi::document;
pub use problem::Problem;
pub use tokens::{SHORTEST, Tokens, TokensError};

use request::{Query, content_type};
use routes::{Op, Route, Takes};
use streams::Streams;

/// The body of an answer: whole, or a stream of events.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Rows of a page if nobody says how many.
const PAGE: u64 = 100;
/// The most rows of a page.
const MAX_PAGE: u64 = 1000;
/// The largest number in a path or a query.
const MAX_NUMBER: u64 = i64::MAX as u64;
/// The most bytes of a JSON object.
const MAX_OBJECT: usize = 128 << 10;
/// The most bytes of a whole state.
const MAX_STATE: usize = 64 << 20;
/// The most whole states that are read at a time; one takes some hundred megabytes at its largest.
const STATES: usize = 2;

/// The API over a desk and its fleet.
pub struct Api {
    desk: Arc<Desk>,
    fleet: Arc<dyn Fleet>,
    own_tokens: Option<Arc<crate::tokens::Tokens>>,
    streams: Streams,
    states: Semaphore,
    /// Changes follow one another.
    turns: Semaphore,
}

/// A request whose route is found and whose caller may ask for it.
pub(crate) struct Input<'a> {
    caller: &'a Caller,
    route: &'static Route,
    names: Vec<String>,
    query: Query,
    headers: &'a HeaderMap,
    body: Bytes,
    /// Where it comes from, if that is known.
    address: Option<IpAddr>,
}

type Answer = Result<Response<Body>, Problem>;

impl Api {
    /// Over this desk and this fleet.
    #[must_use]
    pub fn new(desk: Arc<Desk>, fleet: Arc<dyn Fleet>) -> Self {
        let (states, turns) = (Semaphore::new(STATES), Semaphore::new(1));
        Self { desk, fleet, own_tokens: None, streams: Streams::default(), states, turns }
    }

    /// The same, where gateways give tokens of their own.
    #[must_use]
    pub fn with_tokens(self, own_tokens: Option<Arc<crate::tokens::Tokens>>) -> Self {
        Self { own_tokens, ..self }
    }

    /// Answers a request of somebody who was let in; an [`IpAddr`] among its extensions is where it comes from. `None`: the path is not one of this API, and the body was not touched.
    ///
    /// # Cancel safety
    /// If the future is dropped a change may have been made or not, never in part.
    pub async fn respond<B>(&self, caller: &Caller, request: Request<B>) -> Option<Response<Body>>
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let segments = match request::segments(request.uri().path()) {
            Ok(segments) => segments,
            Err(_) if !request.uri().path().starts_with("/v1/") => return None,
            Err(problem) => return Some(problem.response()),
        };
        let (routes, names) = routes::find(&segments);
        if routes.is_empty() {
            return None;
        }
        let answer = self.answer(caller, &routes, names, request).await;
        Some(answer.unwrap_or_else(Problem::response))
    }

    async fn answer<B>(
        &self,
        caller: &Caller,
        routes: &[&'static Route],
        names: Vec<String>,
        request: Request<B>,
    ) -> Answer
    where
        B: http_body::Body,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let address = parts.extensions.get::<IpAddr>().copied();
        let method = if parts.method == Method::HEAD { Method::GET } else { parts.method };
        let route = *routes
            .iter()
            .find(|route| route.method == method)
            .ok_or_else(|| Problem::method(&routes::allowed(routes)))?;
        caller.needs(route.role)?;
        let kind = if route.op == Op::Events { "text/event-stream" } else { "application/json" };
        if !request::accepts(&parts.headers, kind) {
            let detail = format!("the answer is {kind}, which the request does not accept");
            return Err(Problem::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail));
        }
        let query = Query::read(parts.uri.query(), route.query)?;
        check_type(route, &parts.headers)?;
        let most = if route.takes == Takes::State { MAX_STATE } else { MAX_OBJECT };
        let _state = match route.takes {
            Takes::State => Some(self.states.acquire().await.map_err(|_| Problem::unavailable("the server ends"))?),
            _ => None,
        };
        let body = match route.takes {
            Takes::Nothing => Bytes::new(),
            _ => request::body(&parts.headers, body, most).await?,
        };
        self.run(Input { caller, route, names, query, headers: &parts.headers, body, address }).await
    }

    async fn run(&self, input: Input<'_>) -> Answer {
        match input.route.op {
            Op::Document => Ok(answer::bytes(StatusCode::OK, "application/json", openapi::text())),
            Op::List(kind) => self.list(kind, &input).await,
            Op::Get(kind) => self.get(kind, &input).await,
            Op::Put(kind) => self.put(kind, &input).await,
            Op::Delete(kind) => self.delete(kind, &input).await,
            Op::Apply => self.apply(&input).await,
            Op::Revert => self.revert(&input).await,
            Op::Revisions => self.revisions(&input).await,
            Op::Revision => self.revision(&input).await,
            Op::Diff => self.diff(&input).await,
            Op::Rollouts => self.rollouts(&input).await,
            Op::Rollout => self.rollout(&input).await,
            Op::Events => self.events(&input).await,
            Op::Steer(what) => self.steer(what, &input).await,
            Op::Nodes => self.nodes(),
            Op::RevokeToken => self.revoke_token(&input).await,
            Op::RotateKeys => self.rotate_keys(&input).await,
        }
    }
}

/// A body must say what it is: what a browser sends across origins without asking first is none of these types.
fn check_type(route: &Route, headers: &HeaderMap) -> Result<(), Problem> {
    let known: &[&str] = match route.takes {
        Takes::Nothing => return Ok(()),
        Takes::Object | Takes::Maybe => &["application/json"],
        Takes::State => &["application/yaml", "application/json", "application/x-yaml", "text/yaml"],
    };
    let empty = headers.get(http::header::CONTENT_LENGTH).is_none_or(|length| length == "0")
        && headers.get(http::header::TRANSFER_ENCODING).is_none();
    let given = content_type(headers);
    match &given {
        None if empty && route.takes == Takes::Maybe => Ok(()),
        Some(given) if known.contains(&given.as_str()) => Ok(()),
        _ => {
            let detail = format!("the body has to be {}", known.first().copied().unwrap_or_default());
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail))
        }
    }
}
