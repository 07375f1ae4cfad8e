//! A whole desired state at once, and the way back to an older one.

use http::StatusCode;
use http::header::IF_MATCH;
use serde_json::{Value as Json, json};

use holdfast_config::{Faults, Resources, Source, split};
use holdfast_types::Revision;

use super::change::Wish;
use super::problem::Problem;
use super::request::{Members, tags};
use super::{Answer, Api, Input, answer, cold, render};
use crate::desk::{DeskError, GonePin, Move, RevertTarget, What};

/// What a text declares, and which of its sections do not route.
struct Read {
    resources: Resources,
    ignored: Vec<String>,
}

impl Api {
    pub(super) async fn apply(&self, input: &Input<'_>) -> Answer {
        let dry_run = input.query.flag("dry_run")?;
        let base = base(input)?;
        let read_options = |text| serde_json::from_str(text).map_err(|error| Problem::bad(format!("options: {error}")));
        let options = input.query.get("options").map(read_options).transpose()?;
        let reason = input.query.get("reason").unwrap_or_default().to_owned();
        let text = String::from_utf8(input.body.to_vec()).map_err(|_| Problem::bad("the body is not UTF-8"))?;
        // A large state takes a second of a core.
        let read = tokio::task::spawn_blocking(move || read(&text)).await;
        let Read { resources, ignored } = read.map_err(|_| Problem::unavailable("the server ends"))??;
        let _turn = self.turn(dry_run).await?;
        let wish = Wish { what: What::Whole(resources), reason, options, dry_run };
        let done = self.ask(input.caller, base, wish).await.map_err(|error| conditional(error, base))?;
        let mut told = render::done(&done);
        if let Some(told) = told.as_object_mut() {
            told.insert("ignored".to_owned(), ignored.into());
        }
        Ok(tagged(&told, done.revision))
    }

    pub(super) async fn revert(&self, input: &Input<'_>) -> Answer {
        let dry_run = input.query.flag("dry_run")?;
        let base = base(input)?;
        let mut body = Members::read(&input.body)?;
        let to = body.revision("to")?;
        let reason = body.text("reason")?;
        let skip_gone = body.flag("skip_gone")?;
        let options = super::change::options(&mut body)?;
        body.end()?;
        let _turn = self.turn(dry_run).await?;
        let mut target = self.desk.revert_target(to).await?;
        if skip_gone {
            target.skip_gone();
        } else if !target.gone.is_empty() {
            return Err(gone(&target));
        }
        let retained = self.fleet.retained().await?;
        let cold = cold::cold(&target.edits, &self.desk.truth().in_force, &retained);
        let (cold, cold_total) = (cold::listed(&cold, LISTED), cold.len());
        let reason = reason.unwrap_or_else(|| format!("back to revision {}", target.to));
        let moves = target.moves();
        let wish = Wish { what: What::Edits(target.edits), reason, options, dry_run };
        // What the target was worked out from must be what is changed.
        let seen = base.unwrap_or(target.base);
        let done = self.ask(input.caller, Some(seen), wish).await.map_err(|error| conditional(error, base))?;
        let mut told = render::done(&done);
        if let Some(told) = told.as_object_mut() {
            told.insert("to".to_owned(), target.to.0.into());
            told.insert("cold".to_owned(), cold);
            told.insert("cold_total".to_owned(), cold_total.into());
            told.insert("moves".to_owned(), moves.iter().take(LISTED).map(moved).collect());
            told.insert("moves_total".to_owned(), moves.len().into());
            told.insert("skipped".to_owned(), listed(&target.gone));
            told.insert("skipped_total".to_owned(), target.gone.len().into());
        }
        Ok(tagged(&told, done.revision))
    }
}

/// Pins that are listed one by one, and those that are named in words.
const LISTED: usize = 1_000;
const NAMED: usize = 100;

/// What a pin does by a revert: what is in force moves, or only what is desired.
fn moved(pin: &Move) -> Json {
    json!({ "pin": &*pin.pin, "in_force": pin.in_force, "desired": pin.desired, "to": pin.to })
}

fn listed(gone: &[GonePin]) -> Json {
    let pin = |gone: &GonePin| json!({ "pin": &*gone.pin, "version": gone.version, "reason": gone.why });
    gone.iter().take(LISTED).map(pin).collect()
}

/// Every pin that cannot go back, and what can be done about it.
fn gone(target: &RevertTarget) -> Problem {
    let (gone, all) = (&target.gone, target.edits.len());
    let mut lines = vec![format!("{} of {all} pins cannot go back to revision {}:", gone.len(), target.to)];
    lines.extend(gone.iter().take(NAMED).map(|pin| format!("  {pin}")));
    if gone.len() > NAMED {
        lines.push(format!("  and {} more", gone.len() - NAMED));
    }
    lines.push("\"skip_gone\" (--skip-gone) has the others go back without them".to_owned());
    let told = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "gone", lines.join("\n"));
    told.with("gone", listed(gone)).with("gone_total", gone.len().into())
}

fn tagged(told: &Json, revision: Option<Revision>) -> http::Response<super::Body> {
    let answer = answer::json(StatusCode::OK, told);
    match revision {
        Some(revision) => answer::tagged(answer, revision),
        None => answer,
    }
}

/// The revision of the whole that the author saw.
fn base(input: &Input<'_>) -> Result<Option<Revision>, Problem> {
    match tags(input.headers, IF_MATCH)?.as_deref() {
        None | Some([]) => Ok(None),
        Some([one]) => Ok(Some(*one)),
        Some(_) => Err(Problem::bad("of a whole state If-Match names one revision")),
    }
}

/// Who named a revision by a header is told by the header's status.
fn conditional(error: DeskError, base: Option<Revision>) -> Problem {
    let conflict = matches!(error, DeskError::Conflict { .. });
    let mut problem = Problem::from(error);
    if conflict && base.is_some() {
        (problem.status, problem.code) = (StatusCode::PRECONDITION_FAILED, "precondition_failed");
    }
    problem
}

fn read(text: &str) -> Result<Read, Problem> {
    let split = split(&Source::text("body", text)).map_err(|faults| told(&faults))?;
    if split.resources.is_empty() {
        let reason = "names no pool, model or tenant; a state that takes everything away is nearly always an accident";
        return Err(Problem::at("", reason));
    }
    let ignored = split.rest.as_object().map(|rest| rest.keys().cloned().collect()).unwrap_or_default();
    Ok(Read { resources: split.resources, ignored })
}

/// The faults of a text, with their places in it.
fn told(faults: &Faults) -> Problem {
    let detail = faults.listed.first().map_or_else(String::new, |fault| {
        let path = if fault.path.is_empty() { String::new() } else { format!("{}: ", fault.path) };
        format!("line {}, column {}: {path}{}", fault.line, fault.column, fault.reason)
    });
    let listed = serde_json::to_value(&faults.listed).unwrap_or_default();
    let told = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail);
    told.with("faults", listed).with("total", faults.total.into())
}
