//! What a request asks for, as far as the decision is concerned.

/// The facts of one request. Borrowed: nothing is copied to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// The proved identity.
    pub tenant: &'a str,
    /// The model as the client names it.
    pub model: &'a str,
    /// The version that the client names, if it names one. An empty text is a fault, not an absence.
    pub version: Option<&'a str>,
    /// What tells this submission from others, the same through its retries: decides on which side of a split pin it falls.
    pub submission: &'a [u8],
}
