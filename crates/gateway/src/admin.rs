//! The admin port: metrics, the table, the replicas, explanations, usage, alarms, receipts. It answers people and scrapers; what
//! changes things is the control plane's, which is asked for every other path.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use http::{Extensions, HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::{Value, json};

use holdfast_decide::Ask;
use holdfast_decide::rollout::RolloutId;
use holdfast_net::tls::Entrance;
use holdfast_net::{Listener, Tasks};
use holdfast_placement::residency::{ReplicaReport, Report, State};
use holdfast_telemetry::{Clock, Collected, Registry, Sink};
use holdfast_types::{ModelName, TenantId};

use crate::admin_port::serve_admin;
use crate::admin_query::{Query, percent_decoded};
use crate::asker::Described;
use crate::explain::{explanation, splits};
use crate::probes;
use crate::receipts;
use crate::replicas;
use crate::residency::SeatNumbers;
use crate::server::Gateway;
use crate::shadow;
use crate::table::PendingPin;

/// Most entries of one page of a listing.
const PAGE: usize = 1000;

/// What is answered on the admin port.
pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Says whether who sends these fields may look; if not, what they are answered. Among the extensions is an `Arc` of
/// [`Peer`](holdfast_net::tls::Peer) if the client has a certificate.
pub type Access = Arc<dyn Fn(&HeaderMap, &Extensions) -> Result<(), Box<Answer>> + Send + Sync>;

/// Answers what this crate does not know: the resources of the control plane.
pub type Also = Arc<dyn Fn(Request<Incoming>) -> Pin<Box<dyn Future<Output = Answer> + Send>> + Send + Sync>;

/// Serves the admin port until the process ends.
pub async fn listen(
    gateway: Arc<Gateway>,
    listener: Listener,
    entrance: Entrance,
    access: Access,
    also: Option<Also>,
    tasks: Tasks,
) {
    let metrics = gateway.metrics.clone();
    let connections = move || metrics.connections.get(["admin"]).track();
    let answer = move |request: Request<Incoming>| {
        let (gateway, access, also) = (gateway.clone(), access.clone(), also.clone());
        async move { route(&gateway, &access, also, request).await }
    };
    serve_admin(listener, entrance, tasks, connections, answer).await;
}

async fn route(gateway: &Arc<Gateway>, access: &Access, also: Option<Also>, request: Request<Incoming>) -> Answer {
    let path = request.uri().path();
    let own = is_gateways(path);
    if let Some(also) = also.filter(|_| !own) {
        return also(request).await;
    }
    let open = matches!(path, "/livez" | "/readyz" | "/healthz");
    if !open && let Err(refused) = access(request.headers(), request.extensions()) {
        return *refused;
    }
    if !own {
        return problem(StatusCode::NOT_FOUND, if path.starts_with("/v1/") { DESIRED } else { NOTHING });
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return not_allowed("GET, HEAD", "this resource is read only");
    }
    let query = Query(request.uri().query().unwrap_or(""));
    match path {
        "/livez" | "/healthz" => json_answer(StatusCode::OK, probes::live()),
        "/readyz" => {
            let (status, body) = probes::ready(gateway, probes::is_verbose(request.uri().query()));
            json_answer(status, body)
        }
        "/metrics" => metrics(gateway).await,
        "/v1/table" => json_answer(StatusCode::OK, table(gateway, &query).to_string()),
        "/v1/replicas" => json_answer(StatusCode::OK, replicas::page(gateway).to_string()),
        "/v1/alarms" => json_answer(StatusCode::OK, json!({ "alarms": gateway.driver.alarms.recent() }).to_string()),
        "/v1/usage" => json_answer(StatusCode::OK, usage(gateway, &query).to_string()),
        "/v1/limits" => json_answer(StatusCode::OK, limits(gateway, &query).to_string()),
        "/v1/explain" => explain(gateway, &query),
        "/v1/receipts" => receipts_page(gateway, &query),
        "/v1/shadows" => shadows(gateway, &query),
        "/v1/results" => results(gateway, &query),
        _ => match path.strip_prefix("/v1/receipts/") {
            Some(id) => receipt(gateway, id).await,
            None => problem(StatusCode::NOT_FOUND, NOTHING),
        },
    }
}

