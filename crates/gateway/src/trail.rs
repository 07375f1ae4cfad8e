//! What the audit log is to be told of a request: digests of its body and of the answer's, taken as they go by.
//!
//! A trail is laid only for an inference, and only where the log is on. It leads to a record only if a model server's answer was passed on: what the
//! gateway refuses by itself has no verdict.

use holdfast_telemetry::{AuditEntry, Digested, Hash, Outcome, SharedDigest};
use holdfast_types::Mono;

use crate::exchange::{RequestId, Resolution};
use crate::fleet::Replica;

/// The digest of a request's body.
#[derive(Debug)]
pub enum Input {
    /// It had been read.
    Whole(Hash),
    /// It streams through: of what has come so far.
    Stream(SharedDigest),
}

/// See the module.
#[derive(Debug)]
pub struct Trail {
    input: Input,
    verdict: Digested,
    answered: bool,
    whole: bool,
}

impl Trail {
    /// Begins one, over the request's body.
    pub fn new(input: Input) -> Self {
        Self { input, verdict: Digested::default(), answered: false, whole: false }
    }

    /// A model server's answer is being passed on.
    pub fn answered(&mut self) {
        self.answered = true;
    }

    /// These bytes of the answer are given out. `last`: nothing comes after them.
    pub fn gives(&mut self, data: &[u8], last: bool) {
        self.verdict.update(data, last);
        self.whole |= last;
    }

    /// All of the answer has been given out.
    pub fn gave_all(&mut self) {
        self.whole = true;
    }

    /// The record, if there was an answer.
    pub fn entry(
        self,
        ended: Mono,
        id: &RequestId,
        resolution: &Resolution,
        replica: Option<&Replica>,
        outcome: &Outcome,
    ) -> Option<AuditEntry> {
        let route = &resolution.route;
        self.answered.then(|| AuditEntry {
            ended,
            request_id: id.text.clone(),
            tenant: route.tenant.clone(),
            model: route.model.clone(),
            version: route.version.clone(),
            revision: resolution.under,
            reason: resolution.reason.as_str(),
            status: outcome.status,
            replica: replica.map(|r| r.name.clone()),
            bytes_in: outcome.bytes_in,
            bytes_out: outcome.bytes_out,
            input: match self.input {
                Input::Whole(hash) => hash,
                Input::Stream(digest) => digest.lock().finish(),
            },
            verdict: self.verdict.finish(),
            whole: self.whole && outcome.error.is_none(),
        })
    }
}
