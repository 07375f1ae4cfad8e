//! WebSockets at `/v1/stream`: one handshake, then messages, each of which is an inference by itself.
//!
//! | file | what |
//! |---|---|
//! | `handshake` | which requests become sockets: HTTP/1.1 `Upgrade`, and RFC 8441 over HTTP/2; who may open one more |
//! | `openings` | sockets and handshakes of users, and who is kept out for a while |
//! | `wire` | bytes of a socket to messages and back, in bounded buffers |
//! | `session` | the life of a socket: what it waits for, and how it ends |
//! | `native` | one message: identity, route, ladder, limits, and off to a replica |
//! | `through`, `upstream` | a socket that is passed through, and the model server's side of it |
//! | `side` | what both kinds of sockets share: whose they are, their limits, their steps |
//! | `peek` | a look into messages that are not ours |
//! | `message` | what a message says, and the frames that answer it |
//! | `life` | whether a client still lives |
//! | `overload` | what is kept of a socket that has met a limit |
//! | `counted` | what is counted |
//!
//! A message goes through the stages of a request (`stage`): it is an [`Exchange`](crate::exchange::Exchange), with its own resolution, receipt and record. All that is counted for it is the
//! exchange's; the exchange is owned by a task, and the task by the socket. So a socket that ends, however, gives everything back.
//!
//! What is idle is a TCP socket, a task and some hundred bytes: there is no buffer before something comes, and none is kept when it is used up.

mod counted;
mod handshake;
mod life;
mod message;
mod native;
mod openings;
mod overload;
mod peek;
mod session;
mod side;
mod through;
mod upstream;
mod wire;

pub use counted::StreamMetrics;
pub use handshake::{Home, Opening, open};
pub use openings::Openings;

use std::sync::Arc;

use holdfast_config::Stream;
use holdfast_telemetry::Registry;

/// The path of native sockets.
pub const PATH: &str = "/v1/stream";

/// Whether there are sockets at this path.
#[must_use]
pub fn is_at(config: Option<&Stream>, path: &str) -> bool {
    config.is_some_and(|config| path == PATH || config.routes.iter().any(|route| *route.path == *path))
}

/// What a gateway keeps for its sockets.
pub struct Streams {
    /// Sockets by user.
    pub openings: Arc<Openings>,
    /// Counters.
    pub metrics: StreamMetrics,
    /// So that nobody can choose a user whose hash is another's.
    pub salt: u64,
}

impl Streams {
    /// No sockets yet.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self {
            openings: Arc::default(),
            metrics: StreamMetrics::register(registry),
            salt: crate::random::Random::new().next(),
        }
    }

    /// How sockets stand, for the admin port.
    #[must_use]
    pub fn shown(&self, now: holdfast_types::Mono) -> serde_json::Value {
        let (users, kept_out) = self.openings.counts(now);
        serde_json::json!({ "sockets": self.metrics.sockets.get(), "users": users, "kept_out": kept_out })
    }
}
