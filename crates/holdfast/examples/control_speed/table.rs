//! A large table on its way into gateways: from the file, over the link, and one pin of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking::Fleet;
use tokio::net::TcpListener;
use tokio::sync::watch;

use holdfast_gateway::{Local, Tables};
use holdfast_plane::{GatewayEnd, Table, View, pair};
use holdfast_telemetry::{
    AccessLog, AccessOptions, AccessPolicy, AccessSink, AuditLog, GatewayMetrics, MetricsOptions,
};
use holdfast_testkit::TempDir;
use holdfast_types::GatewayName;
use holdfast_wire::follower::{Follower, FollowerSettings};
use holdfast_wire::saved::Folder;
use holdfast_wire::server::{Plane, ServerSettings, serve};

use super::content::{self, Growing};
use super::{line, lines, timed};

const GATEWAYS: usize = 3;
const LONG: Duration = Duration::from_secs(120);

pub async fn run(tenants: usize, repeats: usize) {
    println!("# a table of {tenants} tenants");
    let ((first, frame), _) = timed(|| content::table(tenants));
    let (gateway, control) = pair(name(0), View { table: first.clone(), ..View::default() });
    let metrics = Arc::new(GatewayMetrics::new(&MetricsOptions::default()));
    let access = AccessOptions {
        policy: AccessPolicy::Off,
        sink: AccessSink::File("/dev/null".into()),
        workers: 1,
        ..AccessOptions::default()
    };
    let (access, _writer) = AccessLog::start(access, metrics.access_records_dropped.clone()).unwrap();
    let (audit, _audit_writer) = AuditLog::off();
    let view = gateway.view.borrow().clone();
    let (local, took) = timed(|| Local::start(&view, frame, metrics, access, audit).unwrap());
    line("in process: a gateway puts the whole table in force", took);
    let tables = local.follow(control);
    let mut growing = Growing::from(&first);
    one_pin(&gateway, &tables, &mut growing, repeats).await;
    drop(gateway);
    over_the_link(growing, repeats).await;
}

/// One pin after the other, told to a gateway in this process.
async fn one_pin(gateway: &GatewayEnd, tables: &Arc<Tables>, growing: &mut Growing, repeats: usize) {
    let mut took = Vec::new();
    for n in 0..repeats {
        let next = growing.moved(n * 7);
        let begin = Instant::now();
        gateway.view.send_modify(|view| view.table = next.clone());
        tables.reaches(next.revision, LONG).await.unwrap();
        took.push(begin.elapsed());
    }
    lines("in process: one pin changed, told to in force, wake-ups included", took);
}

/// The same table to three gateways over loopback; then one pin after the other; then the file that each saves.
async fn over_the_link(mut growing: Growing, repeats: usize) {
    let first = growing.table.clone();
    let fleet = Arc::new(Fleet::new(View { table: first.clone(), ..View::default() }));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let settings = ServerSettings { open: true, ..ServerSettings::default() };
    let serving = tokio::spawn(serve(listener, settings, fleet.clone(), std::future::pending()));
    let dirs: Vec<TempDir> = (0..GATEWAYS).map(|_| TempDir::new()).collect();
    let begin = Instant::now();
    let mut gateways = Vec::new();
    for (number, dir) in dirs.iter().enumerate() {
        let settings = FollowerSettings::new(name(number), vec![url.clone()]);
        gateways.push(Follower::start(settings, Some(Folder::open(dir.path()).unwrap())).unwrap());
    }
    let mut views: Vec<watch::Receiver<View>> = gateways.iter().map(|(_, end)| end.view.clone()).collect();
    all_have(&mut views, &first).await;
    line(&format!("over the link: the whole table at {GATEWAYS} gateways, verified"), begin.elapsed());
    // Saved is what a gateway has in force.
    for (_, end) in &gateways {
        end.status.send_modify(|status| {
            let mut now = (**status).clone();
            (now.in_force, now.oldest) = (first.revision, first.revision);
            *status = Arc::new(now);
        });
    }
    let mut took = Vec::new();
    for n in 0..repeats {
        let next = growing.moved(n * 11);
        let begin = Instant::now();
        fleet.tell(&next);
        all_have(&mut views, &next).await;
        took.push(begin.elapsed());
    }
    lines(&format!("over the link: one pin changed, at {GATEWAYS} gateways, verified"), took);
    let files = dirs.iter().map(|dir| dir.join("last-good.table"));
    let file = files.into_iter().next().unwrap();
    while !file.exists() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(gateways);
    serving.abort();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let folder = Folder::open(dirs[0].path()).unwrap();
    let (held, took) = timed(|| folder.load().unwrap().unwrap());
    line("from the file: the saved table read and verified", took);
    let size = std::fs::metadata(&file).unwrap().len();
    println!("{:<72} {:>9.1} MB", "from the file: its size", size as f64 / 1e6);
    assert!(held.table().entries.len() > 1_000);
}

async fn all_have(views: &mut [watch::Receiver<View>], table: &Arc<Table>) {
    for view in views {
        let reached = view.wait_for(|view| view.table.revision >= table.revision);
        let reached = tokio::time::timeout(LONG, reached).await.expect("the table in time").expect("a link");
        assert_eq!(reached.table.digest, table.digest);
    }
}

fn name(number: usize) -> GatewayName {
    GatewayName::parse(&format!("g{number}")).unwrap()
}

mod parking {
    //! A control plane of a few lines.

    use std::sync::{Arc, Mutex};

    use super::{GatewayEnd, GatewayName, Plane, Table, View};

    pub struct Fleet {
        view: Mutex<View>,
        ends: Mutex<Vec<GatewayEnd>>,
    }

    impl Fleet {
        pub fn new(view: View) -> Self {
            Self { view: Mutex::new(view), ends: Mutex::default() }
        }

        pub fn tell(&self, table: &Arc<Table>) {
            self.view.lock().unwrap().table = table.clone();
            for end in self.ends.lock().unwrap().iter() {
                end.view.send_modify(|view| view.table = table.clone());
            }
        }
    }

    impl Plane for Fleet {
        fn view(&self, _: &GatewayName) -> View {
            self.view.lock().unwrap().clone()
        }

        fn attach(&self, end: GatewayEnd) {
            end.view.send_replace(self.view.lock().unwrap().clone());
            self.ends.lock().unwrap().push(end);
        }
    }
}
