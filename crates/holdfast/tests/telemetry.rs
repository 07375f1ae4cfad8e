//! Metrics, access log and process log of a running gateway: bounded, well-formed, complete, and without a secret.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod operation_support;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;

use holdfast_testkit::metrics::promtool_check;
use holdfast_testkit::raw::RawClient;
use holdfast_testkit::v2_stub::{V2, infer_answer};
use holdfast_testkit::{Holdfast, Script, Stub, TempDir, eventually};
use operation_support::{
    ask, binary, json_lines, model_server, one_pool, pipeline, repository, served, tenant, versions,
};

const INFER: &str = "/v2/models/screen/infer";

/// Four kinds of requests with a name of their own each: model, path, method, tenant.
fn stranger(number: usize) -> Vec<u8> {
    let request = match number % 4 {
        0 => format!("GET /v2/models/m{number} HTTP/1.1\r\nhost: h{number}\r\nx-tenant: acme\r\n\r\n"),
        1 => format!("GET /p{number} HTTP/1.1\r\nhost: h{number}\r\nx-tenant: acme\r\n\r\n"),
        2 => format!("M{number} /v2 HTTP/1.1\r\nhost: h{number}\r\nx-tenant: acme\r\n\r\n"),
        _ => format!("GET /v2/models/screen HTTP/1.1\r\nhost: h{number}\r\nx-tenant: t{number}\r\n\r\n"),
    };
    request.into_bytes()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_names_of_strangers_add_no_series() {
    let repository = repository(&["screen"], &["1"]);
    let server = model_server(&repository, "r1", &[]).await;
    let config =
        format!("log: {{ access: \"off\" }}\n{}tenants:\n{}", one_pool(&[&server], &["1"]), tenant("acme", "1"));
    let holdfast = Holdfast::start(binary(), &config).await;
    served(&holdfast, "acme", INFER).await;
    let addr = holdfast.data.addr();
    pipeline(addr, (0..8).map(stranger)).await;
    let before = holdfast.metrics().await.names();
    let mut running = JoinSet::new();
    for part in 0..4 {
        running.spawn(pipeline(addr, (0..25_000).map(move |n| stranger(100 + part * 25_000 + n))));
    }
    let mut answered = 0;
    while let Some(counts) = running.join_next().await {
        let counts = counts.unwrap();
        assert!(counts.keys().all(|status| (400..500).contains(status)), "{counts:?}");
        answered += counts.values().sum::<usize>();
    }
    assert_eq!(answered, 100_000);
    let text = holdfast.admin.get("/metrics", &[]).await.expect(200).text();
    assert_eq!(promtool_check(&text), Ok(()));
    let metrics = holdfast.metrics().await;
    let added: Vec<String> = metrics.names().difference(&before).cloned().collect();
    assert!(added.is_empty(), "{added:?}");
    assert!(metrics.sum("holdfast_requests_total", &[]) >= 100_000.0, "all of them are counted all the same");
}

#[tokio::test]
async fn tenants_beyond_the_bound_share_a_name_and_keep_accounts_of_their_own() {
    let repository = repository(&["screen"], &["1"]);
    let server = model_server(&repository, "r1", &[]).await;
    let tenants: String = (0..20).map(|n| tenant(&format!("t{n:02}"), "1")).collect();
    let config = format!("metrics: {{ tenants: 5 }}\n{}tenants:\n{tenants}", one_pool(&[&server], &["1"]));
    let holdfast = Holdfast::start(binary(), &config).await;
    for number in 0..20 {
        served(&holdfast, &format!("t{number:02}"), INFER).await;
    }
    let metrics = eventually("all requests to be counted", Duration::from_secs(5), async || {
        let metrics = holdfast.metrics().await;
        (metrics.sum("holdfast_requests_total", &[("status", "200"), ("endpoint", "infer")]) >= 20.0).then_some(metrics)
    })
    .await;
    let names: BTreeSet<&str> =
        metrics.matching("holdfast_requests_total", &[]).map(|s| s.labels["tenant"].as_str()).collect();
    assert_eq!(names.iter().filter(|name| name.starts_with('t')).count(), 5, "{names:?}");
    assert_eq!(metrics.sum("holdfast_requests_total", &[("tenant", "other"), ("status", "200")]), 15.0);
    let usage = holdfast.admin_get("/v1/usage").await;
    let rows = usage["usage"].as_array().unwrap();
    assert_eq!(rows.len(), 20, "{usage}");
    assert!(
        rows.iter().all(|row| row["requests"].as_u64() >= Some(1) && row["bytes_in"].as_u64() > Some(0)),
        "{usage}"
    );
}

fn log_config(path: &Path, more: &str) -> String {
    format!("log: {{ file: \"{}\"{more} }}\n", path.display())
}

#[tokio::test]
async fn an_access_record_says_who_what_and_where_the_time_went() {
    let (repository, logs) = (repository(&["screen"], &["1", "2"]), TempDir::new());
    let server = model_server(&repository, "r1", &["--load-time", "200ms", "--fault", "infer_delay=30ms"]).await;
    let path = logs.join("access.log");
    let config = format!(
        "{}{}tenants:\n  - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }}, allow: {{ screen: [\"2\"] }} }}\n",
        log_config(&path, ""),
        one_pool(&[&server], &["1", "2"])
    );
    let holdfast = Holdfast::start(binary(), &config).await;
    served(&holdfast, "acme", INFER).await;
    let cold = holdfast.infer("acme", "/v2/models/screen/versions/2/infer", &ask("coffee")).await.expect(200);
    let refused = holdfast.infer("nobody", INFER, &ask("coffee")).await.expect(403);
    let id = |answer: &holdfast_testkit::http::Answer| answer.header("x-holdfast-request-id").to_owned();
    let find = async |id: String| {
        eventually("the record", Duration::from_secs(5), async || {
            json_lines(&path).into_iter().find(|line| line["request_id"] == id.as_str())
        })
        .await
    };
    let record = find(id(&cold)).await;
    let expected = json!({
        "tenant": "acme", "model": "screen", "version": "2", "reason": "explicit", "replica": "r1", "method": "POST",
        "endpoint": "infer", "status": 200, "attempts": 1, "bytes_out": cold.body.len(),
        "bytes_in": ask("coffee").to_string().len(),
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&record[key], value, "{key}: {record}");
    }
    assert_eq!(record["revision"].to_string(), cold.header("x-holdfast-revision"));
    assert!(record["time"].as_str().unwrap().ends_with('Z') && record["client"].is_string(), "{record}");
    let micros = |key: &str| record[key].as_u64().unwrap_or_else(|| panic!("{key}: {record}"));
    let parts = micros("wait_us") + micros("upstream_us") + micros("gateway_us");
    assert!(parts.abs_diff(micros("total_us")) <= 3, "the parts make up the whole: {record}");
    assert!(micros("wait_us") >= 100_000 && micros("upstream_us") >= 30_000, "a load, then the model: {record}");

    let record = find(id(&refused)).await;
    assert_eq!((&record["status"], &record["error"]), (&json!(403), &json!("forbidden")), "{record}");
    for absent in ["tenant", "model", "version", "revision", "replica", "upstream_us"] {
        assert!(record[absent].is_null(), "{absent}: {record}");
    }
    let ids: Vec<String> = json_lines(&path).iter().map(|l| l["request_id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "one record for each request");
}

#[tokio::test]
async fn a_rotated_access_log_goes_on_in_a_new_file() {
    let (repository, logs) = (repository(&["screen"], &["1"]), TempDir::new());
    let server = model_server(&repository, "r1", &[]).await;
    let (path, rotated) = (logs.join("access.log"), logs.join("access.log.1"));
    let config = format!("{}{}tenants:\n{}", log_config(&path, ""), one_pool(&[&server], &["1"]), tenant("acme", "1"));
    let holdfast = Holdfast::start(binary(), &config).await;
    served(&holdfast, "acme", INFER).await;
    eventually("a record", Duration::from_secs(5), async || (!json_lines(&path).is_empty()).then_some(())).await;
    std::fs::rename(&path, &rotated).unwrap();
    let told = Command::new("kill").args(["-USR1", &holdfast.proc.pid().to_string()]).status().unwrap();
    assert!(told.success());
    eventually("the new file", Duration::from_secs(5), async || path.exists().then_some(())).await;
    let old = json_lines(&rotated).len();
    let answer = holdfast.infer("acme", INFER, &ask("coffee")).await.expect(200);
    let id = answer.header("x-holdfast-request-id").to_owned();
    eventually("the record in the new file", Duration::from_secs(5), async || {
        json_lines(&path).iter().any(|line| line["request_id"] == id.as_str()).then_some(())
    })
    .await;
    assert!(json_lines(&rotated).iter().all(|line| line["request_id"] != id.as_str()));
    assert!(json_lines(&rotated).len() >= old, "nothing of the old file is lost");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_nobody_reads_costs_records_and_no_request() {
    let (repository, logs) = (repository(&["screen"], &["1"]), TempDir::new());
    let server = model_server(&repository, "r1", &[]).await;
    let path = logs.join("access.pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    // Open for reading, and not read: the pipe fills up, then the queue.
    let pipe = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let config = format!("{}{}tenants:\n{}", log_config(&path, ""), one_pool(&[&server], &["1"]), tenant("acme", "1"));
    let holdfast = Holdfast::start(binary(), &config).await;
    served(&holdfast, "acme", INFER).await;
    let probe = || b"GET /livez HTTP/1.1\r\nhost: h\r\n\r\n".to_vec();
    let counts = pipeline(holdfast.data.addr(), (0..30_000).map(|_| probe())).await;
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [(200, 30_000)]);
    let dropped = holdfast.metrics().await.sum("holdfast_access_records_dropped_total", &[]);
    assert!(dropped > 5_000.0, "two batches and a pipe hold far fewer than 30,000, and {dropped} were dropped");
    assert_eq!(served(&holdfast, "acme", INFER).await, "1");
    // Somebody reads again: records flow again, each whole.
    let mut pipe = tokio::fs::File::from_std(pipe);
    let mut text = Vec::new();
    let wanted = holdfast.infer("acme", INFER, &ask("coffee")).await.expect(200);
    let mut wanted = wanted.header("x-holdfast-request-id").to_owned();
    let reading = async {
        let mut piece = vec![0; 1 << 20];
        while !String::from_utf8_lossy(&text).contains(&wanted) {
            match tokio::time::timeout(Duration::from_millis(300), pipe.read(&mut piece)).await {
                Ok(read) => text.extend_from_slice(&piece[..read.unwrap()]),
                // The queue is empty: this one will not be dropped.
                Err(_) => {
                    let answer = holdfast.infer("acme", INFER, &ask("coffee")).await.expect(200);
                    wanted = answer.header("x-holdfast-request-id").to_owned();
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(15), reading).await.expect("records flow again");
    let text = String::from_utf8(text).unwrap();
    let whole = text.rsplit_once('\n').unwrap().0;
    assert!(whole.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "no record is torn");
}

/// A word that must not come out anywhere.
const CANARY: &str = "canary-7f3a9";

/// A gateway at its most talkative, whose two outputs go to a file, in front of replicas that repeat what they are sent.
struct Talkative {
    holdfast: Holdfast,
    logs: TempDir,
    _stub: Stub,
}

/// A command that runs the gateway with its output in a file, since all of it is to be looked at.
fn recorded(logs: &TempDir) -> PathBuf {
    let script = logs.join("holdfast.sh");
    let text = format!("#!/bin/sh\nexec {} \"$@\" >>{} 2>&1\n", binary().display(), logs.join("output.log").display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

impl Talkative {
    async fn new() -> Self {
        let logs = TempDir::new();
        let script = recorded(&logs);
        let v2 = V2::loaded(&[
            ("screen-1", "1"),
            ("screen-2", "2"),
            ("screen-3", "3"),
            ("screen-4", "4"),
            ("screen-5", "5"),
            ("rank-1", "1"),
            ("rank-2", "2"),
        ]);
        let stub = Stub::start(move |request| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let told = json!({ "error": format!("cannot judge {body} {:?}", request.headers) });
            match request.path.split('?').next().unwrap_or_default() {
                "/v2/models/screen-2/infer" => Script::json(500, &told),
                "/v2/models/screen-3/infer" => Script::json(400, &told),
                "/v2/models/screen-4/infer" => Script::json(200, &infer_answer(request, &format!("wrong {body}"), "9")),
                "/v2/models/screen-5/infer" => Script::never(),
                _ => v2.answer(request),
            }
        })
        .await;
        let config = format!(
            "log: {{ level: trace, file: \"{}\" }}\nlimits: {{ body: 64KiB }}\n\
             auth: {{ trusted_header: x-tenant, trusted_user_header: x-user }}\nreceipts: {{ disk: {{}} }}\n\
             experiments: [{{ name: ab, model: rank, status: running, arms: [{{ name: a, version: \"1\" }}, {{ name: b, version: \"2\" }}] }}]\n\
             pools:\n  - name: p\n    protocol: open-inference\n    residency: repository\n    upstream: {{ version: \"\" }}\n    \
             replicas: [{{ name: r1, url: \"{}\", memory: 24GiB }}]\nmodels:\n  \
             - {{ name: screen, pool: p, versions: {} }}\n  - {{ name: rank, pool: p, versions: {} }}\ntenants:\n  \
             - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }}, allow: {{ screen: [\"2\", \"3\", \"4\", \"5\"] }} }}\n  \
             - {{ name: lab, subset: 1, pins: {{ rank: \"1\" }} }}\n",
            logs.join("access.log").display(),
            stub.url(),
            versions(&["1", "2", "3", "4", "5"]),
            versions(&["1", "2"]),
        );
        let holdfast = Holdfast::start(&script, &config).await;
        served(&holdfast, "acme", INFER).await;
        Self { holdfast, logs, _stub: stub }
    }

    /// All that is in the files of a folder of the state.
    fn kept(&self, folder: &str) -> String {
        let files = std::fs::read_dir(self.holdfast.state_path().join(folder)).into_iter().flatten().flatten();
        let bytes: Vec<u8> = files.flat_map(|file| std::fs::read(file.path()).unwrap_or_default()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// One request with the canary wherever a client may put it.
    async fn send(&self, tenant: &str, path: &str, more: &[(&str, &str)], body: &str) -> (u16, String) {
        let path = format!("{path}?api_key={CANARY}-query");
        let secret = format!("{CANARY}-field");
        let mut fields = vec![
            ("x-tenant", tenant),
            ("authorization", &*secret),
            ("cookie", &secret),
            ("x-api-key", &secret),
            ("user-agent", &secret),
            ("traceparent", &secret),
            ("x-request-id", &secret),
            ("content-type", "application/json"),
        ];
        fields.extend(more);
        let (method, body) = if path.contains("/infer") { (Method::POST, body) } else { (Method::GET, "") };
        let answer = self.holdfast.data.send(method, &path, &fields, Bytes::from(body.to_owned())).await.unwrap();
        (answer.status.as_u16(), answer.header("x-holdfast-error").to_owned())
    }
}

/// The same over HTTP/2, whose frames have logs of their own.
async fn over_h2(holdfast: &Holdfast) -> u16 {
    let stream = tokio::net::TcpStream::connect(holdfast.data.addr()).await.unwrap();
    let (mut sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(driver);
    let uri = format!("http://h{INFER}?key={CANARY}-h2");
    let request = Request::post(uri).header("x-tenant", "acme").header("authorization", format!("{CANARY}-h2"));
    let body = ask(&format!("{CANARY}-h2")).to_string();
    let answer = sender.send_request(request.body(Full::new(Bytes::from(body))).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let _ = answer.into_body().collect().await;
    driver.abort();
    status
}

/// Status, kind of failure, tenant, path, further fields, body.
type Case<'a> = (u16, &'a str, &'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);

/// Receipts without the names of tenant, model and version that were asked for: a refusal could not be understood without them.
fn beside_names(text: &str) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.remove("asked");
                members.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(text).unwrap();
    strip(&mut value);
    value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_of_a_client_comes_out_nowhere_whatever_goes_wrong() {
    let world = Talkative::new().await;
    let body = ask(&format!("{CANARY}-body")).to_string();
    let large = format!("{CANARY}-large").repeat(8_000);
    let versioned = |version: &str| format!("/v2/models/screen/versions/{version}/infer");
    let named = format!("/v2/models/{CANARY}-model/infer");
    let unknown = format!("/{CANARY}-path");
    let timeout = format!("{CANARY}-timeout");
    let who = format!("{CANARY}-tenant");
    let encoded = "/v2/models/%FF/infer";
    let expected: [Case<'_>; 14] = [
        (200, "", "acme", INFER, &[], &body),
        (403, "forbidden", &who, INFER, &[], &body),
        (401, "unauthenticated", "a b", INFER, &[], &body),
        (404, "unknown_model", "acme", &named, &[], &body),
        (404, "not_pinned", "acme", "/v2/models/rank/infer", &[], &body),
        (403, "version_not_allowed", "acme", &versioned(&format!("{CANARY}-version")), &[], &body),
        (404, "bad_request", "acme", &unknown, &[], &body),
        (400, "bad_request", "acme", encoded, &[], &body),
        (400, "bad_request", "acme", INFER, &[("x-request-timeout-ms", &timeout)], &body),
        (413, "too_large", "acme", INFER, &[], &large),
        (502, "upstream_error", "acme", &versioned("2"), &[], &body),
        (400, "", "acme", &versioned("3"), &[], &body),
        (502, "wrong_version_served", "acme", &versioned("4"), &[], &body),
        (504, "upstream_timeout", "acme", &versioned("5"), &[("x-request-timeout-ms", "200")], &body),
    ];
    for (status, kind, tenant, path, more, body) in expected {
        if [502, 504].contains(&status) || path.ends_with("/3/infer") {
            // Loaded first, so that it is the replica that fails.
            eventually("a replica to answer", Duration::from_secs(10), async || {
                let (_, kind) = world.send(tenant, path, more, body).await;
                (kind != "no_holder").then_some(())
            })
            .await;
        }
        let told = world.send(tenant, path, more, body).await;
        let is_same = told == (status, kind.to_owned());
        // A version that was caught lying is out of service until a probe clears it.
        assert!(is_same || (kind == "wrong_version_served" && told.0 == 503), "{path}: {told:?}");
    }
    for malformed in [
        format!("GET /v2 HTTP/1.1\r\nhost: h\r\n{CANARY} : x\r\n\r\n"),
        format!("POST {INFER} HTTP/1.1\r\nhost: h\r\ncontent-length: {CANARY}\r\n\r\n"),
        format!("{CANARY}\r\n\r\n"),
        format!("POST {INFER} HTTP/1.1\r\nhost: h\r\nx-tenant: acme\r\ntransfer-encoding: chunked\r\n\r\n{CANARY}\r\n"),
        format!("GET /v2 HTTP/1.1\r\nhost: h\r\nx: {}\r\n\r\n", CANARY.repeat(5_000)),
    ] {
        let mut client = RawClient::connect(world.holdfast.data.addr()).await;
        client.write(&malformed).await;
        client.half_close().await;
        let answer = client.answer("GET").await.unwrap();
        assert!((400..500).contains(&answer.status), "{malformed:.60}: {}", answer.status);
    }
    assert_eq!(over_h2(&world.holdfast).await, 200);
    // One whose experiment is told to files, by somebody whose name is a secret, too.
    let user = format!("{CANARY}-user");
    let key = format!("{CANARY}-key");
    eventually("an exposure", Duration::from_secs(15), async || {
        let more = [("x-user", user.as_str()), ("idempotency-key", key.as_str())];
        let _ = world.send("lab", "/v2/models/rank/infer", &more, &body).await;
        (!world.kept("exposures").is_empty()).then_some(())
    })
    .await;
    let asked = world.holdfast.infer("acme", INFER, &ask("coffee")).await.expect(200);
    let last = asked.header("x-holdfast-request-id").to_owned();
    eventually("audit and receipts on disk", Duration::from_secs(15), async || {
        (world.kept("audit").contains(&last) && world.kept("receipts").contains(&last)).then_some(())
    })
    .await;

    let requests = world.holdfast.metrics().await.sum("holdfast_requests_total", &[]);
    eventually("all records to be written", Duration::from_secs(5), async || {
        (json_lines(&world.logs.join("access.log")).len() as f64 >= requests - 5.0).then_some(())
    })
    .await;
    let mut places = Vec::new();
    let explained = "/v1/explain?tenant=acme&model=screen";
    let receipts = world.holdfast.admin_get("/v1/receipts?limit=1000").await;
    places.push(("receipts".to_owned(), beside_names(&receipts.to_string()).to_string()));
    let shown = ["/metrics", "/v1/table", "/v1/replicas", "/v1/alarms", "/v1/usage", "/readyz?verbose", explained];
    for folder in ["audit", "exposures"] {
        places.push((format!("files of {folder}"), world.kept(folder)));
    }
    let lines = world.kept("receipts");
    assert!(lines.lines().count() > 10, "{lines}");
    lines.lines().for_each(|line| places.push(("a receipt on disk".to_owned(), beside_names(line).to_string())));
    for path in shown {
        places.push((path.to_owned(), world.holdfast.admin.get(path, &[]).await.text()));
    }
    for file in
        [world.logs.join("access.log"), world.logs.join("output.log"), world.holdfast.state_path().join("table.redb")]
    {
        let bytes = std::fs::read(&file).unwrap();
        places.push((file.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    assert!(places.iter().all(|(_, text)| !text.is_empty()));
    for (place, text) in places {
        let found = text
            .find(CANARY)
            .map(|at| text.get(at.saturating_sub(200)..).unwrap_or(&text[at..]).chars().take(300).collect::<String>());
        assert_eq!(found, None, "in {place}");
    }
}
