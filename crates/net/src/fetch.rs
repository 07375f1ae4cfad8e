//! Small requests off the request path: probes, loads, indexes. One kept connection, a deadline for the whole, a bound on the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};

use crate::bound::Bound;
use crate::client::{Checkout, Connector, ReplicaPool};
use crate::tasks::Tasks;

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The status.
    pub status: StatusCode,
    /// The fields.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// Why there is no whole answer.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection.
    #[error(transparent)]
    Checkout(#[from] Checkout),
    /// The exchange broke.
    #[error("{0}")]
    Exchange(#[from] hyper::Error),
    /// It took too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The answer is larger than the bound.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    /// The request is malformed.
    #[error("the request is malformed: {0}")]
    Request(#[from] http::Error),
}

/// A client of one server. Cheap to clone.
#[derive(Clone)]
pub struct Fetch {
    pool: Arc<ReplicaPool<Full<Bytes>>>,
    authority: Arc<str>,
    fields: HeaderMap,
    idle: Duration,
    keeps: Arc<AtomicBool>,
}

/// The largest answer that is read.
const MOST: usize = 16 << 20;
/// Connections at a time.
const CONNECTIONS: u32 = 64;
/// Connections of ours are few; servers close theirs after a minute or so.
const IDLE: Duration = Duration::from_secs(20);
/// How long a connection may take to be opened, where the exchange has no deadline.
const CONNECT: Duration = Duration::from_secs(10);

impl Fetch {
    /// A client that connects through `connector` and names `authority` in `host`.
    #[must_use]
    pub fn new(connector: Arc<Connector>, authority: &str, tasks: Tasks) -> Self {
        Self {
            pool: ReplicaPool::new(connector, &Bound::new(CONNECTIONS), tasks),
            authority: authority.into(),
            fields: HeaderMap::new(),
            idle: IDLE,
            keeps: Arc::new(AtomicBool::new(true)),
        }
    }

    /// The same, with connections that are kept until the server closes them.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.idle = Duration::MAX;
        self
    }

    /// The same, with this field in every request.
    #[must_use]
    pub fn with_field(mut self, name: header::HeaderName, value: http::HeaderValue) -> Self {
        self.fields.insert(name, value);
        self
    }

    /// How many connections have been opened so far: a new one where one was kept means that the server may have been started anew.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.pool.opened()
    }

    /// Waits until the server closes a kept connection without having said so in its last answer: it may have ended.
    ///
    /// Cancel safe.
    pub async fn lost(&self) {
        self.pool.lost().await;
    }

    /// Whether the server keeps connections: its last answer did not announce a close.
    #[must_use]
    pub fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// One exchange that takes as long as the server takes. It ends when the server answers, or when the connection breaks; a server that is gone
    /// without a word breaks it within two minutes, by TCP's keep-alive.
    ///
    /// # Errors
    /// [`FetchError`].
    ///
    /// # Cancel safety
    /// Cancel safe: the connection is closed.
    pub async fn fetch_at_length(&self, method: Method, path: &str, body: Bytes) -> Result<Fetched, FetchError> {
        self.exchange(method, path, body, CONNECT).await
    }

    /// One exchange. A kept connection that turns out to be dead is replaced once, if nothing of the request can have been read.
    ///
    /// # Errors
    /// [`FetchError`].
    ///
    /// # Cancel safety
    /// Cancel safe: the connection is closed.
    pub async fn fetch(&self, method: Method, path: &str, body: Bytes, most: Duration) -> Result<Fetched, FetchError> {
        let exchange = self.exchange(method, path, body, most);
        tokio::time::timeout(most, exchange).await.unwrap_or(Err(FetchError::Timeout(most)))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        connect: Duration,
    ) -> Result<Fetched, FetchError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &*self.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        for (name, value) in &self.fields {
            request.headers_mut().insert(name, value.clone());
        }
        loop {
            let mut conn = self.pool.checkout(self.idle, connect).await?;
            let response = match conn.send(request).await {
                Ok(response) => response,
                Err(error) => match error.unsent.filter(|_| conn.is_reused()) {
                    Some(unsent) => {
                        request = *unsent;
                        continue;
                    }
                    None => return Err(error.cause.into()),
                },
            };
            let (head, mut incoming) = response.into_parts();
            let mut whole = BytesMut::new();
            while let Some(frame) = incoming.frame().await {
                let Ok(data) = frame?.into_data() else { continue };
                if whole.len() + data.len() > MOST {
                    return Err(FetchError::TooLarge(MOST));
                }
                whole.extend_from_slice(&data);
            }
            let keeps = !announces_close(&head);
            self.keeps.store(keeps, Ordering::Relaxed);
            if keeps {
                conn.give_back();
            }
            return Ok(Fetched { status: head.status, headers: head.headers, body: whole.freeze() });
        }
    }
}

/// RFC 9112, section 9.3: whether the connection ends with this answer.
fn announces_close(head: &http::response::Parts) -> bool {
    let options = head.headers.get_all(header::CONNECTION).iter().filter_map(|v| v.to_str().ok());
    let mut options = options.flat_map(|v| v.split(',')).map(str::trim);
    if head.version == http::Version::HTTP_11 {
        options.any(|option| option.eq_ignore_ascii_case("close"))
    } else {
        !options.any(|option| option.eq_ignore_ascii_case("keep-alive"))
    }
}
