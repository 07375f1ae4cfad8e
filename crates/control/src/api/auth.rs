//! Who may do what: bearer tokens and certificates with roles; and, where none is asked for, what keeps web pages away from a loopback port.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, StatusCode};

use super::certificates::{Found, Names};
use super::problem::Problem;
use super::tokens::Tokens;

/// What a caller may do. Each may what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Look.
    Viewer,
    /// Change pins, and steer roll-outs.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role that this word stands for.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The author of what they change.
    pub name: Arc<str>,
    /// What they may do.
    pub role: Role,
}

impl Caller {
    /// Whoever reaches an admin port on loopback that asks for no token.
    #[must_use]
    pub fn loopback() -> Self {
        Self { name: "loopback".into(), role: Role::Admin }
    }

    /// Whether the caller has this role.
    pub(crate) fn needs(&self, role: Role) -> Result<(), Problem> {
        if self.role >= role {
            return Ok(());
        }
        let detail = format!("{} is {}; this needs the role {}", self.name, self.role.as_str(), role.as_str());
        Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail))
    }
}

/// The door of the admin port. It knows every caller before anything is looked at.
#[derive(Debug, Default)]
pub struct Door {
    tokens: Option<Tokens>,
}

impl Door {
    /// A door that asks for one of these tokens.
    #[must_use]
    pub const fn with(tokens: Tokens) -> Self {
        Self { tokens: Some(tokens) }
    }

    /// A door that asks for none. For a loopback address only.
    #[must_use]
    pub const fn open() -> Self {
        Self { tokens: None }
    }

    /// Who asks, by these fields, over a connection whose client has proved to have a certificate with these names.
    ///
    /// A token that is shown decides alone: whoever shows one wants to be its owner, and a wrong one is no better for the certificate beside it. Without tokens every program on the machine is let in, but no web page in a browser on it: neither one of another origin nor one whose
    /// host name leads here (DNS rebinding).
    ///
    /// # Errors
    /// 400, 401, 403.
    pub fn caller(&self, headers: &HeaderMap, names: Option<Names<'_>>) -> Result<Caller, Problem> {
        // Of two values another reader may take the other.
        if [AUTHORIZATION, HOST, ORIGIN].iter().any(|name| headers.get_all(name).iter().nth(1).is_some()) {
            let detail = "authorization, host and origin are there once at most";
            return Err(Problem::new(StatusCode::BAD_REQUEST, "bad_request", detail));
        }
        let Some(tokens) = &self.tokens else {
            return if is_of_a_page(headers) { Err(page()) } else { Ok(Caller::loopback()) };
        };
        let shown = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        if let (None, Some(names)) = (shown, names) {
            return match tokens.certified(names) {
                Found::One(caller) => Ok(caller),
                Found::Nobody => Err(uncertified("nobody is known by the names in the client's certificate")),
                Found::Several => Err(uncertified("the names in the client's certificate are those of two callers")),
            };
        }
        let token = shown.and_then(|value| {
            let (scheme, token) = value.split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
        });
        let known = token.and_then(|token| tokens.find(token));
        known.ok_or_else(|| Problem::unauthenticated(shown.is_some()))
    }
}

fn uncertified(detail: &'static str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
}

fn page() -> Problem {
    let detail = "without a token this port answers programs on this machine, and no web pages; address it by localhost or an IP address";
    Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
}

fn is_of_a_page(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    if !is_here(host) {
        return true;
    }
    // The port's own pages are of its own origin.
    headers.get(ORIGIN).is_some_and(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        origin.split_once("://").is_none_or(|(_, authority)| authority != host)
    })
}

/// A name that only this machine gives an address to.
fn is_here(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        of.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn without_tokens_programs_are_let_in_and_pages_are_not() {
        let door = Door::open();
        for good in [
            &[][..],
            &[("host", "127.0.0.1:7401")],
            &[("host", "localhost:7401"), ("origin", "http://localhost:7401")],
            &[("host", "[::1]:7401"), ("authorization", "Bearer whatever")],
        ] {
            assert_eq!(door.caller(&headers(good), None), Ok(Caller::loopback()), "{good:?}");
        }
        for bad in [
            &[("host", "evil.example:7401")][..],
            &[("host", "127.0.0.1.evil.example")],
            &[("host", "127.0.0.1:7401"), ("origin", "http://evil.example")],
            &[("host", "127.0.0.1:7401"), ("origin", "null")],
            &[("host", "127.0.0.1:7401"), ("origin", "http://127.0.0.1:80")],
        ] {
            assert_eq!(door.caller(&headers(bad), None).unwrap_err().status, 403, "{bad:?}");
        }
    }

    #[test]
    fn who_shows_two_of_one_thing_is_refused() {
        let mut fields = headers(&[("host", "localhost"), ("authorization", "Bearer whatever")]);
        assert_eq!(Door::open().caller(&fields, None), Ok(Caller::loopback()));
        for name in [HOST, AUTHORIZATION, ORIGIN] {
            let mut twice = fields.clone();
            twice.append(&name, "localhost".parse().unwrap());
            twice.append(&name, "localhost".parse().unwrap());
            assert_eq!(Door::open().caller(&twice, None).unwrap_err().status, 400, "{name}");
        }
        fields.append(AUTHORIZATION, "Bearer another".parse().unwrap());
        assert_eq!(Door::open().caller(&fields, None).unwrap_err().status, 400);
    }

    #[test]
    fn roles_are_in_order() {
        for (has, may) in [(Role::Viewer, 1), (Role::Operator, 2), (Role::Admin, 3)] {
            let caller = Caller { name: "ann".into(), role: has };
            assert_eq!(Role::ALL.iter().filter(|needed| caller.needs(**needed).is_ok()).count(), may);
            assert_eq!(Role::parse(has.as_str()), Some(has));
        }
    }
}