const NOTHING: &str = "there is nothing at this path";
/// The answer of a gateway without a control plane in its process.
const DESIRED: &str =
    "this is a gateway: what is desired, roll-outs and nodes are asked of a control plane, at its admin port";

/// Whether a path of the admin port is a gateway's, and not a control plane's.
#[must_use]
pub fn is_gateways(path: &str) -> bool {
    OWN.contains(&path) || path.starts_with("/v1/receipts/")
}

/// The paths that this crate answers.
const OWN: [&str; 13] = [
    "/livez",
    "/healthz",
    "/readyz",
    "/metrics",
    "/v1/table",
    "/v1/replicas",
    "/v1/alarms",
    "/v1/usage",
    "/v1/limits",
    "/v1/explain",
    "/v1/receipts",
    "/v1/shadows",
    "/v1/results",
];

fn json_answer(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

/// Problem details (RFC 9457).
#[must_use]
pub fn problem(status: StatusCode, detail: &str) -> Answer {
    let title = status.canonical_reason().unwrap_or("error");
    let body = json!({ "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail });
    let mut answer = json_answer(status, body.to_string());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    answer
}

/// 405, with the methods that are allowed (RFC 9110, section 15.5.6).
#[must_use]
pub fn not_allowed(methods: &'static str, detail: &str) -> Answer {
    let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, detail);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

async fn metrics(gateway: &Arc<Gateway>) -> Answer {
    let gateway = gateway.clone();
    let rendered = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        gateway.metrics.render(&mut text);
        text
    });
    match rendered.await {
        Ok(text) => {
            let mut answer = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(Registry::CONTENT_TYPE));
            answer
        }
        Err(_) => problem(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be read"),
    }
}

/// `?model=M` with `tenant=T`, or with `header=NAME:VALUE` for the trusted header. Of who asks: `user`, `device`, `plan`, `scope`, `claim=NAME=VALUE` and `header`, the last three
/// as often as need be. `version=V`, `override=V` and `route=TOKEN` as a request would name them.
fn explain(gateway: &Gateway, query: &Query<'_>) -> Answer {
    let settings = gateway.tables.load().settings.clone();
    let headers = query.all("header").filter_map(|header| {
        let (name, value) = header.split_once(':')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
    });
    let headers: Vec<(String, String)> = headers.collect();
    let by = |header: &Option<http::HeaderName>| {
        let (_, value) = headers.iter().find(|(name, _)| header.as_ref().is_some_and(|h| h.as_str() == name))?;
        Some(value.clone())
    };
    let (tenant, model) = (query.get("tenant").or_else(|| by(&settings.trusted_header)), query.get("model"));
    let (Some(tenant), Some(model)) = (tenant, model) else {
        let need = "needed are the model, and the tenant by name or by the trusted header";
        return problem(StatusCode::BAD_REQUEST, need);
    };
    let no_id = |what: &str, why: String| problem(StatusCode::BAD_REQUEST, &format!("the {what} is no id: it {why}"));
    if let Err(why) = TenantId::check(&tenant) {
        return no_id("tenant", why.to_string());
    }
    if let Err(why) = ModelName::check(&model) {
        return no_id("model", why.to_string());
    }
    let who = Described {
        user: query.get("user").or_else(|| by(&settings.trusted_user_header)),
        device: query.get("device"),
        plan: query.get("plan"),
        scopes: query.all("scope").collect(),
        claims: query
            .all("claim")
            .filter_map(|claim| claim.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned())))
            .collect(),
        headers,
    };
    let (version, wants) = (query.get("version"), query.get("override"));
    let ask = Ask { tenant: &tenant, model: &model, version: version.as_deref(), submission: b"" };
    let told = explanation(gateway, &ask, &who, (wants.as_deref(), query.get("route").as_deref()));
    json_answer(StatusCode::OK, told.to_string())
}

