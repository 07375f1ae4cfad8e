//! Metadata, readiness, inference: what a client of the protocol sees.

use bytes::Bytes;
use holdfast_model_server::model::Place;
use holdfast_model_server::{Layout, Model, Options, PROBE, start};
use http::StatusCode;
use serde_json::{Value, json};

use crate::client::{Bench, Folder, one_text, request, send, verdict};

fn hold_all(options: &mut Options) {
    options.load_all = true;
}

#[tokio::test]
async fn an_answer_is_exactly_this() {
    let bench = Bench::new(hold_all).await;
    let answer = bench.judge("sanctioned coffee").await;
    let bytes = std::fs::read(bench.folder.join("screen-1/model.json")).unwrap();
    let model = Model::parse(&bytes, Place { name: "screen-1", version: None }).unwrap();
    let scores = model.classify("sanctioned coffee").scores;
    let golden = format!(
        concat!(
            r#"{{"model_name":"screen-1","model_version":"1","id":"r-1","outputs":["#,
            r#"{{"name":"label","datatype":"BYTES","shape":[1],"data":["hit"]}},"#,
            r#"{{"name":"score","datatype":"FP32","shape":[1,2],"data":[{},{}]}}]}}"#
        ),
        scores[0], scores[1]
    );
    assert_eq!(String::from_utf8_lossy(&answer.body), golden);
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, Some("application/json")));
    assert_eq!(answer.header("inference-header-content-length"), None);
}

#[tokio::test]
async fn the_verdict_alone_tells_the_version() {
    let bench = Bench::with_layout(Layout::Versions, hold_all).await;
    let mut seen = Vec::new();
    for (version, label) in [("1", "clean"), ("2", "hit"), ("10", "clean")] {
        let path = format!("/v2/models/screen/versions/{version}/infer");
        let answer = bench.post(&path, one_text(PROBE)).await;
        assert_eq!(verdict(&answer), (label.to_owned(), version.to_owned()));
        seen.push(answer.json()["outputs"][1]["data"].to_string());
    }
    seen.dedup();
    assert_eq!(seen.len(), 3, "scores differ between versions: {seen:?}");
    let answer = bench.post("/v2/models/screen/infer", one_text(PROBE)).await;
    assert_eq!(verdict(&answer).1, "10", "without a version the largest answers, without a word");
}

#[tokio::test]
async fn binary_tensors_go_both_ways() {
    let bench = Bench::new(hold_all).await;
    let plain = bench.judge(PROBE).await.json();
    let tail = [&(PROBE.len() as u32).to_le_bytes()[..], PROBE.as_bytes()].concat();
    let head = json!({
        "inputs": [{ "name": "text", "shape": [1], "datatype": "BYTES", "parameters": { "binary_data_size": tail.len() } }],
        "parameters": { "binary_data_output": true },
    })
    .to_string();
    let mut asked = request("POST", "/v2/models/screen-1/infer", [head.as_bytes(), &tail].concat());
    asked.headers_mut().insert("Inference-Header-Content-Length", head.len().into());
    let answer = send(bench.server.address(), asked).await.unwrap();
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    let length: usize = answer.header("inference-header-content-length").unwrap().parse().unwrap();
    let (json, binary) = answer.body.split_at(length);
    let json: Value = serde_json::from_slice(json).unwrap();
    assert_eq!(json["outputs"][0]["parameters"]["binary_data_size"], 9);
    assert_eq!(json["outputs"][1]["parameters"]["binary_data_size"], 8);
    assert_eq!(&binary[..9], b"\x05\0\0\0clean");
    let scores: Vec<f32> = binary[9..].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    let plain = plain["outputs"][1]["data"].as_array().unwrap().iter().map(|score| score.as_f64().unwrap() as f32);
    assert_eq!(scores, plain.collect::<Vec<_>>(), "the shortest decimal form names the same number");
}

#[tokio::test]
async fn metadata_lists_tensors_and_the_digest_of_the_file() {
    let bench = Bench::with_layout(Layout::Versions, hold_all).await;
    let server = bench.get("/v2").await.json();
    assert_eq!(server["extensions"], json!(["model_repository", "binary_tensor_data"]));
    let model = bench.get("/v2/models/screen/versions/2").await.json();
    assert_eq!(model["versions"], json!(["1", "2", "10"]));
    assert_eq!(model["inputs"], json!([{ "name": "text", "datatype": "BYTES", "shape": [-1] }]));
    assert_eq!(model["outputs"][1], json!({ "name": "score", "datatype": "FP32", "shape": [-1, 2] }));
    let bytes = std::fs::read(bench.folder.join("screen/2/model.json")).unwrap();
    assert_eq!(model["parameters"]["digest"], format!("blake3:{}", blake3::hash(&bytes).to_hex()));
}

