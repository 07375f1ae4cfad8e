//! A whole request through the gateway's own code, from the socket of the client to that of the upstream and back: the main job of
//! `make bench`, but for the thread that writes the access log.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use holdfast_config::{Frame, Source, split};
use holdfast_gateway::Local;
use holdfast_plane::{Table, View};
use holdfast_telemetry::{
    AccessLog, AccessOptions, AccessPolicy, AccessSink, AuditLog, AuditOptions, GatewayMetrics, MetricsOptions,
};
use holdfast_types::Revision;

use crate::ping;

/// `O_NONBLOCK` of Linux.
const NONBLOCK: i32 = 0o4000;

/// `fifo` takes the access records. It is full and never read, so the log's thread stands still at its first record, and neither wakes nor
/// frees memory at moments of its own.
pub(crate) fn run(count: u32, fifo: &str) {
    let mut full = OpenOptions::new().read(true).write(true).custom_flags(NONBLOCK).open(fifo).expect("the FIFO");
    while full.write(&[b' '; 4096]).is_ok() {}
    let metrics = Arc::new(GatewayMetrics::new(&MetricsOptions::default()));
    let options =
        AccessOptions { policy: AccessPolicy::All, sink: AccessSink::File(fifo.into()), queue: 1 << 20, workers: 1 };
    let (access, _writer) = AccessLog::start(options, metrics.access_records_dropped.clone()).expect("the access log");
    let audit = AuditOptions {
        // Its `lock` is a FIFO that nobody reads: the log's thread stands still before it has begun.
        folder: std::path::Path::new(fifo).with_extension("audit"),
        max_file_size: 1 << 26,
        retention: Duration::from_secs(1 << 23),
        max_total_size: 1 << 30,
        queue: 1 << 20,
        workers: 1,
    };
    let (audit, _audit_writer) = AuditLog::start(audit, metrics.audit.clone()).expect("the audit log");
    ping::block_on(|| listen(metrics, access, audit, std::path::Path::new(fifo)), count);
}

async fn listen(
    metrics: Arc<GatewayMetrics>,
    access: AccessLog,
    audit: AuditLog,
    fifo: &std::path::Path,
) -> SocketAddr {
    let state = fifo.with_extension("state");
    let replicas = [ping::upstream(ping::FIRST).await, ping::upstream(ping::SECOND).await];
    let (view, frame) = config(replicas, &state);
    let local = Arc::new(Local::start(&view, frame, metrics, access, audit).expect("a gateway"));
    // Both replicas are proved by then.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            stream.set_nodelay(true).expect("no delay");
            let local = local.clone();
            tokio::spawn(async move { local.serve(stream, peer).await });
        }
    });
    address
}

/// As in `scripts/bench/peers/holdfast.yaml`.
fn config(replicas: [SocketAddr; 2], state: &std::path::Path) -> (View, Frame) {
    let holds = r#"holds: [{ model: m, version: "7" }]"#;
    let [r0, r1] = replicas;
    let tenants =
        (0..100).map(|t| format!("  - {{ name: t{t}, subset: 2, pins: {{ m: \"7\" }} }}\n")).collect::<String>();
    let text = format!(
        "state: \"{}\"\nauth: {{ trusted_header: x-tenant }}\npools:\n  - name: replicas\n    \
         protocol: open-inference\n    residency: static\n    upstream: {{ answer: required }}\n    replicas:\n      \
         - {{ name: r0, url: \"http://{r0}\", {holds} }}\n      - {{ name: r1, url: \"http://{r1}\", {holds} }}\n\
         models:\n  - {{ name: m, pool: replicas, versions: [{{ version: \"7\" }}] }}\ntenants:\n{tenants}",
        state.display()
    );
    let taken = split(&Source::text("counts.yaml", &text)).expect("the configuration is right");
    let table = Table { revision: Revision(1), entries: taken.resources.into(), ..Table::default() };
    (View { table: Arc::new(table), ..View::default() }, Frame::new(taken.rest))
}