/// `?after=TENANT&limit=N` pages through the tenants that have limits; `?tenant=T` is one of them.
fn limits(gateway: &Gateway, query: &Query<'_>) -> Value {
    let limit = query.get("limit").and_then(|l| l.parse().ok()).unwrap_or(PAGE).clamp(1, PAGE);
    let (of, after) = (query.get("tenant"), query.get("after"));
    let table = gateway.tables.load();
    let mut listed = crate::limits::listed(&table.limits, of.as_deref(), after.as_deref(), limit, Clock::now());
    if table.settings.stream.is_some() {
        listed["stream"] = gateway.streams.shown(Clock::now());
    }
    listed
}

/// `?after=TENANT&limit=N` pages through the pins.
fn table(gateway: &Gateway, query: &Query<'_>) -> Value {
    let (status, waiting) = (gateway.tables.config_status(), gateway.tables.pending());
    let table = gateway.tables.load();
    let limit = query.get("limit").and_then(|l| l.parse().ok()).unwrap_or(PAGE).min(PAGE);
    let after = query.get("after").unwrap_or_default();
    let mut names: Vec<&str> =
        table.snapshot.tenants().map(|t| t.name.as_str()).filter(|n| *n > after.as_str()).collect();
    names.sort_unstable();
    let next = names.get(limit).and_then(|_| names.get(limit.wrapping_sub(1))).map(|n| (*n).to_owned());
    let tenants = names.iter().take(limit).filter_map(|name| table.snapshot.tenant(name)).map(|tenant| {
        let pins = table.snapshot.pins(tenant);
        let pins: serde_json::Map<_, _> =
            pins.map(|(model, v)| (model.name.to_string(), v.version.as_str().into())).collect();
        let mut row = json!({ "tenant": tenant.name.as_str(), "subset": tenant.subset, "pins": pins });
        let splits: serde_json::Map<_, _> =
            splits(&table.snapshot, tenant).map(|(model, split)| (model.name.to_string(), json!(split))).collect();
        if !splits.is_empty() {
            row["split"] = splits.into();
        }
        row
    });
    let report = if waiting.is_empty() { None } else { Some(gateway.driver.report()) };
    let pending = waiting.iter().map(|p| {
        json!({
            "tenant": p.change.tenant.as_str(), "model": p.change.model.as_str(), "to": p.change.version.as_str(),
            "waiting_for": p.waiting_for.iter().map(|r| r.as_str()).collect::<Vec<_>>(),
            "why": p.why,
            "obstacles": report.as_ref().map(|report| obstacles(gateway, report, p)).unwrap_or_default(),
        })
    });
    let failed = status.failed.as_ref().map(|f| {
        let age = Clock::wall_millis().saturating_sub(f.wall_millis) / 1000;
        json!({ "revision": f.revision.0, "age_seconds": age, "faults": f.faults })
    });
    json!({
        "revision": table.snapshot.revision().0,
        "digest": &*table.told.digest,
        "oldest_revision_in_flight": gateway.tables.revisions.oldest().map(|r| r.0),
        "config": {
            "revision": status.revision.0, "failed": failed, "restart_needed": status.restart_needed,
        },
        "store": gateway.store.as_ref().map(|store| store(true)),
        "tenants_total": table.snapshot.tenant_count(),
        "tenants": tenants.collect::<Vec<_>>(),
        "next": next,
        "pending": pending.collect::<Vec<_>>(),
    })
}

/// What stands between a pin and the replicas that it waits for, where something is known: a load that fails, no room, a proof that failed.
fn obstacles(gateway: &Gateway, report: &Report, pending: &PendingPin) -> Vec<Value> {
    let fleet = &gateway.driver.fleet;
    let (model, version) = (&pending.change.model, &pending.change.version);
    let is_it = |ix| fleet.version(ix).is_some_and(|v| v.model == *model && v.version == *version);
    let waits = |row: &&ReplicaReport| {
        let replica = fleet.replica(row.replica);
        replica.is_some_and(|r| pending.waiting_for.contains(&r.name))
    };
    let missing = report.replicas.iter().filter(waits).flat_map(|row| row.missing.iter().map(move |m| (row, m)));
    let told = missing.filter(|(_, m)| is_it(m.version) && !m.why.is_empty()).filter_map(|(row, m)| {
        let replica = fleet.replica(row.replica)?;
        Some(json!({ "replica": replica.name.as_str(), "failures": m.failures, "why": m.why }))
    });
    told.collect()
}

