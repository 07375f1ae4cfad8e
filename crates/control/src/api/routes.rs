//! Every path of the API with its methods, the role that each needs, and what it takes. The document is made from it.

use http::Method;

use holdfast_config::ResourceKind::{self, Experiment, Model, Pin, Plan, Pool, Replica, Tenant, Version};

use super::auth::Role;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Document,
    List(ResourceKind),
    Get(ResourceKind),
    Put(ResourceKind),
    Delete(ResourceKind),
    Apply,
    Revert,
    Revisions,
    Revision,
    Diff,
    Rollouts,
    Rollout,
    Events,
    Steer(Steer),
    Nodes,
    RevokeToken,
    RotateKeys,
}

/// What is wanted of a roll-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steer {
    Abort,
    Pause,
    Resume,
    Revert,
}

/// What body a request has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takes {
    /// None.
    Nothing,
    /// A JSON object.
    Object,
    /// A JSON object, or nothing.
    Maybe,
    /// A whole desired state, as YAML or JSON.
    State,
}

/// One method of one path.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) role: Role,
    pub(crate) op: Op,
    pub(crate) query: &'static [&'static str],
    pub(crate) takes: Takes,
    pub(crate) summary: &'static str,
}

const PAGED: &[&str] = &["limit", "after", "at", "space"];
const PINS: &[&str] = &["limit", "after", "at", "space", "tenant", "pending"];
const SPACE: &[&str] = &["space", "at"];
const DRY: &[&str] = &["dry_run"];
const REASONED: &[&str] = &["dry_run", "reason"];

