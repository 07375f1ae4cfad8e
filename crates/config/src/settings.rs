//! The sections of a configuration that tune one gateway: bounds, budgets, listeners, logs.
//!
//! Plain data: every value here has been checked, has its unit in its type, and has a default.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_types::Bytes;

use crate::compound::{List, Optional, Required};
use crate::kind::{Choice, Flag};
use crate::limits::{AttemptLimits, ScopeLimits};
use crate::number::{Count, Positive};
use crate::redis::{NAMESPACE, REDIS, RedisAccess, RedisUrl};
use crate::section::{form, section};
use crate::special::AdminKind;
use crate::text::{ADDRESS, HEADER, PATH};
use crate::units::{DAY, GIB, HOUR, KIB, MIB, TIB, loopback, millis_to, positive, secs, size};

section! {
    /// Where the gateway listens.
    pub struct Listen {
        /// The data port: HTTP/1.1, and cleartext HTTP/2 by prior knowledge, on the same port.
        data: SocketAddr = loopback(7400), ADDRESS;
        /// TLS on the data port, and who signs the certificates of clients. Left out: cleartext. Read at the start; the files are read anew when they change.
        data_tls: Option<DataTls> = None, Optional(form::<DataTls>());
        /// The admin port: an address, or a section with an address and a token file.
        admin: Admin = Admin::default(), AdminKind;
        /// Where other gateways of the fleet reach this one; of `holdfast gateway` only. Left out: they do not.
        peer: Option<SocketAddr> = None, Optional(ADDRESS);
    }
}

section! {
    /// The admin port and what it asks of its callers.
    pub struct Admin {
        /// Where it listens.
        address: SocketAddr = loopback(7401), ADDRESS;
        /// A file with the bearer token that callers must show, at least 16 characters. One of the two files must be there when the address is not loopback.
        token_file: Option<PathBuf> = None, Optional(PATH);
        /// A file with tokens of several callers, a line `NAME ROLE TOKEN` each; the roles are `viewer`, `operator` and `admin`.
        tokens_file: Option<PathBuf> = None, Optional(PATH);
        /// TLS on the admin port. Left out: cleartext.
        tls: Option<AdminTls> = None, Optional(form::<AdminTls>());
    }
}

section! {
    /// TLS of the data port. The files are read anew when they change.
    pub struct DataTls {
        /// The certificate chain in PEM, the own certificate first.
        certificates: Option<PathBuf> = None, Required(PATH);
        /// Its private key in PEM.
        key: Option<PathBuf> = None, Required(PATH);
        /// Who signs the certificates of clients, in PEM. Whose they are is said in `auth.certificates`.
        clients: Option<PathBuf> = None, Optional(PATH);
        /// Whether a client without a certificate is refused at the handshake. If not, it is let in, to prove its tenant otherwise.
        required: bool = false, Flag;
    }
}

section! {
    /// TLS of the admin port. The files are read anew when they change.
    pub struct AdminTls {
        /// The certificate chain in PEM, the own certificate first.
        certificates: Option<PathBuf> = None, Required(PATH);
        /// Its private key in PEM.
        key: Option<PathBuf> = None, Required(PATH);
        /// Who signs the certificates of callers, in PEM. Whose they are is said in `tokens_file`, by lines `NAME ROLE cert:cn=...` (or `dns=`, `uri=`, `email=`).
        clients: Option<PathBuf> = None, Optional(PATH);
    }
}

/// Which side owns what routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Truth {
    /// The store, which the file fills once.
    #[default]
    Store,
    /// The file: it is taken in at each start and reload.
    File,
}

/// Which answers say how much is left of the limits that a request came under.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TellLimits {
    /// All of those that came under one.
    #[default]
    Answers,
    /// Refusals.
    Refusals,
}

pub(crate) const TELL: Choice<TellLimits> =
    Choice(&[("answers", TellLimits::Answers), ("refusals", TellLimits::Refusals)]);

pub(crate) const TRUTH: Choice<Truth> = Choice(&[("store", Truth::Store), ("file", Truth::File)]);

