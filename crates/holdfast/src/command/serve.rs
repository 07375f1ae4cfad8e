//! `holdfast serve`.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use holdfast_config::{AccessLog as AccessChoice, Config, Log, LogFormat as Format, LogLevel as Level};
use holdfast_gateway::{Gateway, Options, Stopped, Watch, serve, worker_count};
use holdfast_net::Tasks;
use holdfast_telemetry::{
    AccessLog, AccessOptions, AccessPolicy, AccessSink, AccessWriter, GatewayMetrics, LogFormat, LogGuard, LogLevel,
    MetricsOptions, init_logging,
};

use super::{Failure, run_to_end};
use crate::cli::ServeArgs;
use crate::config_file;
use crate::output;
use crate::token;

/// How long the last access records may take to be written.
const FLUSH: Duration = Duration::from_secs(2);

/// Runs the gateway until it is told to stop.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let Some(path) = args.path() else { return Err(Failure::wrong("give the configuration file")) };
    // Before it is read: an edit from here on is noticed, however long the start takes.
    let watch = Watch::new(path);
    let loaded = config_file::read(path).map_err(|e| Failure::wrong(e.to_string()))?;
    let config = loaded.config;
    let guard = start_log(&config.log)?;
    if !loaded.warnings.is_empty() {
        tracing::warn!(warnings = %loaded.warnings, "the configuration has warnings");
    }
    let metrics = Arc::new(GatewayMetrics::new(&MetricsOptions {
        tenants: config.metrics.tenants as usize,
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("HOLDFAST_COMMIT").unwrap_or("unknown"),
        ..MetricsOptions::default()
    }));
    metrics.registry().register(
        "holdfast_log_lines_dropped_total",
        "Lines of the process log that found its queue full.",
        guard.dropped(),
    );
    let (access, writer) = start_access(&config, &metrics)?;
    let admin_token = admin_token(&config)?;
    let reload_path = path.to_owned();
    let options = Options {
        config,
        watch,
        reload: Box::new(move || config_file::read(&reload_path).map_err(|e| e.to_string())),
        metrics,
        access,
        admin_token,
        ready: Box::new(|data, admin| {
            tracing::info!(%data, %admin, "listening");
            output::say(&format!("holdfast is listening on http://{data}, admin on http://{admin}"));
        }),
    };
    let stopped = run_to_end(2, drive(options));
    flush(writer);
    match stopped? {
        Stopped::Drained => Ok(()),
        Stopped::TimedOut => Err(Failure::failed("stopped with requests unfinished: the drain's time was over")),
    }
}

async fn drive(options: Options) -> Result<Stopped, Failure> {
    let hear = |kind| signal(kind).map_err(|e| Failure::failed(format!("cannot hear signals: {e}")));
    let stop = stop_signal(hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    let (hangup, reopen) = (hear(SignalKind::hangup())?, hear(SignalKind::user_defined1())?);
    let at_once = second_signal(hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    let serving = serve(options, stop, move |gateway, tasks| listen(gateway, tasks, hangup, reopen));
    tokio::select! {
        stopped = serving => stopped.map_err(|e| Failure::failed(e.to_string())),
        () = at_once => Err(Failure::failed("stopped at once: told so twice")),
    }
}

async fn stop_signal(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping: finishing what is in flight");
}

async fn second_signal(mut terminate: Signal, mut interrupt: Signal) {
    for _ in 0..2 {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// SIGHUP reads the configuration anew, SIGUSR1 opens the access log anew.
fn listen(gateway: Arc<Gateway>, tasks: &Tasks, mut hangup: Signal, mut reopen: Signal) {
    tasks.spawn(async move {
        loop {
            tokio::select! {
                _ = hangup.recv() => gateway.tables.reload_now.notify_one(),
                _ = reopen.recv() => gateway.access.reopen(),
            }
        }
    });
}

fn start_log(log: &Log) -> Result<LogGuard, Failure> {
    let level = match log.level {
        Level::Error => LogLevel::Error,
        Level::Warn => LogLevel::Warn,
        Level::Info => LogLevel::Info,
        Level::Debug => LogLevel::Debug,
        Level::Trace => LogLevel::Trace,
    };
    let format = match log.format {
        Format::Json => LogFormat::Json,
        Format::Text => LogFormat::Text,
    };
    init_logging(level, format).map_err(|e| Failure::failed(format!("the log cannot be started: {e}")))
}

fn start_access(config: &Config, metrics: &GatewayMetrics) -> Result<(AccessLog, AccessWriter), Failure> {
    let log = &config.log;
    let policy = match log.access {
        AccessChoice::All => AccessPolicy::All,
        AccessChoice::Errors => AccessPolicy::Errors,
        AccessChoice::Off => AccessPolicy::Off,
    };
    let sink = log.file.clone().map_or(AccessSink::Stdout, AccessSink::File);
    let options = AccessOptions { policy, sink, workers: worker_count(config), ..AccessOptions::default() };
    AccessLog::start(options, metrics.access_records_dropped.clone())
        .map_err(|e| Failure::failed(format!("the access log cannot be opened: {e}")))
}

fn admin_token(config: &Config) -> Result<Option<String>, Failure> {
    let token = token::read(config).map_err(|e| Failure::wrong(format!("{}: {e}", token::PATH)))?;
    let address = config.listen.admin.address;
    if token.is_none() && address.ip().is_loopback() {
        tracing::warn!(%address, "the admin port asks for no token; it is on loopback");
    }
    Ok(token)
}

fn flush(writer: AccessWriter) {
    if writer.shutdown(FLUSH) != holdfast_telemetry::Flushed::All {
        output::complain("the last access records could not be written in time");
    }
}
