//! What a planner does not take: the field, the value, the reason.

use std::fmt;

use crate::command::Failure;

/// Why nothing was planned.
#[derive(Debug)]
pub struct Refusal {
    /// As it is given on the command line.
    pub field: String,
    /// What was given.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
    /// It is not the asker's fault; in other words than these.
    pub failure: Option<Failure>,
}

impl Refusal {
    /// A refusal.
    pub fn new(field: &str, value: impl fmt::Display, reason: impl Into<String>) -> Self {
        Self { field: field.to_owned(), value: value.to_string(), reason: reason.into(), failure: None }
    }

    /// Something else failed.
    pub fn failed(failure: Failure) -> Self {
        Self { failure: Some(failure), ..Self::new("", "", "") }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.field, self.value, self.reason)
    }
}

/// A chance or a share.
pub fn share(field: &str, value: f64) -> Result<f64, Refusal> {
    // Written so that NaN is refused.
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(Refusal::new(field, value, "is not within 0 and 1")) }
}

/// The largest number that a planner counts with; above it floating point begins to lose units.
const MOST: f64 = 1e15;

/// A rate, a time: finite and not negative.
pub fn amount(field: &str, value: f64) -> Result<f64, Refusal> {
    let fits = (0.0..=MOST).contains(&value);
    if fits { Ok(value) } else { Err(Refusal::new(field, value, "is not a number from 0 to 1e15")) }
}

/// One that is more than nothing.
pub fn positive(field: &str, value: f64) -> Result<f64, Refusal> {
    if amount(field, value)? > 0.0 { Ok(value) } else { Err(Refusal::new(field, value, "must be more than 0")) }
}

/// A number of things, from 1 on.
pub fn count(field: &str, value: u32, most: u32) -> Result<u32, Refusal> {
    let fits = (1..=most).contains(&value);
    if fits { Ok(value) } else { Err(Refusal::new(field, value, format!("is not within 1 and {most}"))) }
}
