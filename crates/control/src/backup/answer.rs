//! A backup as an answer: `POST /v1/backup`, for callers that may do everything.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use tokio::sync::mpsc;

use super::{BackupError, Backups, Outgoing};

/// Chunks that are read ahead of the client.
const AHEAD: usize = 2;
/// The revision that a backup is of.
const REVISION: HeaderName = HeaderName::from_static("x-holdfast-revision");

impl Backups {
    /// Takes a backup and answers with it. The caller has checked who asks. An answer that ends before its length is no backup.
    pub async fn answer(self: Arc<Self>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        match self.take().await {
            Ok(taken) => given(taken),
            Err(error) => refused(&error),
        }
    }
}

fn given(mut taken: Outgoing) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let (length, revision) = (taken.length, taken.summary.revision.0);
    let (sender, chunks) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        loop {
            match taken.chunk().await {
                Ok(chunk) if chunk.is_empty() => return,
                Ok(chunk) => {
                    let sent = sender.send(Bytes::from(chunk)).await;
                    if sent.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a backup was cut on its way: its file cannot be read");
                    return;
                }
            }
        }
    });
    let mut answer = Response::new(Chunks { chunks, left: length }.boxed_unsync());
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    fields.insert(CONTENT_LENGTH, length.into());
    fields.insert(REVISION, revision.into());
    answer
}

/// Problem details (RFC 9457).
fn refused(error: &BackupError) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
    let status = match error {
        BackupError::Busy => StatusCode::TOO_MANY_REQUESTS,
        BackupError::Disk(_) | BackupError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    tracing::warn!(%error, "no backup was taken");
    let title = status.canonical_reason().unwrap_or("error");
    let body = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": error.to_string(),
    });
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    answer
}

struct Chunks {
    chunks: mpsc::Receiver<Bytes>,
    left: u64,
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.chunks.poll_recv(context).map(|chunk| {
            let chunk = chunk?;
            self.left = self.left.saturating_sub(chunk.len() as u64);
            Some(Ok(Frame::data(chunk)))
        })
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
