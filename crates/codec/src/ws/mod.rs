//! WebSocket (RFC 6455): frames to messages and back, and the word that answers a handshake.
//!
//! | file | what |
//! |---|---|
//! | `frame` | the head of one frame: read byte by byte, written for a length |
//! | `reader` | bytes of a peer to messages, within bounds |
//! | `mask` | the mask over what clients send |
//! | `accept` | `Sec-WebSocket-Accept` |
//!
//! A reader keeps what has come of one message and nothing else: a peer that announces a message of any length makes nobody take memory for it. What is
//! refused has the close code that the peer is told. There are no extensions, so reserved bits are faults.

mod accept;
mod frame;
mod mask;
mod reader;

pub use accept::accept_key;
pub use frame::{CONTROL_MOST, Opcode, close_payload, write_frame};
pub use mask::{Key, apply};
pub use reader::{Bounds, Broken, Control, Event, Kind, Reader, Role};

/// Close codes (RFC 6455, 7.4.1 and the registry of IANA).
pub mod code {
    /// The purpose is fulfilled.
    pub const NORMAL: u16 = 1000;
    /// The server goes away.
    pub const GOING_AWAY: u16 = 1001;
    /// A rule of the protocol was broken.
    pub const PROTOCOL: u16 = 1002;
    /// A kind of data that is not taken here.
    pub const UNSUPPORTED: u16 = 1003;
    /// Text that is no UTF-8.
    pub const INVALID: u16 = 1007;
    /// A policy was broken.
    pub const POLICY: u16 = 1008;
    /// A message over its bound.
    pub const TOO_BIG: u16 = 1009;
    /// The server failed.
    pub const INTERNAL: u16 = 1011;
    /// The service restarts: come back.
    pub const RESTART: u16 = 1012;
    /// Come back later.
    pub const TRY_LATER: u16 = 1013;

    /// Whether a peer may send the code (RFC 6455, 7.4.2; those that the registry has given out since).
    #[must_use]
    pub const fn is_sendable(code: u16) -> bool {
        matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}
