//! A fault and how it is printed.

use std::fmt;

/// One broken rule at one place. Ordered by place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    pub(crate) file: String,
    /// From 1.
    pub(crate) line: usize,
    pub(crate) rule: &'static str,
    pub(crate) what: String,
}

impl Fault {
    pub(crate) fn new(file: &str, line: usize, rule: &'static str, what: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, rule, what: what.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}
