//! The progress of a roll-out as server-sent events: one when it is asked for, one whenever something has moved, and an `end`.
//!
//! A client that is slow sees the latest, not everything. Nothing runs for a stream beside the connection that carries it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::Value as Json;
use tokio::sync::watch;

use holdfast_decide::rollout::RolloutId;

use super::fleet::{Fleet, FleetError, RolloutView};
use super::history::number;
use super::problem::Problem;
use super::streams::StreamPlace;
use super::{Answer, Api, Input, render};

/// A sign of life at least so often, so that nothing on the way takes the stream for dead.
const ALIVE: Duration = Duration::from_secs(15);
/// What moves within this time is told as one.
const PAUSE: Duration = Duration::from_millis(100);

impl Api {
    pub(super) async fn events(&self, input: &Input<'_>) -> Answer {
        let id = RolloutId(number(input, "roll-out")?);
        let place = self.streams.admit(input.address)?;
        // Before the first look, so that no move is missed.
        let moved = self.fleet.moved();
        let view = self.fleet.rollout(id).await?;
        let follow = Follow { fleet: self.fleet.clone(), id, moved, told: None, number: 0, _place: place };
        let stream = Events(State::Next(Box::pin(first(follow, view))));
        let mut answer = Response::new(stream.boxed_unsync());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Ok(answer)
    }
}

/// One client that follows one roll-out.
struct Follow {
    fleet: Arc<dyn Fleet>,
    id: RolloutId,
    moved: watch::Receiver<u64>,
    /// What it was told last, without what moves by itself.
    told: Option<Json>,
    number: u64,
    _place: StreamPlace,
}

type Step = (Bytes, Option<Box<Follow>>);
type Next = Pin<Box<dyn Future<Output = Step> + Send>>;

async fn first(follow: Follow, view: RolloutView) -> Step {
    let mut follow = Box::new(follow);
    match follow.say(&view) {
        (text, true) => (text, None),
        (text, false) => (Bytes::from([b"retry: 1000\n".as_slice(), &text].concat()), Some(follow)),
    }
}

async fn next(mut follow: Box<Follow>) -> Step {
    loop {
        match tokio::time::timeout(ALIVE, follow.moved.changed()).await {
            // Whoever keeps the roll-outs is gone.
            Ok(Err(_)) => return (event("end", None, &Json::Null), None),
            Ok(Ok(())) => tokio::time::sleep(PAUSE).await,
            Err(_) => return (Bytes::from_static(b":\n\n"), Some(follow)),
        }
        follow.moved.mark_unchanged();
        match follow.fleet.rollout(follow.id).await {
            Ok(view) if follow.told.as_ref() == Some(&still(&view)) => {}
            Ok(view) => {
                let (text, over) = follow.say(&view);
                return (text, (!over).then_some(follow));
            }
            // It is looked at again when something moves; meanwhile the client hears that the stream lives.
            Err(FleetError::Unavailable(_)) => return (Bytes::from_static(b":\n\n"), Some(follow)),
            Err(error) => return (event("error", None, &Problem::from(error).json()), None),
        }
    }
}

impl Follow {
    /// The event, and whether it is the last.
    fn say(&mut self, view: &RolloutView) -> (Bytes, bool) {
        self.told = Some(still(view));
        self.number += 1;
        let told = render::rollout(view, true);
        let text = event("progress", Some(self.number), &told);
        if view.over { ([text, event("end", None, &told)].concat().into(), true) } else { (text, false) }
    }
}

/// What there is to tell, without what only time moves.
fn still(view: &RolloutView) -> Json {
    let mut told = render::rollout(view, true);
    strip(&mut told);
    told
}

fn strip(value: &mut Json) {
    match value {
        Json::Object(map) => {
            map.remove("since_ms");
            if map.get("for").is_some_and(|what| what == "time") {
                map.remove("ms");
            }
            map.values_mut().for_each(strip);
        }
        Json::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

/// JSON has no line breaks outside of its strings, and escapes them inside.
fn event(name: &str, number: Option<u64>, data: &Json) -> Bytes {
    let id = number.map(|n| format!("id: {n}\n")).unwrap_or_default();
    format!("event: {name}\n{id}data: {data}\n\n").into()
}

enum State {
    Next(Next),
    Over,
}

/// The body: one future at a time, each for one event.
struct Events(State);

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let State::Next(future) = &mut self.0 else { return Poll::Ready(None) };
        let (text, follow) = ready!(future.as_mut().poll(cx));
        self.0 = follow.map_or(State::Over, |follow| State::Next(Box::pin(next(follow))));
        Poll::Ready(Some(Ok(Frame::data(text))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, State::Over)
    }
}
