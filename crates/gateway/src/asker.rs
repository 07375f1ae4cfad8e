//! Who asks, as experiments and rules see it: what a token proves, or a trusted header says, and the request's own headers.

use std::cell::OnceCell;

use http::HeaderMap;

use holdfast_decide::{Facts, Field, Kept, KeyFrom};
use holdfast_identity::Subject;
use holdfast_submission::sticky::Keep;
use holdfast_telemetry::Clock;

use crate::settings::Settings;
use crate::stage::identify::Who;
use crate::sticky;
use crate::submissions::Submissions;

/// See the module. Nothing is looked up before it is asked for.
pub struct Asker<'r> {
    /// Whose request it is.
    pub who: &'r Who<'r>,
    /// Its headers.
    pub fields: &'r HeaderMap,
    /// Which header is trusted to name the user.
    pub settings: &'r Settings,
    /// Checks what it has kept of earlier arms. None: nothing can be.
    pub submissions: Option<&'r Submissions>,
    kept: OnceCell<Vec<Keep>>,
}

impl<'r> Asker<'r> {
    /// Whoever a request is from.
    pub const fn new(
        who: &'r Who<'r>,
        fields: &'r HeaderMap,
        settings: &'r Settings,
        submissions: Option<&'r Submissions>,
    ) -> Self {
        Self { who, fields, settings, submissions, kept: OnceCell::new() }
    }

    /// What it has kept of its arm in an experiment.
    pub fn keep(&self, experiment: &str) -> Option<&Keep> {
        let submissions = self.submissions?;
        let all = self.kept.get_or_init(|| sticky::read(submissions, self.fields, self.who.tenant()));
        all.iter().find(|keep| keep.experiment.as_str() == experiment)
    }

    fn subject(&self) -> Option<&Subject> {
        match self.who {
            Who::Named(_) => None,
            Who::Proved(subject) => Some(subject),
        }
    }

    /// Whether it may name any version.
    pub fn may_override(&self) -> bool {
        let scope = self.settings.override_scope.as_deref();
        scope.zip(self.subject()).is_some_and(|(scope, subject)| subject.may(scope))
    }

    /// A header that is there once. Of one that is there more than once it is not known which is meant.
    fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.get_all(name).iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    }
}

impl Facts for Asker<'_> {
    fn key(&self, from: KeyFrom) -> Option<&str> {
        match (from, self.subject()) {
            (KeyFrom::User, Some(subject)) => subject.user.as_deref(),
            (KeyFrom::User, None) => self.header(self.settings.trusted_user_header.as_ref()?.as_str()),
            (KeyFrom::Device, subject) => subject?.device.as_deref(),
            (KeyFrom::Tenant, _) => Some(self.who.tenant()),
        }
    }

    fn field(&self, field: &Field) -> Option<&str> {
        match field {
            Field::Plan => self.subject()?.plan.as_deref(),
            Field::Scope(name) => self.subject()?.may(name).then_some(""),
            Field::Header(name) => self.header(name),
            Field::Claim(name) => self.subject()?.claim(name),
            Field::Tenant | Field::Model | Field::User | Field::Device => None,
        }
    }

    fn now_ms(&self) -> u64 {
        Clock::wall_millis()
    }

    fn kept(&self, experiment: &str) -> Option<Kept<'_>> {
        let keep = self.keep(experiment)?;
        Some(Kept { from: KeyFrom::parse(&keep.attribute)?, key: &keep.key, owner: keep.owner })
    }
}

/// Somebody as whoever asks for an explanation describes him.
#[derive(Debug, Default)]
pub struct Described {
    /// The user.
    pub user: Option<String>,
    /// The device.
    pub device: Option<String>,
    /// The plan of the token.
    pub plan: Option<String>,
    /// The scopes of the token.
    pub scopes: Vec<String>,
    /// Claims for targets, by their names.
    pub claims: Vec<(String, String)>,
    /// Headers, by their names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Facts for Described {
    fn key(&self, from: KeyFrom) -> Option<&str> {
        match from {
            KeyFrom::User => self.user.as_deref(),
            KeyFrom::Device => self.device.as_deref(),
            KeyFrom::Tenant => None,
        }
    }

    fn field(&self, field: &Field) -> Option<&str> {
        match field {
            Field::Plan => self.plan.as_deref(),
            Field::Scope(name) => self.scopes.contains(name).then_some(""),
            Field::Header(name) => self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str()),
            Field::Claim(name) => self.claims.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str()),
            Field::Tenant | Field::Model | Field::User | Field::Device => None,
        }
    }

    fn now_ms(&self) -> u64 {
        Clock::wall_millis()
    }
}