#[tokio::test]
async fn health_does_not_depend_on_models_but_readiness_of_a_model_does() {
    let bench = Bench::new(|_| {}).await;
    for path in ["/v2/health/live", "/v2/health/ready"] {
        assert_eq!(bench.get(path).await.status, StatusCode::OK, "{path}");
    }
    assert_eq!(bench.get("/v2/models/screen-1/ready").await.status, StatusCode::NOT_FOUND);
    assert_eq!(bench.load("screen-1").await.status, StatusCode::OK);
    for (path, status) in [
        ("/v2/models/screen-1/ready", StatusCode::OK),
        ("/v2/models/screen-1/versions/1/ready", StatusCode::OK),
        ("/v2/models/screen-1/versions/2/ready", StatusCode::NOT_FOUND),
    ] {
        assert_eq!(bench.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn errors_have_the_protocols_shape_and_statuses() {
    let bench = Bench::new(hold_all).await;
    for (method, path, body, status, says) in [
        ("POST", "/v2/models/none/infer", one_text("x"), 404, "Request for unknown model: 'none' is not found"),
        ("POST", "/v2/models/screen-1/versions/7/infer", one_text("x"), 404, "'screen-1' version 7 is not found"),
        ("POST", "/v2/models/screen-1/infer", "{}".to_owned(), 400, "missing field `inputs`"),
        ("GET", "/v2/models/none", String::new(), 404, "'none' is not found"),
        ("POST", "/v2/repository/index", "[".to_owned(), 400, "failed to parse"),
        ("POST", "/v2/repository/models/..%2f/load", String::new(), 404, "no model"),
        ("POST", "/v2/repository/models/../load", String::new(), 404, "no model"),
        ("POST", "/v2/repository/models/none/unload", String::new(), 404, "Model none not found"),
        ("POST", "/control/faults", r#"{"hung":1}"#.to_owned(), 400, "unknown field"),
        ("GET", "/v3", String::new(), 404, "Not Found"),
        ("PUT", "/v2", String::new(), 405, "Method Not Allowed"),
    ] {
        let answer = send(bench.server.address(), request(method, path, body)).await.unwrap();
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.error().contains(says), "{path}: {}", answer.error());
    }
}

#[tokio::test]
async fn compressed_bodies_are_refused_by_name() {
    let bench = Bench::new(hold_all).await;
    let mut asked = request("POST", "/v2/models/screen-1/infer", Bytes::from_static(&[0x1f, 0x8b]));
    asked.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
    let answer = send(bench.server.address(), asked).await.unwrap();
    assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

#[tokio::test]
async fn stats_count_executions_and_name_the_headers_received() {
    let bench = Bench::new(hold_all).await;
    let mut asked = request("POST", "/v2/models/screen-2/infer", one_text("x"));
    asked.headers_mut().insert("traceparent", "00-1-2-01".parse().unwrap());
    send(bench.server.address(), asked).await.unwrap();
    let stats = bench.get("/control/stats").await.json();
    assert_eq!(stats["executions"], json!([{ "model": "screen-2", "version": "2", "count": 1 }]));
    assert_eq!(stats["last_request_headers"], json!(["host", "traceparent", "content-length"]));
    assert_eq!(stats["requests"], json!({ "received": 1, "in_flight": 0, "max_in_flight": 1 }));
}

#[tokio::test]
async fn control_can_be_left_out() {
    let bench = Bench::new(|options| options.no_control = true).await;
    for path in ["/control/stats", "/control/faults"] {
        assert_eq!(bench.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn http_2_is_served_on_the_same_port() {
    let bench = Bench::new(hold_all).await;
    let stream = tokio::net::TcpStream::connect(bench.server.address()).await.unwrap();
    let executor = hyper_util::rt::TokioExecutor::new();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let uri = format!("{}/v2/models/screen-1/infer", bench.server.url());
    let asked = http::Request::post(uri).body(http_body_util::Full::new(Bytes::from(one_text("x")))).unwrap();
    let answer = tokio::select! {
        answer = sender.send_request(asked) => answer.unwrap(),
        ended = connection => panic!("{ended:?}"),
    };
    assert_eq!((answer.status(), answer.version()), (StatusCode::OK, http::Version::HTTP_2));
}

#[tokio::test]
async fn a_stopped_server_frees_its_port_and_the_port_file_has_it() {
    let folder = Folder::new();
    let file = folder.join("port");
    let options = Options { port_file: Some(file.clone()), ..Options::new(&folder.0) };
    let first = start(options.clone()).await.unwrap();
    let address = first.address();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{}\n", address.port()));
    first.stop().await;
    let second = start(Options { listen: address, ..options }).await.unwrap();
    second.kill().await;
}
