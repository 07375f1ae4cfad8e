//! The WebSocket side of the data port: bounds of sockets and messages, kinds of messages, the ladder.

use std::time::Duration;

use holdfast_types::{Bytes, ModelName};
use serde_json::json;

use crate::check::Checker;
use crate::compound::{List, MapOf, Named, Optional, Parsed, Required};
use crate::kind::{Choice, Flag};
use crate::number::Count;
use crate::path::Path;
use crate::section::{form, section};
use crate::text::MODEL;
use crate::units::{DAY, GIB, HOUR, KIB, MIB, millis_to, secs, size};

/// How much a message matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessagePriority {
    /// May be left out.
    Droppable,
    /// Is passed or refused.
    #[default]
    Normal,
    /// Is passed, on credit if need be.
    Critical,
}

const PRIORITY: Choice<MessagePriority> = Choice(&[
    ("droppable", MessagePriority::Droppable),
    ("normal", MessagePriority::Normal),
    ("critical", MessagePriority::Critical),
]);

section! {
    /// What becomes of messages of one type under overload.
    pub struct MessageType {
        /// `droppable` may be left out, `normal` is passed or refused, `critical` is never left out and passes on credit.
        priority: MessagePriority = MessagePriority::Normal, PRIORITY;
        /// Whether only the latest of its messages counts: of those with one `key` about one model, the newest passes.
        coalesce: bool = false, Flag;
    }
}

impl Eq for MessageType {}

section! {
    /// The steps that a socket's messages go down under overload.
    pub struct LadderRules {
        /// Below this share of a bucket, in percent, droppable messages are left out and streams of latest values are coalesced.
        below: u32 = 25, Count { least: 0, most: 100 };
        /// Of one stream of latest values so often at most.
        coalesce: Duration = Duration::from_millis(200), millis_to(1, 60_000);
        /// Between two `rate_limited` frames.
        warn: Duration = secs(1), millis_to(1, HOUR);
        /// So many refusals within the window close the socket.
        violations: u32 = 10, Count { least: 1, most: 1_000_000 };
        /// The window of refusals.
        window: Duration = secs(10), millis_to(100, HOUR);
    }
}

impl Eq for LadderRules {}

section! {
    /// A path whose sockets are passed through to a WebSocket of the model server that holds the tenant's version.
    pub(crate) struct StreamRouteForm {
        /// The path on the data port, such as `/v1/chat`.
        path: Option<Box<str>> = None, Required(ROUTE);
        /// The model whose pinned version serves it.
        model: Option<ModelName> = None, Required(MODEL);
        /// The path at the model server; `{model}` and `{version}` stand for the model and the version as the catalogue names them. Left out: the same path.
        upstream: Option<Box<str>> = None, Optional(UPSTREAM_PATH);
        /// Whether the gateway puts its own words (`rate_limited`, errors) between the messages. Where it does not, the ladder is silent until it closes.
        notices: bool = true, Flag;
    }
}

section! {
    /// WebSockets on the data port, at `/v1/stream` and the paths of `routes`. Left out: there are none.
    pub(crate) struct StreamForm {
        /// Most bytes of a message, over all of its fragments. A larger one closes the socket with 1009.
        message: Bytes = Bytes(MIB), size(KIB, GIB);
        /// Most frames of a message.
        fragments: u32 = 1_024, Count { least: 1, most: 1_000_000 };
        /// Most bytes of one answer. A larger one is answered by an error.
        answer: Bytes = Bytes(4 * MIB), size(KIB, GIB);
        /// Answers that wait for a client to read: over this size nothing more is read from it.
        buffer: Bytes = Bytes(256 * KIB), size(4 * KIB, GIB);
        /// Messages of one socket that are served at a time. The next one waits, and nothing behind it is read.
        concurrency: u32 = 32, Count { least: 1, most: 10_000 };
        /// A client that sends nothing for so long is sent a ping, and is gone after the same time without a sign of life. Credentials are checked again as often.
        ping: Duration = secs(30), millis_to(100, DAY);
        /// How long a client may read nothing of what waits for it.
        stall: Duration = secs(30), millis_to(100, DAY);
        /// Most open sockets of one user (of one address, where users are not known).
        sockets_per_user: u32 = 100, Count { least: 1, most: 1_000_000 };
        /// Handshakes of one user in a minute (of one address, where users are not known).
        opens_per_minute: u32 = 60, Count { least: 1, most: 1_000_000 };
        /// Paths whose sockets are passed through to model servers.
        routes: Vec<StreamRouteForm> = Vec::new(), List { item: form::<StreamRouteForm>(), least: 0 };
        /// Types that messages may name beside `droppable`, `normal` and `critical`.
        types: Vec<Named<MessageType>> = Vec::new(), MapOf(form::<MessageType>());
        /// The steps under overload.
        ladder: LadderRules = LadderRules::default(), form::<LadderRules>();
    }
}

