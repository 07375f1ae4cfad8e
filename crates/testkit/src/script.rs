//! What a [`crate::Stub`] does in answer to one request.

use std::time::Duration;

/// One step of an answer.
#[derive(Debug, Clone)]
pub enum Step {
    /// Write these bytes.
    Send(Vec<u8>),
    /// Wait.
    Pause(Duration),
    /// Wait until the count is at least this.
    Until(u64, tokio::sync::watch::Receiver<u64>),
    /// End the connection in order.
    Close,
    /// End the connection with a reset.
    Reset,
    /// Keep the connection open and never write again.
    Hang,
}

/// The answer to one request: its steps in order. Without a last step that ends it, the connection is kept for the next request.
#[derive(Debug, Clone, Default)]
pub struct Script(Vec<Step>);

impl Script {
    /// An answer of exactly these bytes.
    #[must_use]
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self(vec![Step::Send(bytes.into())])
    }

    /// A correct JSON answer.
    #[must_use]
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::with_headers(status, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// A correct answer with these headers and this body, `content-length` added.
    #[must_use]
    pub fn with_headers(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let mut bytes = format!("HTTP/1.1 {status} Stub\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            bytes.push_str(&format!("{name}: {value}\r\n"));
        }
        bytes.push_str("\r\n");
        let mut bytes = bytes.into_bytes();
        bytes.extend_from_slice(body);
        Self::raw(bytes)
    }

    /// No answer at all, the connection stays open.
    #[must_use]
    pub fn never() -> Self {
        Self(vec![Step::Hang])
    }

    /// The connection ends instead of an answer.
    #[must_use]
    pub fn close() -> Self {
        Self(vec![Step::Close])
    }

    /// One more step at the end.
    #[must_use]
    pub fn then(mut self, step: Step) -> Self {
        self.0.push(step);
        self
    }

    /// More bytes at the end, in a write of their own: a trailing part of a body, or bytes that should not be there.
    #[must_use]
    pub fn then_send(self, bytes: impl Into<Vec<u8>>) -> Self {
        self.then(Step::Send(bytes.into()))
    }

    /// A wait before everything else.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.0.insert(0, Step::Pause(delay));
        self
    }

    /// Waits before everything else until the count has reached `least`: for tests of what happens side by side.
    #[must_use]
    pub fn once_at_least(mut self, least: u64, count: tokio::sync::watch::Receiver<u64>) -> Self {
        self.0.insert(0, Step::Until(least, count));
        self
    }

    /// Only the first `bytes` bytes of what would be sent, then an end of the connection: orderly, or by a reset.
    #[must_use]
    pub fn cut_at(self, bytes: usize, ending: Step) -> Self {
        let mut left = bytes;
        let mut steps = Vec::new();
        for step in self.0 {
            match step {
                Step::Send(mut part) => {
                    part.truncate(left);
                    left -= part.len();
                    steps.push(Step::Send(part));
                }
                other => steps.push(other),
            }
        }
        steps.push(ending);
        Self(steps)
    }
}

impl Script {
    pub(crate) fn into_steps(self) -> Vec<Step> {
        self.0
    }
}
