//! Who an experiment is for: conditions over what is known of a request, compiled to comparisons of texts. No pattern whose cost depends on the text.

use std::collections::BTreeSet;

/// What a condition looks at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// The tenant.
    Tenant,
    /// The model.
    Model,
    /// The plan.
    Plan,
    /// The proved user.
    User,
    /// The proved device.
    Device,
    /// A scope of the token, which is there or not.
    Scope(String),
    /// A header, in lower case.
    Header(String),
    /// A claim that the configuration names.
    Claim(String),
}

/// A comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is one of these.
    In(BTreeSet<String>),
    /// It is none of these, or not there.
    NotIn(BTreeSet<String>),
    /// It begins with this.
    Begins(String),
    /// It is there.
    Present,
    /// It is not there.
    Absent,
}

impl Condition {
    fn holds(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Self::In(all), Some(value)) => all.contains(value),
            (Self::NotIn(all), Some(value)) => !all.contains(value),
            (Self::Begins(start), Some(value)) => value.starts_with(start.as_str()),
            (Self::Present, value) => value.is_some(),
            (Self::NotIn(_) | Self::Absent, None) => true,
            (Self::In(_) | Self::Begins(_), None) | (Self::Absent, Some(_)) => false,
        }
    }
}

/// All of these hold. An empty one is everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target(pub Vec<(Field, Condition)>);

impl Target {
    /// Whether all that it says of the tenant and the model holds of these: the rest can be told of a request alone.
    #[must_use]
    pub fn may_hold(&self, tenant: &str, model: &str) -> bool {
        self.0.iter().all(|(field, condition)| match field {
            Field::Tenant => condition.holds(Some(tenant)),
            Field::Model => condition.holds(Some(model)),
            _ => true,
        })
    }

    /// Whether they hold. `value` tells what is known.
    pub fn holds<'v>(&self, value: impl Fn(&Field) -> Option<&'v str>) -> bool {
        self.0.iter().all(|(field, condition)| condition.holds(value(field)))
    }
}