/// `?tenant=T&limit=N`: the newest first.
fn receipts_page(gateway: &Gateway, query: &Query<'_>) -> Answer {
    let limit = query.get("limit").and_then(|limit| limit.parse().ok());
    json_answer(StatusCode::OK, receipts::list(&gateway.receipts, query.get("tenant").as_deref(), limit).to_string())
}

/// `?rollout=ID`: what copied traffic of a roll-out has shown at this gateway.
fn shadows(gateway: &Gateway, query: &Query<'_>) -> Answer {
    match query.get("rollout").and_then(|id| id.parse().ok()) {
        Some(id) => {
            let reports = gateway.tables.shadow_report(RolloutId(id));
            json_answer(StatusCode::OK, json!({ "rollout": id, "shadows": shadow::told(&reports) }).to_string())
        }
        None => problem(StatusCode::BAD_REQUEST, "rollout is the number of a roll-out"),
    }
}

/// `?experiment=NAME`: what its arms have shown at this gateway.
fn results(gateway: &Gateway, query: &Query<'_>) -> Answer {
    let Some(results) = &gateway.results else {
        return problem(
            StatusCode::NOT_FOUND,
            "nothing is kept of what arms have shown: the configuration has no `results`",
        );
    };
    match query.get("experiment") {
        Some(name) => json_answer(StatusCode::OK, results.told(&name).to_string()),
        None => problem(StatusCode::BAD_REQUEST, "experiment is the name of an experiment"),
    }
}

async fn receipt(gateway: &Gateway, id: &str) -> Answer {
    let mut told = receipts::one(&gateway.receipts, id);
    if told.is_none()
        && let Some(disk) = gateway.receipts.disk().cloned()
    {
        let id = if id.contains('%') { percent_decoded(id) } else { id.to_owned() };
        told = tokio::task::spawn_blocking(move || disk.find(&id)).await.unwrap_or_default();
    }
    match told {
        Some(told) => json_answer(StatusCode::OK, told.to_string()),
        None => problem(
            StatusCode::NOT_FOUND,
            "there is no receipt of this request: it is not one of the last, or not of this process",
        ),
    }
}

fn usage(gateway: &Gateway, query: &Query<'_>) -> Value {
    let limit = query.get("limit").and_then(|l| l.parse().ok()).unwrap_or(PAGE).min(PAGE);
    let after = query.get("after").and_then(|t| TenantId::parse(&t).ok());
    let page = gateway.metrics.usage(after.as_ref(), limit);
    let next =
        if page.len() == limit { page.last().and_then(|u| u.tenant.as_ref()).map(|t| t.to_string()) } else { None };
    let rows = page.iter().map(|u| {
        json!({
            "tenant": u.tenant.as_ref().map(TenantId::as_str), "requests": u.requests, "errors": u.errors,
            "bytes_in": u.bytes_in, "bytes_out": u.bytes_out, "upstream_seconds": u.upstream_nanos as f64 / 1e9,
        })
    });
    json!({ "usage": rows.collect::<Vec<_>>(), "next": next })
}

