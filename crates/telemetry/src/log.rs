//! The process log: events of the product's own code, as JSON or text lines on standard error.
//!
//! Only the product's own targets are written at the level asked for; libraries are held at warnings, since HTTP libraries write headers,
//! which hold secrets, at their debug levels; HTTP/2 at errors, unless the level is debug. Lines go through a bounded buffer and a thread,
//! so that a full pipe never holds up a request.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};
use tracing_subscriber::{Layer, Registry};

use crate::metric::Counter;
use crate::spool::{Drain, Spool, SpoolOptions};

/// The most lines that wait to be written.
const QUEUE: usize = 4_096;
/// How long dropping the guard may take.
const FLUSH: Duration = Duration::from_secs(1);
/// What the targets of the product's own crates begin with.
const OWN: &str = "holdfast";

/// The least severe events that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// What a person must act on.
    Error,
    /// What a person should look at.
    Warn,
    /// What changed: configuration, tables, replicas.
    #[default]
    Info,
    /// Decisions, for finding a fault.
    Debug,
    /// Everything.
    Trace,
}

/// The shape of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object.
    #[default]
    Json,
    /// Text for a person.
    Text,
}

/// Why logging could not be set up.
#[derive(Debug)]
pub enum LogError {
    /// The writer thread cannot be started.
    Thread(io::Error),
    /// This process has a log already.
    AlreadySet(TryInitError),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(_) => f.write_str("the log's writer thread cannot be started"),
            Self::AlreadySet(_) => f.write_str("this process has a log already"),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            Self::AlreadySet(error) => Some(error),
        }
    }
}

/// Keeps the log's writer. Dropping it writes what is queued, for at most a second; later lines are lost.
#[must_use = "dropping the guard ends the log"]
#[derive(Debug)]
pub struct LogGuard {
    spool: Spool<Vec<u8>>,
    dropped: Counter,
}

impl LogGuard {
    /// The count of lines lost because they could not be written fast enough: register it as `holdfast_log_lines_dropped_total`.
    #[must_use]
    pub fn dropped(&self) -> Counter {
        self.dropped.clone()
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        self.spool.shutdown(FLUSH);
    }
}

/// Sets up the process's log on standard error. Once per process, as one of the first things that `main` does.
///
/// # Errors
/// [`LogError`].
pub fn init_logging(level: LogLevel, format: LogFormat) -> Result<LogGuard, LogError> {
    let dropped = Counter::default();
    let options = SpoolOptions { name: "process-log", parts: 1, most: QUEUE, linger: Duration::ZERO };
    let spool = Spool::start(options, dropped.clone(), Stderr(dropped.clone())).map_err(LogError::Thread)?;
    let guard = LogGuard { spool: spool.clone(), dropped };
    tracing_subscriber::registry()
        .with(layer(level, format, ToSpool(spool)))
        .try_init()
        .map_err(LogError::AlreadySet)?;
    Ok(guard)
}

fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Its warnings are of what clients send, and one client can cause any number of them.
    let h2 = if level >= LevelFilter::DEBUG { LevelFilter::WARN } else { LevelFilter::ERROR };
    Targets::new().with_target(OWN, level).with_target("h2", h2).with_default(level.min(LevelFilter::WARN))
}

fn layer<W>(level: LogLevel, format: LogFormat, writer: W) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    match format {
        LogFormat::Json => layer.json().flatten_event(true).with_span_list(false).with_filter(filter(level)).boxed(),
        LogFormat::Text => layer.with_filter(filter(level)).boxed(),
    }
}

/// Queues each line. The formatter hands over a whole line in one write.
struct ToSpool(Spool<Vec<u8>>);

impl Write for &ToSpool {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for ToSpool {
    type Writer = &'a Self;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

/// Writes lines, and counts those that standard error refuses: there is nowhere else to say so.
struct Stderr(Counter);

impl Drain<Vec<u8>> for Stderr {
    fn write(&mut self, batch: &mut Vec<Vec<u8>>) {
        let mut stderr = io::stderr().lock();
        for line in batch.drain(..) {
            if stderr.write_all(&line).is_err() {
                self.0.inc();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::Level;

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(line);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: LogLevel, format: LogFormat, events: impl FnOnce()) -> String {
        let memory = Memory::default();
        let writer = memory.clone();
        let subscriber = tracing_subscriber::registry().with(layer(level, format, move || writer.clone()));
        tracing::subscriber::with_default(subscriber, events);
        let bytes = memory.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn json_lines_have_time_level_target_and_fields() {
        let text = logged(LogLevel::Info, LogFormat::Json, || {
            tracing::info!(target: "holdfast_gateway::table", revision = 7, name = "a\"\n", "in force");
        });
        assert_eq!(text.matches('\n').count(), 1, "{text}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let fields = ["level", "target", "message", "revision", "name"].map(|f| json[f].to_string());
        assert_eq!(fields, ["\"INFO\"", "\"holdfast_gateway::table\"", "\"in force\"", "7", "\"a\\\"\\n\""]);
        assert!(json["timestamp"].as_str().is_some_and(|t| t.ends_with('Z')), "{text}");
    }

    #[test]
    fn libraries_stay_at_warnings_at_every_level() {
        for level in [LogLevel::Info, LogLevel::Debug, LogLevel::Trace] {
            for format in [LogFormat::Json, LogFormat::Text] {
                let text = logged(level, format, || {
                    tracing::debug!(target: "h2::codec::framed_read", headers = "canary-7f3a", "received");
                    tracing::trace!(target: "hyper::proto::h1::io", "canary-7f3a");
                    tracing::info!(target: "rustls", "canary-7f3a");
                    tracing::warn!(target: "hyper", "shown");
                });
                assert!(text.contains("shown") && !text.contains("canary-7f3a"), "{text}");
            }
        }
    }

    #[test]
    fn what_clients_do_to_the_protocol_library_is_no_warning() {
        let shown = |level| filter(level).would_enable("h2::proto::streams::recv", &Level::WARN);
        let levels = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];
        assert_eq!(levels.map(shown), [false, false, false, true, true]);
        assert!(filter(LogLevel::Info).would_enable("h2::proto", &Level::ERROR));
    }

    #[test]
    fn the_level_holds_for_our_own_targets() {
        let filter = filter(LogLevel::Error);
        assert!(filter.would_enable("holdfast", &Level::ERROR) && !filter.would_enable("holdfast_net", &Level::WARN));
        assert!(!filter.would_enable("hyper", &Level::WARN), "a stricter level holds for libraries too");
    }
}