const fn get(path: &'static str, op: Op, query: &'static [&'static str], summary: &'static str) -> Route {
    Route { method: Method::GET, path, role: Role::Viewer, op, query, takes: Takes::Nothing, summary }
}

const fn put(path: &'static str, kind: ResourceKind, role: Role, summary: &'static str) -> Route {
    Route { method: Method::PUT, path, role, op: Op::Put(kind), query: DRY, takes: Takes::Object, summary }
}

const fn delete(path: &'static str, kind: ResourceKind, role: Role, summary: &'static str) -> Route {
    Route { method: Method::DELETE, path, role, op: Op::Delete(kind), query: REASONED, takes: Takes::Nothing, summary }
}

const fn post(path: &'static str, op: Op, role: Role, takes: Takes, summary: &'static str) -> Route {
    let query: &[&str] = match op {
        Op::Apply => &["dry_run", "reason", "options"],
        Op::Revert => DRY,
        _ => &[],
    };
    Route { method: Method::POST, path, role, op, query, takes, summary }
}

const fn steer(path: &'static str, what: Steer, summary: &'static str) -> Route {
    post(path, Op::Steer(what), Role::Operator, Takes::Maybe, summary)
}

/// All of them.
pub(crate) static ROUTES: [Route; 48] = [
    get("/openapi.json", Op::Document, &[], "This document"),
    get("/v1/pools", Op::List(Pool), PAGED, "List pools"),
    get("/v1/pools/{pool}", Op::Get(Pool), SPACE, "Show a pool"),
    put("/v1/pools/{pool}", Pool, Role::Admin, "Make or change a pool"),
    delete("/v1/pools/{pool}", Pool, Role::Admin, "Take a pool away, with its replicas"),
    get("/v1/replicas/{pool}/{replica}", Op::Get(Replica), SPACE, "Show a replica as it is declared"),
    put("/v1/replicas/{pool}/{replica}", Replica, Role::Admin, "Make or change a replica"),
    delete("/v1/replicas/{pool}/{replica}", Replica, Role::Admin, "Take a replica away"),
    get("/v1/models", Op::List(Model), PAGED, "List models"),
    get("/v1/models/{model}", Op::Get(Model), SPACE, "Show a model"),
    put("/v1/models/{model}", Model, Role::Admin, "Make or change a model"),
    delete("/v1/models/{model}", Model, Role::Admin, "Take a model away, with its versions"),
    get("/v1/versions", Op::List(Version), PAGED, "List versions"),
    get("/v1/versions/{model}/{version}", Op::Get(Version), SPACE, "Show a version"),
    put("/v1/versions/{model}/{version}", Version, Role::Admin, "Make or change a version"),
    delete("/v1/versions/{model}/{version}", Version, Role::Admin, "Take a version away"),
    get("/v1/plans", Op::List(Plan), PAGED, "List plans"),
    get("/v1/plans/{plan}", Op::Get(Plan), SPACE, "Show a plan"),
    put("/v1/plans/{plan}", Plan, Role::Admin, "Make or change a plan"),
    delete("/v1/plans/{plan}", Plan, Role::Admin, "Take a plan away that no tenant names"),
    get("/v1/tenants", Op::List(Tenant), PAGED, "List tenants"),
    get("/v1/tenants/{tenant}", Op::Get(Tenant), SPACE, "Show a tenant"),
    put("/v1/tenants/{tenant}", Tenant, Role::Admin, "Make or change a tenant"),
    delete("/v1/tenants/{tenant}", Tenant, Role::Admin, "Take a tenant away, with its pins"),
    get("/v1/experiments", Op::List(Experiment), PAGED, "List experiments"),
    get("/v1/experiments/{experiment}", Op::Get(Experiment), SPACE, "Show an experiment"),
    put("/v1/experiments/{experiment}", Experiment, Role::Operator, "Make or change an experiment"),
    delete("/v1/experiments/{experiment}", Experiment, Role::Operator, "Take an experiment away, with its history"),
    get("/v1/pins", Op::List(Pin), PINS, "List pins"),
    get("/v1/pins/{tenant}/{model}", Op::Get(Pin), SPACE, "Show a pin"),
    put("/v1/pins/{tenant}/{model}", Pin, Role::Operator, "Make or change a pin"),
    delete("/v1/pins/{tenant}/{model}", Pin, Role::Operator, "Take a pin away"),
    post("/v1/apply", Op::Apply, Role::Admin, Takes::State, "Make a whole state the desired one"),
    post("/v1/revert", Op::Revert, Role::Operator, Takes::Maybe, "Go back, as a new revision"),
    get("/v1/revisions", Op::Revisions, &["limit", "after"], "List revisions, newest first"),
    get("/v1/revisions/{revision}", Op::Revision, &["limit", "after"], "Show a revision with its edits"),
    get("/v1/diff", Op::Diff, &["from", "to", "space", "limit", "after"], "What differs between two revisions"),
    get("/v1/rollouts", Op::Rollouts, &["limit", "after", "running", "pin"], "List roll-outs, newest first"),
    get("/v1/rollouts/{rollout}", Op::Rollout, &[], "Show a roll-out"),
    get("/v1/rollouts/{rollout}/events", Op::Events, &[], "Follow a roll-out, as server-sent events"),
    steer(
        "/v1/rollouts/{rollout}/abort",
        Steer::Abort,
        "Abort a roll-out of which nothing has flipped; its pins are desired where they were",
    ),
    steer("/v1/rollouts/{rollout}/pause", Steer::Pause, "Pause a roll-out"),
    steer("/v1/rollouts/{rollout}/resume", Steer::Resume, "Resume a paused roll-out"),
    steer("/v1/rollouts/{rollout}/revert", Steer::Revert, "Send a roll-out back; its pins are desired where they were"),
    get("/v1/nodes", Op::Nodes, &[], "List gateways"),
    post(
        "/v1/tokens/revoke",
        Op::RevokeToken,
        Role::Operator,
        Takes::Object,
        "Revoke a token, or all tokens of an API key",
    ),
    post("/v1/tokens/rotate", Op::RotateKeys, Role::Admin, Takes::Maybe, "Have another key sign tokens"),
    get("/v1/replicas/{pool}", Op::List(Replica), PAGED, "List the declared replicas of a pool"),
];

/// The routes of a path, each method once, and the names in it.
pub(crate) fn find(segments: &[String]) -> (Vec<&'static Route>, Vec<String>) {
    let mut names = Vec::new();
    let found: Vec<&Route> = ROUTES.iter().filter(|route| matches(route.path, segments)).collect();
    if let Some(route) = found.first() {
        let pattern = route.path.split('/').skip(1);
        names.extend(pattern.zip(segments).filter(|(p, _)| p.starts_with('{')).map(|(_, s)| s.clone()));
    }
    (found, names)
}

fn matches(path: &str, segments: &[String]) -> bool {
    let mut pattern = path.split('/').skip(1);
    let all = segments.iter().all(|s| pattern.next().is_some_and(|p| p == s || (p.starts_with('{') && !s.is_empty())));
    all && pattern.next().is_none()
}

/// The methods of some routes, as `Allow` has them.
pub(crate) fn allowed(routes: &[&Route]) -> String {
    let mut all: Vec<&str> = routes.iter().map(|r| r.method.as_str()).collect();
    if all.contains(&"GET") {
        all.push("HEAD");
    }
    all.sort_unstable();
    all.join(", ")
}
