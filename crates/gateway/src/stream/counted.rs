//! What is counted of sockets.

use holdfast_telemetry::{Counter, Family, Gauge, Label, Registry};

/// See the module.
pub struct StreamMetrics {
    /// `holdfast_stream_sockets`: open sockets. Use [`Gauge::track`].
    pub sockets: Gauge,
    /// `holdfast_stream_handshakes_total{outcome}`.
    pub handshakes: Family<Counter, 1>,
    /// `holdfast_stream_messages_total{outcome}`: messages of clients, by what became of them.
    pub messages: Family<Counter, 1>,
    /// `holdfast_stream_closes_total{code}`: sockets that ended, by the code of who closed first.
    pub closes: Family<Counter, 1>,
    /// `holdfast_stream_ladder_total{scope,step}`.
    pub ladder: Family<Counter, 2>,
}

impl StreamMetrics {
    /// Registers all of them.
    pub fn register(r: &Registry) -> Self {
        let [outcome, code, scope, step] = ["outcome", "code", "scope", "step"].map(Label::closed);
        Self {
            sockets: r.gauge("holdfast_stream_sockets", "Open WebSockets."),
            handshakes: r.family(
                "holdfast_stream_handshakes_total",
                "Handshakes of WebSockets, by outcome.",
                [outcome],
                (),
            ),
            messages: r.family(
                "holdfast_stream_messages_total",
                "Messages of WebSocket clients, by what became of them.",
                [outcome],
                (),
            ),
            closes: r.family(
                "holdfast_stream_closes_total",
                "WebSockets that ended, by the close code of who closed first; `none` for a connection that broke.",
                [code],
                (),
            ),
            ladder: r.family(
                "holdfast_stream_ladder_total",
                "Steps taken with messages under overload, by the scope whose limit was short.",
                [scope, step],
                (),
            ),
        }
    }
}

/// The label of a close code: those that are told apart, and `other`.
pub const fn code_label(code: Option<u16>) -> &'static str {
    match code {
        None => "none",
        Some(1000) => "1000",
        Some(1001) => "1001",
        Some(1002) => "1002",
        Some(1003) => "1003",
        Some(1007) => "1007",
        Some(1008) => "1008",
        Some(1009) => "1009",
        Some(1011) => "1011",
        Some(1012) => "1012",
        Some(1013) => "1013",
        Some(_) => "other",
    }
}
