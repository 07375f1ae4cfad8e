//! The admin port's door and the control plane's part of it.

use std::path::Path;
use std::sync::Arc;

use http::{Extensions, HeaderMap, Method, StatusCode};

use holdfast_control::api::{Api, Caller, Door, Driven, Problem, Role};
use holdfast_control::backup::Backups;
use holdfast_control::seats::Seats;
use holdfast_gateway::{Access, Also, Answer, is_gateways, not_allowed, problem};
use holdfast_net::tls::Peer;
use holdfast_telemetry::Clock;

use super::both::Both;

/// Lets in whom the door knows.
pub fn access(door: &Arc<Door>) -> Access {
    let door = door.clone();
    Arc::new(move |fields, with| {
        caller(&door, fields, with).map(|_| ()).map_err(|refused| Box::new(refused.response()))
    })
}

/// Who asks, by a token or by a certificate.
fn caller(door: &Door, fields: &HeaderMap, with: &Extensions) -> Result<Caller, Problem> {
    let Some(peer) = with.get::<Arc<Peer>>() else { return door.caller(fields, None) };
    // It was in its time when the connection was made, which may be long ago.
    if Clock::wall_millis() / 1_000 > peer.ends {
        let detail = "the time of the client's certificate is over";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
    }
    let names: Vec<(&str, &str)> = peer.names.iter().map(|(kind, name)| (*kind, &**name)).collect();
    door.caller(fields, Some(&names))
}

/// The resources of a control plane in this process.
pub fn resources(door: &Arc<Door>, both: &Both, seats: Option<Arc<Seats>>, state: &Path) -> Also {
    let backups = both.backups(state);
    let fleet = Driven::new(both.rollouts.clone(), both.sessions.clone()).seated(seats);
    let api = Api::new(both.desk.clone(), Arc::new(fleet)).with_tokens(both.tokens.clone());
    let (door, api) = (door.clone(), Arc::new(api));
    Arc::new(move |request| {
        let (door, api, backups) = (door.clone(), api.clone(), backups.clone());
        Box::pin(async move {
            let caller = match caller(&door, request.headers(), request.extensions()) {
                Ok(caller) => caller,
                Err(refused) => return Problem::response(refused),
            };
            if request.uri().path() == "/v1/backup" {
                return backup(&caller, request.method(), &backups).await;
            }
            let nothing = if is_gateways(request.uri().path()) {
                "this is a control plane: tables in force, replicas, limits, receipts and explanations are asked of a gateway, at its admin port"
            } else {
                "there is nothing at this path"
            };
            let answered: Option<Answer> = api.respond(&caller, request).await;
            answered.unwrap_or_else(|| problem(StatusCode::NOT_FOUND, nothing))
        })
    })
}

/// `POST /v1/backup`. It holds everything, so it is for who may do everything.
async fn backup(caller: &Caller, method: &Method, backups: &Arc<Backups>) -> Answer {
    if *method != Method::POST {
        return not_allowed("POST", "a backup is taken by POST");
    }
    if caller.role < Role::Admin {
        return problem(StatusCode::FORBIDDEN, "a backup needs the role admin");
    }
    backups.clone().answer().await
}
