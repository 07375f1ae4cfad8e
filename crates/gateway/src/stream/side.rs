//! What sockets of both kinds have beside their bytes: whose they are, under which limits, and how steps under overload are taken and counted.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use holdfast_codec::ws::code;
use holdfast_config::LimitedEndpoint;
use holdfast_net::ConnState;
use holdfast_quota::bucket::Wait;
use holdfast_quota::ladder::Verdict;
use holdfast_quota::scopes::Scope;
use holdfast_types::{Failure, FailureKind, Mono};

use super::handshake::{Credentials, Home};
use super::openings::Opened;
use super::overload::Overload;
use crate::identity::Refused;
use crate::limits::{OnConnection, Refusal, RouteLimits, Step};
use crate::server::Gateway;
use crate::settings::Settings;
use crate::stage::identify;

/// What a socket has beside its bytes.
pub struct Side {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// Where it lives.
    pub home: Arc<Home>,
    /// The connection that it is, or is a stream of.
    pub on: Arc<ConnState>,
    /// The client's address.
    pub client: Option<Arc<str>>,
    /// Whose it is.
    pub credentials: Credentials,
    /// Its place among the sockets of its user.
    pub opened: Opened,
}

/// What follows from a refused message.
pub struct Judged {
    /// The client is told to wait so long.
    pub warn: Option<Duration>,
    /// The socket is closed.
    pub closes: bool,
}

impl Side {
    /// Who the socket's user is in these limits.
    pub fn user(&self, limits: &RouteLimits, settings: &Settings) -> Option<u128> {
        let credentials = &self.credentials;
        let user = identify::user(&credentials.fields, settings, credentials.subject.as_deref()).ok().flatten();
        user.and_then(|user| limits.who(user))
    }

    /// The place of the plan that the socket's user has chosen.
    pub fn plan(&self, limits: &RouteLimits) -> Option<u16> {
        self.credentials.subject.as_ref().and_then(|subject| limits.chosen(subject.chosen()?))
    }

    /// The first scope of which less than this share is left, in percent of its burst; with 0, nothing at all.
    pub fn short(&self, now: Mono, limits: &RouteLimits, settings: &Settings, below: u32) -> Option<Scope> {
        let is_short = |left: u64, burst: u64| match below {
            0 => left == 0,
            below => u128::from(left) * 100 < u128::from(burst) * u128::from(below),
        };
        let guard = self.on.begin();
        let on = guard.kept::<OnConnection>();
        limits.short(now, (LimitedEndpoint::Infer, self.plan(limits)), self.user(limits, settings), on, is_short)
    }

    /// Whether the socket may stay.
    ///
    /// # Errors
    /// The close code and the reason.
    pub fn prove_again(&mut self, now: Mono) -> Result<(), (u16, Cow<'static, str>)> {
        let settings = self.gateway.tables.load().settings.clone();
        if settings.stream.is_none() {
            return Err((code::GOING_AWAY, "there are no WebSockets here any more".into()));
        }
        self.prove(now, &settings).map_err(|failure| {
            let is_over = failure.kind == FailureKind::Unauthenticated;
            (if is_over { code::POLICY } else { code::TRY_LATER }, failure.detail)
        })
    }

    /// Whose socket it is, looked up again.
    ///
    /// # Errors
    /// `unauthenticated`, `identity_stale`.
    pub fn prove(&mut self, now: Mono, settings: &Settings) -> Result<(), Failure> {
        match identify::again(&self.credentials.fields, settings, self.credentials.peer.as_deref(), now) {
            Ok(subject) => {
                self.credentials.subject = subject;
                Ok(())
            }
            Err(Refused::Failed(failure)) => Err(failure),
            Err(Refused::Waits(_)) => {
                Err(Failure::new(FailureKind::IdentityStale, "the keys of the token's issuer are being fetched"))
            }
        }
    }

    /// A message was refused by a limit of this scope: which step that is, counted.
    pub fn refused<T>(
        &self,
        now: Mono,
        overload: &mut Overload<T>,
        (scope, wait): (Scope, Wait),
        limits: Option<&RouteLimits>,
    ) -> Judged {
        self.count("limited");
        let counts = matches!(scope, Scope::Connection | Scope::User);
        let verdict = overload.ladder.refused(now, wait, counts);
        let warn = match verdict {
            Verdict::Refused { wait: Wait::For(wait), warn: true } => Some(wait),
            Verdict::Refused { warn: true, .. } => Some(Duration::from_secs(60)),
            _ => None,
        };
        let closes = verdict == Verdict::Closed;
        if let Some(limits) = limits {
            if warn.is_some() {
                self.step(limits, scope, Step::Warned);
            }
            self.step(limits, scope, if closes { Step::Closed } else { Step::Refused });
        }
        Judged { warn: warn.filter(|_| limits.is_some()), closes }
    }

    /// Counts the end of a message.
    pub fn count(&self, outcome: &'static str) {
        self.gateway.streams.metrics.messages.get([outcome]).inc();
    }

    /// Counts a step down the ladder.
    pub fn step(&self, limits: &RouteLimits, scope: Scope, step: Step) {
        limits.note(scope, step);
        self.gateway.streams.metrics.ladder.get([scope.as_str(), step.as_str()]).inc();
    }

    /// Counts what a limit refuses, or would.
    pub fn limited(&self, refusal: &Refusal, mode: &'static str) {
        self.gateway.metrics.limited.get([refusal.scope.as_str(), refusal.what.as_str(), mode]).inc();
    }
}
