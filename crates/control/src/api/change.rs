//! From a request to the desk, and what the desk says as an answer.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tokio::sync::SemaphorePermit;

use holdfast_config::ResourceKind;
use holdfast_store::Space;
use holdfast_telemetry::Clock;
use holdfast_types::Revision;

use super::auth::Caller;
use super::problem::Problem;
use super::request::{Condition, Members};
use super::{Api, answer};
use crate::desk::{Ask, DeskError, Done, RolloutOptions, What};

/// How often a conditional change is looked at again because others were faster.
const TRIES: usize = 16;
/// How long a desk that has been overtaken is waited for.
const CATCH_UP: Duration = Duration::from_millis(20);

/// A change without its author and its condition.
#[derive(Clone)]
pub(super) struct Wish {
    pub(super) what: What,
    pub(super) reason: String,
    pub(super) options: Option<RolloutOptions>,
    pub(super) dry_run: bool,
}

impl Api {
    /// Asks the desk.
    pub(super) async fn ask(&self, caller: &Caller, base: Option<Revision>, wish: Wish) -> Result<Done, DeskError> {
        let ask = Ask {
            base,
            author: caller.name.to_string(),
            reason: wish.reason,
            at_ms: Clock::wall_millis(),
            what: wish.what,
            dry_run: wish.dry_run,
            options: wish.options,
            retired: self.fleet.retired(),
            term: None,
        };
        self.desk.change(ask).await
    }

    /// The turn to change something, in order of arrival. A conditional change looks and then changes; without turns it would be overtaken for ever by
    /// those that need not look. Other processes may still be faster.
    pub(super) async fn turn(&self, dry_run: bool) -> Result<Option<SemaphorePermit<'_>>, Problem> {
        if dry_run {
            return Ok(None);
        }
        let turn = self.turns.acquire().await;
        turn.map(Some).map_err(|_| Problem::unavailable("the server ends"))
    }

    /// A change of one resource under a condition, and the revision that the resource had before. Between the look at the resource and the
    /// change the desk lets no other change of what is desired pass; if there was one, the resource is looked at again.
    pub(super) async fn change_one(
        &self,
        caller: &Caller,
        kind: ResourceKind,
        name: &str,
        condition: &Condition,
        wish: Wish,
    ) -> Result<(Done, Option<Revision>), Problem> {
        let _turn = self.turn(wish.dry_run).await?;
        let goes = matches!(&wish.what, What::Edits(edits) if edits.iter().all(|edit| edit.value.is_none()));
        for _ in 0..TRIES {
            let at = self.desk.truth().head.revision;
            let found = self.found(Space::Desired, kind, name, at).await?.map(|resource| resource.revision);
            if !condition.holds(found) {
                return Err(not_met(kind, name, found));
            }
            if goes && found.is_none() {
                return Err(Problem::missing(format!("there is no {} {name}", kind.as_str())));
            }
            let base = (!condition.is_any()).then_some(at);
            match self.ask(caller, base, wish.clone()).await {
                Err(DeskError::Conflict { .. }) if base.is_some() => {
                    if self.desk.truth().head.revision == at {
                        tokio::time::sleep(CATCH_UP).await;
                    }
                }
                done => return Ok((done?, found)),
            }
        }
        Err(Problem::unavailable("others change what is desired all the time; try again"))
    }
}

fn not_met(kind: ResourceKind, name: &str, found: Option<Revision>) -> Problem {
    let what = kind.as_str();
    let detail = match found {
        Some(revision) => format!("the {what} {name} is at revision {revision}"),
        None => format!("there is no {what} {name}"),
    };
    let told = Problem::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", detail);
    let told = told.with("current", found.map(|r| r.0).into());
    let tag = found.and_then(|revision| answer::tag(revision).parse().ok());
    match tag {
        Some(tag) => told.header(http::header::ETAG, tag),
        None => told,
    }
}

/// The member `options` of a body.
pub(super) fn options(body: &mut Members) -> Result<Option<RolloutOptions>, Problem> {
    let path = body.path("options");
    let read = |value| serde_json::from_value(value).map_err(|error| Problem::at(&path, error.to_string()));
    body.take("options").filter(|value| !value.is_null()).map(read).transpose()
}

impl From<DeskError> for Problem {
    fn from(error: DeskError) -> Self {
        let words = error.to_string();
        match error {
            DeskError::Invalid(faults) => {
                let faults = faults.iter().map(|fault| {
                    let mut told = json!({ "path": fault.path, "reason": fault.reason });
                    if let (Some(nearest), Some(told)) = (&fault.nearest, told.as_object_mut()) {
                        told.insert("nearest".to_owned(), nearest.as_str().into());
                    }
                    told
                });
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", words).with("faults", faults.collect())
            }
            DeskError::Conflict { seen, current, changed } => Self::new(StatusCode::CONFLICT, "conflict", words)
                .with("seen", seen.0.into())
                .with("current", current.0.into())
                .with("changed", changed.into()),
            DeskError::NotFound(words) => Self::missing(words),
            DeskError::FileTruth => Self::new(StatusCode::CONFLICT, "truth_is_file", words),
            DeskError::Unavailable(words) => Self::unavailable(words),
            DeskError::Fenced => Self::unavailable("another control plane leads now"),
            DeskError::Store(error) => error.into(),
        }
    }
}