/// A path that is passed through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRoute {
    /// On the data port; each once.
    pub path: Box<str>,
    /// What the handshake asks for. It need not be in the catalogue, which may come from elsewhere.
    pub model: ModelName,
    /// At the model server, with places for model and version.
    pub upstream: Box<str>,
    /// Whether the gateway speaks on it.
    pub notices: bool,
}

/// WebSockets on the data port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Most bytes of a message.
    pub message: Bytes,
    /// Most frames of a message.
    pub fragments: u32,
    /// Most bytes of one answer.
    pub answer: Bytes,
    /// Bytes of answers that may wait for a client.
    pub buffer: Bytes,
    /// Messages of one socket at a time.
    pub concurrency: u32,
    /// Between signs of life.
    pub ping: Duration,
    /// How long a client may read nothing.
    pub stall: Duration,
    /// Most open sockets of one user.
    pub sockets_per_user: u32,
    /// Handshakes of one user in a minute.
    pub opens_per_minute: u32,
    /// Paths that are passed through.
    pub routes: Vec<StreamRoute>,
    /// Types of messages, sorted by name; the three that are always there among them.
    pub types: Vec<(Box<str>, MessageType)>,
    /// The steps under overload.
    pub ladder: LadderRules,
}

const MOST_TYPES: usize = 256;
const LONGEST_TYPE: usize = 64;

/// A path of the data port that is nothing else's.
const ROUTE: Parsed<Box<str>> = Parsed {
    want: "a path such as /v1/chat",
    parse: |text| path(text, false),
    show: |path| json!(path),
    pattern: "^/[A-Za-z0-9._/-]{1,255}$",
};
const UPSTREAM_PATH: Parsed<Box<str>> = Parsed {
    want: "a path such as /chat/{model}",
    parse: |text| path(text, true),
    show: |path| json!(path),
    pattern: "^/[A-Za-z0-9._/{}-]{0,255}$",
};

fn path(text: &str, has_places: bool) -> Result<Box<str>, String> {
    let plain = if has_places { text.replace("{model}", "m").replace("{version}", "v") } else { text.to_owned() };
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    if !plain.starts_with('/') || plain.len() > 256 || !plain.bytes().all(good) {
        return Err("is no path: it begins with / and has ASCII letters, digits, '.', '_', '-' and '/'".to_owned());
    }
    Ok(text.into())
}

fn routes(checker: &mut Checker<'_, '_>, forms: &[StreamRouteForm]) -> Vec<StreamRoute> {
    let section = Path::Root.field("stream");
    let list = section.field("routes");
    checker.check_unique_exactly(&list, "path", forms.iter().map(|form| form.path.as_deref()));
    let mut out = Vec::new();
    for (index, form) in forms.iter().enumerate() {
        let at = list.item(index);
        let (Some(path), Some(model)) = (&form.path, &form.model) else { continue };
        let is_taken = |taken: &str| **path == *taken || path.starts_with(&format!("{taken}/"));
        if ["/v2", "/v1/stream", "/livez", "/healthz", "/readyz"].into_iter().any(is_taken) {
            checker.fault(&at.field("path"), "is a path that means something else");
        }
        let upstream = form.upstream.clone().unwrap_or_else(|| path.clone());
        out.push(StreamRoute { path: path.clone(), model: model.clone(), upstream, notices: form.notices });
    }
    out
}

pub(crate) fn check(checker: &mut Checker<'_, '_>, form: Option<StreamForm>) -> Option<Stream> {
    let form = form?;
    let routes = routes(checker, &form.routes);
    let section = Path::Root.field("stream");
    let path = section.field("types");
    if form.types.len() > MOST_TYPES {
        checker.fault(&path, format!("has {} types; {MOST_TYPES} are the most", form.types.len()));
    }
    let builtin = |priority| MessageType { priority, coalesce: false };
    let mut types: Vec<(Box<str>, MessageType)> = vec![
        ("droppable".into(), builtin(MessagePriority::Droppable)),
        ("normal".into(), builtin(MessagePriority::Normal)),
        ("critical".into(), builtin(MessagePriority::Critical)),
    ];
    for Named { name, value, .. } in &form.types {
        let path = path.field(name);
        if name.is_empty() || name.len() > LONGEST_TYPE || !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            checker.fault(&path, format!("is no name of a type: 1 to {LONGEST_TYPE} visible characters"));
        }
        if types.iter().take(3).any(|(builtin, _)| builtin == name) {
            checker.fault(&path, "is there already, and is what its name says");
        }
        if value.coalesce && value.priority == MessagePriority::Critical {
            checker.fault(&path.field("coalesce"), "a critical message is never held back or replaced");
        }
        types.push((name.clone(), value.clone()));
    }
    types.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some(Stream {
        message: form.message,
        fragments: form.fragments,
        answer: form.answer,
        buffer: form.buffer,
        concurrency: form.concurrency,
        ping: form.ping,
        stall: form.stall,
        sockets_per_user: form.sockets_per_user,
        opens_per_minute: form.opens_per_minute,
        routes,
        types,
        ladder: form.ladder,
    })
}