/// Ties the metrics whose values live elsewhere to where they live.
pub fn register(gateway: &Arc<Gateway>) {
    let reading = |read: fn(&Gateway, &mut Sink<'_>)| {
        let gateway: Weak<Gateway> = Arc::downgrade(gateway);
        move |sink: &mut Sink<'_>| {
            if let Some(gateway) = gateway.upgrade() {
                read(&gateway, sink);
            }
        }
    };
    let metrics = &gateway.metrics;
    if let Some(link) = gateway.tables.limits.link() {
        link.register(metrics.registry());
    }
    metrics.collect(Collected::Resident, reading(|g, sink| holdings(g, sink, |state| state == State::Held)));
    metrics.collect(Collected::Quarantined, reading(|g, sink| holdings(g, sink, |state| state == State::Quarantined)));
    metrics.collect(
        Collected::ReplicaUp,
        reading(|g, sink| {
            for r in g.driver.fleet.named_replicas() {
                sink.sample(&[r.pool.as_str(), r.name.as_str()], f64::from(u8::from(r.usable())));
            }
        }),
    );
    metrics.collect(
        Collected::ReplicaInFlight,
        reading(|g, sink| {
            for r in g.driver.fleet.named_replicas() {
                sink.sample(&[r.pool.as_str(), r.name.as_str()], f64::from(r.in_flight()));
            }
        }),
    );
    metrics.collect(
        Collected::ReplicaNameFailing,
        reading(|g, sink| {
            for r in g.driver.fleet.named_replicas() {
                // The workers share what is known of the name.
                if let Some(failing) = r.connections(0).and_then(|pool| pool.name_failing()) {
                    sink.sample(&[r.pool.as_str(), r.name.as_str()], failing.as_secs_f64());
                }
            }
        }),
    );
    metrics.collect(
        Collected::TableStale,
        reading(|g, sink| sink.sample(&[], g.standing.age(Clock::now()).unwrap_or_default().as_secs_f64())),
    );
    let seat = |what: fn(&SeatNumbers) -> f64| {
        let gateway: Weak<Gateway> = Arc::downgrade(gateway);
        move |sink: &mut Sink<'_>| {
            if let Some(numbers) = gateway.upgrade().and_then(|g| g.driver.seat_numbers()) {
                sink.sample(&[], what(&numbers));
            }
        }
    };
    metrics.collect(Collected::SeatEpoch, seat(|n| n.epoch as f64));
    metrics.collect(Collected::SeatLeaseLeft, seat(|n| n.left.as_secs_f64()));
    metrics.collect(Collected::Seats, seat(|n| n.seats as f64));
    metrics.collect(Collected::LoadsInFlight, reading(|g, sink| per_pool(g, sink, Per::Loads)));
    metrics.collect(Collected::LoadQueue, reading(|g, sink| per_pool(g, sink, Per::Queue)));
    metrics.collect(
        Collected::OldestInFlightRevision,
        reading(|g, sink| {
            if let Some(oldest) = g.tables.revisions.oldest() {
                sink.sample(&[], oldest.0 as f64);
            }
        }),
    );
}

fn holdings(gateway: &Gateway, sink: &mut Sink<'_>, counts: fn(State) -> bool) {
    let fleet = &gateway.driver.fleet;
    let named = fleet.named_replicas();
    for row in gateway.driver.report().replicas {
        let Some(replica) = named.iter().find(|r| r.ix == row.replica) else { continue };
        for held in row.holdings.iter().filter(|h| counts(h.state)) {
            let Some(facts) = fleet.version(held.version) else { continue };
            let labels = [replica.pool.as_str(), replica.name.as_str(), facts.model.as_str(), facts.version.as_str()];
            sink.sample(&labels, 1.0);
        }
    }
}

#[derive(Clone, Copy)]
enum Per {
    Loads,
    Queue,
}

fn per_pool(gateway: &Gateway, sink: &mut Sink<'_>, what: Per) {
    let fleet = &gateway.driver.fleet;
    let report = gateway.driver.report();
    for pool in fleet.pools() {
        let is_here = |ix| pool.replicas.iter().any(|r| r.ix == ix);
        let value = match what {
            Per::Loads => report.replicas.iter().filter(|r| is_here(r.replica)).map(|r| r.loads_in_flight).sum(),
            Per::Queue => {
                let here = report.queued.iter().filter(|q| q.candidates.iter().copied().any(is_here));
                u32::try_from(here.count()).unwrap_or(u32::MAX)
            }
        };
        sink.sample(&[pool.name.as_str()], f64::from(value));
    }
}
