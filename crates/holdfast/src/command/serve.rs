//! `holdfast serve` and `holdfast gateway`: a gateway, with its control plane in it or elsewhere.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use holdfast_config::{AccessLog as AccessChoice, Config, Log, LogFormat as Format, LogLevel as Level, Role};
use holdfast_control::api::{Door, Tokens};
use holdfast_gateway::{Disk, DiskOptions, Gateway, Options, Stopped, serve, worker_count};
use holdfast_net::tls::Entrance;
use holdfast_telemetry::{
    AccessLog, AccessOptions, AccessPolicy, AccessSink, AccessWriter, AuditLog, AuditOptions, AuditWriter, ExposureLog,
    ExposureOptions, GatewayMetrics, LogFormat, LogGuard, LogLevel, MetricsOptions, init_logging,
};

use super::{Failure, must_be, run_to_end};
use crate::cli::ServeArgs;
use crate::config_file::{self, Read};
use crate::output;
use crate::roles::{self, Reload};
use crate::token;
use crate::watch::Watch;

/// Linux and macOS agree about its number.
const SIGXFSZ: i32 = 25;
/// How long the last records of each log may take to be written.
const FLUSH: Duration = Duration::from_secs(2);

/// Runs the gateway until it is told to stop.
pub fn run(args: &ServeArgs, role: Role) -> Result<(), Failure> {
    let Some(path) = args.path() else { return Err(Failure::wrong("give the configuration file")) };
    // Before it is read: an edit from here on is noticed, however long the start takes.
    let watch = Watch::new(path);
    let read = config_file::read(path).map_err(|e| Failure::wrong(e.to_string()))?;
    let config = read.split.loaded.config.clone();
    must_be(path, &config, role)?;
    let guard = start_log(&config.log)?;
    if !read.split.loaded.warnings.is_empty() {
        tracing::warn!(warnings = %read.split.loaded.warnings, "the configuration has warnings");
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
    let (audit, audit_writer) = start_audit(&config, &metrics)?;
    let receipts = start_receipts(&config, &metrics)?;
    let exposures = start_exposures(&config, &metrics)?;
    let exposed = exposures.clone();
    let door = door(&config)?;
    let kept = receipts.clone();
    let parts = Parts { config, metrics, access, audit, exposures, receipts, door };
    let stopped = run_to_end(2, drive(path.to_owned(), watch, read, parts));
    flush(writer, audit_writer, matches!(stopped, Ok(Stopped::Drained)));
    if kept.is_some_and(|kept| !kept.flush(FLUSH)) {
        output::complain("the last receipts could not be written in time");
    }
    if exposed.shutdown(FLUSH) != holdfast_telemetry::Flushed::All {
        output::complain("the last exposures could not be written in time");
    }
    match stopped? {
        Stopped::Drained => Ok(()),
        Stopped::TimedOut => Err(Failure::failed("stopped with requests unfinished: the drain's time was over")),
    }
}

/// What a gateway needs of this process.
struct Parts {
    config: Config,
    metrics: Arc<GatewayMetrics>,
    access: AccessLog,
    audit: AuditLog,
    exposures: ExposureLog,
    receipts: Option<Arc<Disk>>,
    door: Arc<Door>,
}

async fn drive(path: PathBuf, watch: Watch, read: Read, parts: Parts) -> Result<Stopped, Failure> {
    let hear = |kind| signal(kind).map_err(|e| Failure::failed(format!("cannot hear signals: {e}")));
    let stop = stop_signal(hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    let (hangup, reopen) = (hear(SignalKind::hangup())?, hear(SignalKind::user_defined1())?);
    let at_once = second_signal(hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    // A file that may not grow is then an error of the write that met it, as on a full disk, and not the end of the process.
    let _too_long = hear(SignalKind::from_raw(SIGXFSZ))?;
    let frame = read.frame.clone();
    let role = read.split.loaded.config.role();
    let (planes, control) = Box::pin(roles::open(read)).await?;
    let Parts { config, metrics, access, audit, exposures, receipts, door } = parts;
    let entrance = entrance(&config)?;
    let data = roles::data_entrance(&config).map_err(|e| Failure::wrong(format!("listen.data_tls: {e}")))?;
    let data_scheme = if data.certificates().is_some() { "https" } else { "http" };
    let scheme = if entrance.certificates().is_some() { "https" } else { "http" };
    let ready = move |data, admin| {
        tracing::info!(%data, %admin, "listening");
        output::say(&format!("holdfast is listening on {data_scheme}://{data}, admin on {scheme}://{admin}"));
    };
    planes.register(metrics.registry());
    let state = config.state.clone();
    let options = Options {
        config,
        frame,
        control,
        standing: planes.standing(),
        metrics,
        access,
        audit,
        exposures,
        receipts,
        data_entrance: data.clone(),
        admin_entrance: entrance.clone(),
        access_to_admin: roles::access(&door),
        also: planes.also(&door, &state),
        store: planes.probe(),
        company: planes.company(),
        ready: Box::new(ready),
    };
    let (at_end, mut ended) = tokio::sync::oneshot::channel();
    let serving = serve(options, stop, move |gateway, tasks| {
        let (desk, keeper) = (planes.desk(), planes.keeper());
        // Nobody has gone: it is taken when the gateway has stopped.
        let _ = at_end.send(planes.run(&gateway, tasks));
        let reload = Reload { path, watch, role, desk, keeper, gateway: gateway.clone() };
        tasks.spawn(reload.run(hangup));
        for (port, entrance) in [(roles::ADMIN, &entrance), (roles::DATA, &data)] {
            let alarms = gateway.clone();
            let alarm = move |kind, why| alarms.driver.alarms.say(kind, why);
            tasks.spawn(roles::renew(port, entrance, gateway.metrics.registry(), alarm));
        }
        tasks.spawn(reopen_log(gateway, reopen));
    });
    tokio::select! {
        stopped = serving => {
            if let Ok(Some(leaving)) = ended.try_recv() {
                leaving.leave().await;
            }
            stopped.map_err(|e| Failure::failed(e.to_string()))
        }
        () = at_once => Err(Failure::failed("stopped at once: told so twice")),
    }
}

pub(super) async fn stop_signal(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping: finishing what is in flight");
}

pub(super) async fn second_signal(mut terminate: Signal, mut interrupt: Signal) {
    for _ in 0..2 {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

/// SIGUSR1 opens the access log anew.
async fn reopen_log(gateway: Arc<Gateway>, mut reopen: Signal) {
    while reopen.recv().await.is_some() {
        gateway.access.reopen();
    }
}

pub(super) fn start_log(log: &Log) -> Result<LogGuard, Failure> {
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

fn start_audit(config: &Config, metrics: &GatewayMetrics) -> Result<(AuditLog, AuditWriter), Failure> {
    let audit = &config.audit;
    if !audit.enabled {
        return Ok(AuditLog::off());
    }
    let options = AuditOptions {
        folder: config.audit_folder(),
        max_file_size: audit.max_file_size.0,
        retention: audit.retention,
        max_total_size: audit.max_total_size.0,
        queue: audit.queue as usize,
        workers: worker_count(config),
    };
    AuditLog::start(options, metrics.audit.clone())
        .map_err(|e| Failure::failed(format!("the audit log cannot be started: {e}")))
}

fn start_exposures(config: &Config, metrics: &GatewayMetrics) -> Result<ExposureLog, Failure> {
    let exposures = &config.exposures;
    if !exposures.enabled {
        return Ok(ExposureLog::off());
    }
    let options = ExposureOptions {
        folder: config.exposures_folder(),
        max_file_size: exposures.max_file_size.0,
        max_total_size: exposures.max_total_size.0,
        retention: exposures.retention,
        queue: exposures.queue as usize,
        workers: worker_count(config),
        remember: exposures.remember as usize,
    };
    ExposureLog::start(options, metrics.exposures.clone())
        .map_err(|e| Failure::failed(format!("exposures cannot be written: {e}")))
}

fn start_receipts(config: &Config, metrics: &GatewayMetrics) -> Result<Option<Arc<Disk>>, Failure> {
    let Some(disk) = &config.receipts.disk else { return Ok(None) };
    let options = DiskOptions {
        folder: config.receipts_folder(),
        max_size: disk.max_size.0,
        retention: disk.retention,
        queue: disk.queue as usize,
    };
    let lost = metrics.registry().counter(
        "holdfast_receipts_lost_total",
        "Receipts that are not on disk: the queue was full, or they could not be written.",
    );
    let folder = options.folder.display().to_string();
    let disk =
        Disk::open(options, lost).map_err(|e| Failure::failed(format!("receipts cannot be kept in {folder}: {e}")))?;
    Ok(Some(Arc::new(disk)))
}

pub(super) fn entrance(config: &Config) -> Result<Entrance, Failure> {
    roles::entrance(config).map_err(|e| Failure::wrong(format!("listen.admin.tls: {e}")))
}

pub(super) fn door(config: &Config) -> Result<Arc<Door>, Failure> {
    let tokens = token::all(config).map_err(|e| Failure::wrong(format!("{}: {e}", e.path())))?;
    let address = config.listen.admin.address;
    if tokens.is_none() && address.ip().is_loopback() {
        tracing::warn!(%address, "the admin port asks for no token; it is on loopback");
    }
    let asks = config.listen.admin.tls.as_ref().is_some_and(|tls| tls.clients.is_some());
    if tokens.as_ref().is_some_and(Tokens::knows_certificates) && !asks {
        tracing::warn!(
            "the tokens file knows callers by certificates, but without listen.admin.tls.clients none is asked for"
        );
    }
    Ok(Arc::new(tokens.map_or_else(Door::open, Door::with)))
}

fn flush(access: AccessWriter, audit: AuditWriter, drained: bool) {
    // What must not be lost first.
    if audit.shutdown(FLUSH, drained) != holdfast_telemetry::Flushed::All {
        output::complain("the last audit records could not be written in time");
    }
    if access.shutdown(FLUSH) != holdfast_telemetry::Flushed::All {
        output::complain("the last access records could not be written in time");
    }
}