section! {
    /// Bounds on what one client, one connection or one request may take.
    pub struct Limits {
        /// Most bytes of a request head.
        head: Bytes = Bytes(16 * KIB), size(KIB, MIB);
        /// Most header fields of a request.
        headers: u32 = 100, Count { least: 8, most: 10_000 };
        /// Most bytes of a request target.
        uri: Bytes = Bytes(8 * KIB), size(256, 63 * KIB);
        /// Most bytes of a request body.
        body: Bytes = Bytes(64 * MIB), size(1, TIB);
        /// Bodies of at most this size are kept so that the request can be sent a second time; larger ones stream through. Zero: none is kept.
        buffer: Bytes = Bytes(MIB), size(0, GIB);
        /// How much of a streamed answer is held until the served version is found in it.
        answer_head: Bytes = Bytes(64 * KIB), size(KIB, 64 * MIB);
        /// Most client connections in all.
        connections: u32 = 10_000, Count { least: 1, most: 1_000_000 };
        /// Most client connections from one address.
        connections_per_address: u32 = 1_000, Count { least: 1, most: 1_000_000 };
        /// Most concurrent HTTP/2 streams of one client connection.
        streams_per_connection: u32 = 100, Count { least: 1, most: 10_000 };
        /// Most requests that wait for a version to be loaded; the next one is shed. Zero: none waits.
        waiting: u32 = 10_000, Count { least: 0, most: 1_000_000 };
        /// What all tenants together may use.
        global: ScopeLimits = ScopeLimits::default(), form::<ScopeLimits>();
        /// Who is told what is left of the limits that a request came under: `answers`, all of them; or only `refusals`.
        tell: TellLimits = TellLimits::Answers, TELL;
        /// Where gateways share the limits of tenants and of all together: `redis://HOST:PORT`, or with `/DB` behind it; `rediss://` for TLS. Read at the start. Left out: each gateway applies them by itself.
        store: Option<RedisUrl> = None, Optional(REDIS);
        /// More plain stores beside `store`, over which limits are spread: a ring. All gateways name the same. Not for the nodes of a cluster, of which one is enough: it names the others. Read at the start.
        store_nodes: Vec<RedisUrl> = Vec::new(), List { item: REDIS, least: 0 };
        /// How that store is reached: TLS, user and password. Read at the start.
        store_access: RedisAccess = RedisAccess::default(), form::<RedisAccess>();
        /// How long one call of that store may take.
        store_within: Duration = Duration::from_millis(5), millis_to(1, 1_000);
        /// What its keys begin with: the gateways of one fleet have the same.
        store_namespace: Box<str> = "default".into(), NAMESPACE;
        /// How many gateways share the limits, for one that starts while that store does not answer. Later the store says.
        store_gateways: u32 = 1, Count { least: 1, most: 10_000 };
        /// How fast one address may open connections. An IPv6 address counts with its network of 64 bits.
        attempts_per_address: AttemptLimits = AttemptLimits::default(), form::<AttemptLimits>();
        /// Most users, of all tenants, whose use is kept apart, at about 100 bytes each. Others of their tenants share one bucket.
        users: u32 = 1_000_000, Count { least: 0, most: 100_000_000 };
        /// Most users of one tenant whose use is kept apart; the others share one bucket.
        users_per_tenant: u32 = 100_000, Count { least: 0, most: 100_000_000 };
    }
}

section! {
    /// How long things may take.
    pub struct Timeouts {
        /// From the first byte of a request head to its last.
        head: Duration = secs(10), millis_to(100, HOUR);
        /// Longest pause while a request body arrives.
        body_idle: Duration = secs(10), millis_to(100, HOUR);
        /// How long an idle client connection is kept, and how long a client may read nothing of an answer that waits for it.
        keepalive_idle: Duration = secs(75), millis_to(100, DAY);
        /// Age at which a client connection is asked to go away. Left out: no bound.
        connection_max_age: Option<Duration> = None, Optional(millis_to(1_000, 30 * DAY));
        /// The budget of a request that names none.
        request: Duration = secs(30), millis_to(1, DAY);
        /// The largest budget that a request may name in `x-request-timeout-ms`.
        request_max: Duration = secs(300), millis_to(1, DAY);
        /// How long a shutdown waits for requests in flight.
        drain: Duration = secs(30), millis_to(0, DAY);
    }
}

section! {
    /// Bounds on cold loads over the whole fleet.
    pub struct FleetLoads {
        /// Most cold loads in flight in all pools together.
        fleet: NonZeroU32 = positive(16), Positive { most: 100_000 };
    }
}

section! {
    /// How much of the table's history is kept. A revision is forgotten when it is older than `keep` and more than `revisions` have come after it.
    pub struct History {
        /// Revisions younger than this are kept.
        keep: Duration = secs(90 * 86_400), millis_to(0, 10_000 * DAY);
        /// The last so many revisions are kept.
        revisions: u32 = 10_000, Count { least: 1, most: 100_000_000 };
    }
}

