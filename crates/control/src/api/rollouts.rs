//! Roll-outs: listed, shown, steered. And the gateways that they go over.

use http::{HeaderValue, StatusCode};
use serde_json::{Value as Json, json};

use holdfast_decide::rollout::{Command, Refusal, RolloutId};

use super::fleet::{FleetError, RolloutView};
use super::history::number;
use super::problem::Problem;
use super::request::{Members, Query};
use super::resources::link;
use super::routes::Steer;
use super::{Answer, Api, Input, answer, render};
use crate::rollouts::words::refused;

/// The most roll-outs that are looked at for one page.
const MAX_LOOKED: usize = 10_000;
/// Roll-outs that are asked for at a time.
const BATCH: usize = 100;

impl Api {
    pub(super) async fn rollouts(&self, input: &Input<'_>) -> Answer {
        let limit = input.query.limit()?;
        let wanted = Wanted::of(&input.query)?;
        // Whoever wants all of them needs no more than the page, and the one after it.
        let batch = if wanted.all() { (limit + 1).min(BATCH) } else { BATCH };
        let mut before = input.query.number("after", 1)?.map(RolloutId);
        let (mut items, mut looked, mut next): (Vec<Json>, usize, Option<u64>) = (Vec::new(), 0, None);
        'pages: loop {
            let page = self.fleet.rollouts(before, batch).await?;
            looked += page.len();
            for view in &page {
                if items.len() == limit {
                    next = before.map(|id| id.0);
                    break 'pages;
                }
                before = Some(view.progress.id);
                if wanted.is(view) {
                    items.push(render::rollout(view, false));
                }
            }
            if page.len() < batch {
                break;
            }
            if looked >= MAX_LOOKED {
                next = before.map(|id| id.0);
                break;
            }
        }
        let next = next.map(|id| id.to_string());
        let mut page = answer::json(StatusCode::OK, &json!({ "items": items, "next": next }));
        if let Some(next) = &next {
            link(&mut page, input, next, None);
        }
        Ok(page)
    }

    pub(super) async fn rollout(&self, input: &Input<'_>) -> Answer {
        let view = self.fleet.rollout(RolloutId(number(input, "roll-out")?)).await?;
        Ok(answer::json(StatusCode::OK, &render::rollout(&view, true)))
    }

    pub(super) async fn steer(&self, what: Steer, input: &Input<'_>) -> Answer {
        let id = RolloutId(number(input, "roll-out")?);
        let mut body = Members::read(&input.body)?;
        let command = match what {
            Steer::Abort => Command::Abort,
            Steer::Pause => Command::Pause,
            Steer::Resume => Command::Resume,
            Steer::Revert => Command::Revert { confirmed: body.flag("confirmed")? },
        };
        body.end()?;
        self.fleet.command(id, command, &input.caller.name).await.map_err(|error| told(command, error))?;
        let view = self.fleet.rollout(id).await?;
        Ok(answer::json(StatusCode::OK, &render::rollout(&view, true)))
    }

    /// The gateways as this control plane hears them. One that follows hears none: an empty list would look like a fleet without gateways.
    pub(super) fn nodes(&self) -> Answer {
        if self.fleet.follows() {
            let detail = "this control plane follows: gateways speak to the one that leads. Ask that one: of the control planes it is the one \
                          whose /readyz?verbose says \"leads\": true";
            let told = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "follows", detail);
            return Err(told.header(http::header::RETRY_AFTER, HeaderValue::from_static("1")));
        }
        let in_force = self.desk.truth().head.in_force.0;
        let nodes: Vec<Json> = self.fleet.nodes().iter().map(render::node).collect();
        let mut told = json!({ "in_force": in_force, "items": nodes });
        if let (Some((seating, next)), Some(object)) = (self.fleet.seating(), told.as_object_mut()) {
            object.insert("seating".to_owned(), render::seating(&seating, next));
        }
        Ok(answer::json(StatusCode::OK, &told))
    }
}

/// Which roll-outs are asked for.
struct Wanted<'a> {
    running: bool,
    pin: Option<(&'a str, &'a str)>,
}

impl<'a> Wanted<'a> {
    fn of(query: &'a Query) -> Result<Self, Problem> {
        let pin = query.get("pin").map(|pin| {
            pin.split_once('/').ok_or_else(|| Problem::bad(format!("pin is {pin:?}; expected TENANT/MODEL")))
        });
        Ok(Self { running: query.flag("running")?, pin: pin.transpose()? })
    }

    const fn all(&self) -> bool {
        !self.running && self.pin.is_none()
    }

    fn is(&self, view: &RolloutView) -> bool {
        let has = |(tenant, model): (&str, &str)| {
            view.progress.pins.iter().any(|pin| pin.tenant.as_str() == tenant && pin.model.as_str() == model)
        };
        !(self.running && view.over) && self.pin.is_none_or(has)
    }
}

/// A refusal in the words for this command.
fn told(command: Command, error: FleetError) -> Problem {
    let detail = match &error {
        FleetError::Refused(refusal) => refused(command, refusal),
        _ => None,
    };
    let mut problem = Problem::from(error);
    problem.detail = detail.unwrap_or(problem.detail);
    problem
}

impl From<FleetError> for Problem {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::NotFound => Self::missing("there is no such roll-out"),
            FleetError::Unavailable(words) => Self::unavailable(words),
            FleetError::Undesired(words) => Self::new(StatusCode::CONFLICT, "refused", words),
            FleetError::Refused(refusal) => {
                let told = Self::new(StatusCode::CONFLICT, "refused", words(&refusal));
                told.with("refusal", name(&refusal).into())
            }
        }
    }
}

const fn name(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Nothing => "nothing",
        Refusal::Over => "over",
        Refusal::Active => "active",
        Refusal::Shared(_) => "shared",
        Refusal::NotActive => "not_active",
        Refusal::GoesBack => "goes_back",
        Refusal::NoTarget => "no_target",
        Refusal::Cold(_) => "cold",
        Refusal::Collecting => "collecting",
        Refusal::Busy => "busy",
    }
}

fn words(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Nothing => "it is paused already, or not paused".to_owned(),
        Refusal::Over => "it has ended".to_owned(),
        Refusal::Active => "too late to abort: a pin has flipped; revert it".to_owned(),
        Refusal::Shared(percent) => {
            format!("too late to abort: {percent} % of a pin's traffic goes to the new version; revert it")
        }
        Refusal::NotActive => "no pin has flipped; abort it".to_owned(),
        Refusal::GoesBack => "it goes back already, or went back".to_owned(),
        Refusal::NoTarget => {
            "there is nothing to go back to: a first pin, or another change has moved it since, or the version is not in the catalogue any more".to_owned()
        }
        Refusal::Cold(artifacts) => {
            let all: Vec<String> = artifacts.iter().map(|a| format!("{}/{}", a.model, a.version)).collect();
            format!("not kept any more: {}; it has to be loaded anew, which is to be confirmed", all.join(", "))
        }
        Refusal::Collecting => "the old version is just being removed; ask again in a while".to_owned(),
        Refusal::Busy => "another command waits for a flip to be resolved; ask again".to_owned(),
    }
}
