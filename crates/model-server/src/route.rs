//! From method and path to what is asked for.

use http::Method;

/// A part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    Server,
    Live,
    Ready,
    Model(Target<'a>),
    ModelReady(Target<'a>),
    Infer(Target<'a>),
    Index,
    Load(&'a str),
    Unload(&'a str),
    Stats,
    ShowFaults,
    SetFaults,
}

/// A model and, if the path has it, a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    pub(crate) name: &'a str,
    pub(crate) version: Option<&'a str>,
}

/// Why a path leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoute {
    /// No such path.
    NotFound,
    /// The path is there for another method.
    Method,
}

/// Finds the route. There is no load or unload of a single version of a name, as in the servers that this one stands for.
pub(crate) fn route<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, NoRoute> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (wanted, route) = match parts.as_slice() {
        ["v2"] | ["v2", ""] => (Method::GET, Route::Server),
        ["v2", "health", "live"] => (Method::GET, Route::Live),
        ["v2", "health", "ready"] => (Method::GET, Route::Ready),
        ["v2", "repository", "index"] => (Method::POST, Route::Index),
        ["v2", "repository", "models", name, "load"] => (Method::POST, Route::Load(name)),
        ["v2", "repository", "models", name, "unload"] => (Method::POST, Route::Unload(name)),
        ["v2", "models", name, "versions", version, rest @ ..] => {
            model(Target { name, version: Some(version) }, rest).ok_or(NoRoute::NotFound)?
        }
        ["v2", "models", name, rest @ ..] => model(Target { name, version: None }, rest).ok_or(NoRoute::NotFound)?,
        ["control", "stats"] => (Method::GET, Route::Stats),
        ["control", "faults"] if method == Method::POST => (Method::POST, Route::SetFaults),
        ["control", "faults"] => (Method::GET, Route::ShowFaults),
        _ => return Err(NoRoute::NotFound),
    };
    if *method == wanted { Ok(route) } else { Err(NoRoute::Method) }
}

fn model<'a>(target: Target<'a>, rest: &[&str]) -> Option<(Method, Route<'a>)> {
    match rest {
        [] => Some((Method::GET, Route::Model(target))),
        ["ready"] => Some((Method::GET, Route::ModelReady(target))),
        ["infer"] => Some((Method::POST, Route::Infer(target))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_where_the_protocol_says() {
        let one = Target { name: "screen", version: None };
        let two = Target { name: "screen", version: Some("2") };
        for (method, path, expected) in [
            (Method::GET, "/v2", Ok(Route::Server)),
            (Method::GET, "/v2/models/screen", Ok(Route::Model(one))),
            (Method::GET, "/v2/models/screen/versions/2", Ok(Route::Model(two))),
            (Method::GET, "/v2/models/screen/versions/2/ready", Ok(Route::ModelReady(two))),
            (Method::POST, "/v2/models/screen/infer", Ok(Route::Infer(one))),
            (Method::POST, "/v2/models/screen/versions/2/infer", Ok(Route::Infer(two))),
            (Method::GET, "/v2/models/screen/infer", Err(NoRoute::Method)),
            (Method::POST, "/v2/repository/index", Ok(Route::Index)),
            (Method::POST, "/v2/repository/models/screen/load", Ok(Route::Load("screen"))),
            (Method::POST, "/v2/repository/models/screen/versions/2/load", Err(NoRoute::NotFound)),
            (Method::GET, "/v2/models/screen/versions", Err(NoRoute::NotFound)),
            (Method::POST, "/control/faults", Ok(Route::SetFaults)),
            (Method::DELETE, "/control/faults", Err(NoRoute::Method)),
            (Method::GET, "/", Err(NoRoute::NotFound)),
        ] {
            assert_eq!(route(&method, path), expected, "{method} {path}");
        }
    }
}