section! {
    /// How a changed pin comes into force, where the change does not say so itself.
    pub struct Rollouts {
        /// Loads of one roll-out at a time, one on each replica.
        loads: u32 = 8, Count { least: 1, most: 10_000 };
        /// Loads that may fail in a row on one replica before the roll-out fails, with the server's words.
        tries: u32 = 3, Count { least: 1, most: 1_000 };
        /// A load that is not done by then has failed.
        load: Duration = secs(360), millis_to(1_000, DAY);
        /// The whole subset holds the new version by then, or the roll-out fails.
        warm: Duration = secs(1_200), millis_to(1_000, 30 * DAY);
        /// All live gateways are prepared by then, or the flip fails.
        prepare: Duration = secs(60), millis_to(1_000, DAY);
        /// An alarm is raised when requests of the old version still run after this time.
        drain: Duration = secs(600), millis_to(1_000, 30 * DAY);
        /// The old version is kept so long after its last request, for a revert without a load.
        retain: Duration = secs(3_600), millis_to(0, 365 * DAY);
    }
}

section! {
    /// What the metrics page shows.
    pub struct Metrics {
        /// Most tenants shown by name; the others share the label `other`.
        tenants: u32 = 1_000, Count { least: 0, most: 100_000 };
    }
}

section! {
    /// The record of which version gave which answer, in a chain of hashes.
    pub struct Audit {
        /// Whether there is a record for each answer of a model server.
        enabled: bool = true, Flag;
        /// Where its files are, for this gateway alone. Left out: the folder `audit` in `state`.
        folder: Option<PathBuf> = None, Optional(PATH);
        /// A file that has this size, and one of another day (UTC), is followed by the next.
        max_file_size: Bytes = Bytes(64 * MIB), size(4 * KIB, 4 * GIB);
        /// How long records are kept, if there is room.
        retention: Duration = secs(90 * DAY / 1_000), millis_to(HOUR, 3_650 * DAY);
        /// Most bytes of all files, at least twice `max_file_size`: over it the oldest files are removed, whatever their age.
        max_total_size: Bytes = Bytes(8 * GIB), size(8 * KIB, 1_024 * TIB);
        /// Most records of one worker that wait to be written, some 400 bytes each. One that finds no place is lost, counted and recorded.
        queue: u32 = 4_096, Count { least: 1, most: 1_000_000 };
    }
}

section! {
    /// Which arms of experiments people were given: an event for each person and arm, as lines of JSON.
    pub struct Exposures {
        /// Whether they are written. Nothing is written before there is an experiment.
        enabled: bool = true, Flag;
        /// Where the files are, for this gateway alone. Left out: the folder `exposures` in `state`.
        folder: Option<PathBuf> = None, Optional(PATH);
        /// A file that has this size is followed by the next.
        max_file_size: Bytes = Bytes(64 * MIB), size(4 * KIB, 4 * GIB);
        /// Most bytes of all files, at least twice `max_file_size`: over it the oldest files are removed.
        max_total_size: Bytes = Bytes(4 * GIB), size(8 * KIB, 1_024 * TIB);
        /// How long they are kept, if there is room.
        retention: Duration = secs(90 * DAY / 1_000), millis_to(60_000, 3_650 * DAY);
        /// Most events of one worker that wait to be written. One that finds no place is lost and counted.
        queue: u32 = 4_096, Count { least: 1, most: 1_000_000 };
        /// How many are remembered, at about 16 bytes each, so that they are written once.
        remember: u32 = 200_000, Count { least: 32, most: 100_000_000 };
    }
}

section! {
    /// The decisions of the last requests, kept in memory for who asks.
    pub struct Receipts {
        /// How many are kept in all, in equal parts for the workers, at about 700 bytes each. Zero: none.
        keep: u32 = 10_000, Count { least: 0, most: 1_000_000 };
        /// Keeps all of them on disk as well. Left out: in memory only.
        disk: Option<ReceiptsDisk> = None, Optional(form::<ReceiptsDisk>());
    }
}

section! {
    /// Receipts on disk: for longer, and over restarts.
    pub struct ReceiptsDisk {
        /// Where its files are, for this gateway alone. Left out: the folder `receipts` in `state`.
        folder: Option<PathBuf> = None, Optional(PATH);
        /// Most bytes of all files: over it the oldest are removed. A receipt has about 1 KiB.
        max_size: Bytes = Bytes(256 * MIB), size(MIB, TIB);
        /// How long they are kept, if there is room.
        retention: Duration = secs(7 * DAY / 1_000), millis_to(60_000, 3_650 * DAY);
        /// Most receipts that wait to be written. One that finds no place is lost and counted.
        queue: u32 = 4_096, Count { least: 1, most: 1_000_000 };
    }
}

