//! Who asks, as far as the choice of a version is concerned: what of it is known beside tenant, model and submission.

pub use holdfast_assign::sticky::{Kept, Sticky, subject};
pub use holdfast_assign::{Facts, Field, KeyFrom};

use crate::Ask;

/// What is known of who asks, and what an administrator asks for.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a, F> {
    /// User, device, plan, scopes and headers. Tenant and model are the ask's, whatever is said here.
    pub facts: &'a F,
    /// The version that an override names, if there is one.
    pub wants: Option<&'a str>,
    /// Whether the caller has the administrator's scope.
    pub may_override: bool,
}

/// Somebody of whom nothing is known but the tenant.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl Facts for Nobody {
    fn key(&self, _: KeyFrom) -> Option<&str> {
        None
    }

    fn field(&self, _: &Field) -> Option<&str> {
        None
    }

    fn now_ms(&self) -> u64 {
        0
    }
}

impl Caller<'static, Nobody> {
    /// Somebody of whom nothing is known but the tenant.
    pub const NOBODY: Self = Self { facts: &Nobody, wants: None, may_override: false };
}

/// The facts with tenant and model as they are proved.
pub(crate) struct Seen<'a, F> {
    pub(crate) ask: &'a Ask<'a>,
    pub(crate) facts: &'a F,
}

impl<F: Facts> Facts for Seen<'_, F> {
    fn key(&self, from: KeyFrom) -> Option<&str> {
        match from {
            KeyFrom::Tenant => Some(self.ask.tenant),
            other => self.facts.key(other),
        }
    }

    fn field(&self, field: &Field) -> Option<&str> {
        match field {
            Field::Tenant => Some(self.ask.tenant),
            Field::Model => Some(self.ask.model),
            Field::User => self.facts.key(KeyFrom::User),
            Field::Device => self.facts.key(KeyFrom::Device),
            other => self.facts.field(other),
        }
    }

    fn now_ms(&self) -> u64 {
        self.facts.now_ms()
    }

    fn kept(&self, experiment: &str) -> Option<Kept<'_>> {
        self.facts.kept(experiment)
    }
}