section! {
    /// The route token: `x-holdfast-route` of an answer says, signed, what its request was resolved to; a retry that brings it goes where the first one went.
    pub struct RouteToken {
        /// How long a token counts.
        lifetime: Duration = secs(DAY / 1_000), millis_to(1_000, 30 * DAY);
        /// A file with secrets, one a line, at least 32 characters each: the first one signs, up to 4 are good. Looked at every second. Left out: the file `route.key` in `state`, which is made once.
        key_file: Option<PathBuf> = None, Optional(PATH);
    }
}

section! {
    /// What the arms of experiments have shown at this gateway: people, requests, latency and outcomes, in windows of time.
    pub struct Results {
        /// How long a window is. The same at all gateways of a fleet.
        window: Duration = secs(HOUR / 1_000), millis_to(1_000, DAY);
        /// How many windows of an arm are kept.
        keep: u32 = 336, Count { least: 2, most: 10_000 };
        /// Most arms, over all experiments.
        arms: u32 = 256, Count { least: 2, most: 10_000 };
        /// Most metrics that clients tell of one arm.
        metrics: u32 = 16, Count { least: 1, most: 256 };
        /// How many people, and how many ids of outcomes, are remembered, at about 16 bytes each, so that they count once.
        remember: u32 = 200_000, Count { least: 32, most: 100_000_000 };
    }
}

/// What becomes of a submission with a key while the ledger does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LedgerFailure {
    /// `refuse`
    #[default]
    Refuse,
    /// `decide`
    Decide,
}

const LEDGER_FAILURE: Choice<LedgerFailure> =
    Choice(&[("refuse", LedgerFailure::Refuse), ("decide", LedgerFailure::Decide)]);

section! {
    /// The ledger of submissions: what a submission with a key was resolved to first is what every retry of it gets.
    pub struct Ledger {
        /// The header that carries a submission's key.
        header: Box<str> = "idempotency-key".into(), HEADER;
        /// How long the first resolution of a key counts.
        keep: Duration = secs(DAY / 1_000), millis_to(1_000, 30 * DAY);
        /// What becomes of a submission with a key and no route token while the ledger does not answer. `refuse`: 503, to be tried again. `decide`: it is resolved as if it were new, and its answer has `x-holdfast-resolution: unledgered`.
        on_failure: LedgerFailure = LedgerFailure::Refuse, LEDGER_FAILURE;
        /// Where several gateways keep it: `redis://HOST:PORT`, or with `/DB` behind it; `rediss://` for TLS. Left out: the file `ledger.redb` in `state`.
        store: Option<RedisUrl> = None, Optional(REDIS);
        /// How that store is reached: TLS, user and password. Read at the start.
        store_access: RedisAccess = RedisAccess::default(), form::<RedisAccess>();
        /// How long one call of that store may take.
        within: Duration = Duration::from_millis(5), millis_to(1, 1_000);
        /// What its keys begin with: the gateways of one fleet have the same.
        namespace: Box<str> = "default".into(), NAMESPACE;
        /// Most submissions that the file keeps, at about 250 bytes each; one more counts as a ledger that does not answer.
        entries: u32 = 10_000_000, Count { least: 1, most: 1_000_000_000 };
    }
}

section! {
    /// What is logged and how.
    pub struct Log {
        /// The least severe event that is written.
        level: LogLevel = LogLevel::Info, LOG_LEVEL;
        /// The form of a line.
        format: LogFormat = LogFormat::Json, LOG_FORMAT;
        /// Which requests get a line.
        access: AccessLog = AccessLog::All, ACCESS_LOG;
        /// The file that lines go to. Left out: standard output.
        file: Option<PathBuf> = None, Optional(PATH);
    }
}

const LOG_LEVEL: Choice<LogLevel> = Choice(&[
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
]);
const LOG_FORMAT: Choice<LogFormat> = Choice(&[("json", LogFormat::Json), ("text", LogFormat::Text)]);
const ACCESS_LOG: Choice<AccessLog> =
    Choice(&[("all", AccessLog::All), ("errors", AccessLog::Errors), ("off", AccessLog::Off)]);

/// Severity of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// `error`
    Error,
    /// `warn`
    Warn,
    /// `info`
    #[default]
    Info,
    /// `debug`
    Debug,
    /// `trace`
    Trace,
}

/// Form of a log line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object.
    #[default]
    Json,
    /// For reading on a terminal.
    Text,
}

/// Which requests get a line in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessLog {
    /// Every request.
    #[default]
    All,
    /// Those that failed.
    Errors,
    /// None.
    Off,
}
