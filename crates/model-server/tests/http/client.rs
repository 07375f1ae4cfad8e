//! A client that says exactly what it is told to, a server on a temporary repository, and waiting without luck.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_model_server::{Faults, Layout, Options, Running, Span, Stats, start, write_sample_repository};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Longer than anything here takes; only a failing test waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// An answer in full.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|why| panic!("{why}: {:?}", self.body))
    }

    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().unwrap().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// One request on a connection of its own. The error is that of a connection or answer that broke.
pub(crate) async fn send(address: SocketAddr, request: Request<Bytes>) -> Result<Answer, hyper::Error> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let answer = sender.send_request(request.map(Full::new)).await?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok::<_, hyper::Error>(Answer { status: parts.status, headers: parts.headers, body })
    };
    let both = async {
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            broken = connection => { broken?; exchange.await }
        }
    };
    tokio::time::timeout(LIMIT, both).await.expect("an answer in time")
}

/// A server on a repository of its own, which is removed with it.
pub(crate) struct Bench {
    pub(crate) server: Running,
    pub(crate) folder: Folder,
}

impl Bench {
    /// Two models, `screen` and `rank`, with versions 1, 2 and 10; nothing held; loads take no time.
    pub(crate) async fn new(change: impl FnOnce(&mut Options)) -> Self {
        Self::with_layout(Layout::Names, change).await
    }

    pub(crate) async fn with_layout(layout: Layout, change: impl FnOnce(&mut Options)) -> Self {
        let folder = Folder::new();
        write_sample_repository(&folder.0, layout, &["screen", "rank"], &["1", "2", "10"]).unwrap();
        let mut options = Options::new(&folder.0);
        options.layout = layout;
        options.load_time = Span(Duration::ZERO);
        change(&mut options);
        Self { server: start(options).await.unwrap(), folder }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        send(self.server.address(), request("GET", path, "")).await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        send(self.server.address(), request("POST", path, body)).await.unwrap()
    }

    pub(crate) async fn try_post(&self, path: &str, body: impl Into<Bytes>) -> Result<Answer, hyper::Error> {
        send(self.server.address(), request("POST", path, body)).await
    }

    pub(crate) async fn load(&self, name: &str) -> Answer {
        self.post(&format!("/v2/repository/models/{name}/load"), "").await
    }

    /// Judges one text with `screen-1`, or fails to.
    pub(crate) async fn judge(&self, text: &str) -> Answer {
        self.post("/v2/models/screen-1/infer", one_text(text)).await
    }

    pub(crate) fn faults(&self, settings: &[&str]) {
        self.server.set_faults(Faults::from_settings(settings).unwrap());
    }

    /// The rows of the index as `name:version STATE reason`.
    pub(crate) async fn index(&self, body: &'static str) -> Vec<String> {
        let answer = self.post("/v2/repository/index", body).await;
        assert_eq!(answer.status, StatusCode::OK);
        let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        let row = |row: &Value| {
            let line = format!("{}:{} {}", text(row, "name"), text(row, "version"), text(row, "state"));
            format!("{line} {}", text(row, "reason")).trim_end().to_owned()
        };
        answer.json().as_array().unwrap().iter().map(row).collect()
    }

    /// Waits until the counts are as wished.
    pub(crate) async fn until(&self, what: &str, wished: impl Fn(&Stats) -> bool) -> Stats {
        let start = Instant::now();
        loop {
            let stats = self.server.stats();
            if wished(&stats) {
                return stats;
            }
            assert!(start.elapsed() < LIMIT, "{what} did not come: {stats:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

pub(crate) fn request(method: &str, path: &str, body: impl Into<Bytes>) -> Request<Bytes> {
    Request::builder().method(method).uri(path).header("host", "model-server").body(body.into()).unwrap()
}

pub(crate) fn one_text(text: &str) -> String {
    let text = serde_json::to_string(text).unwrap();
    format!(r#"{{"id":"r-1","inputs":[{{"name":"text","shape":[1],"datatype":"BYTES","data":[{text}]}}]}}"#)
}

/// The outputs of an answer: the first label and its version as stamped.
pub(crate) fn verdict(answer: &Answer) -> (String, String) {
    let json = answer.json();
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    (text(&json["outputs"][0]["data"][0]), text(&json["model_version"]))
}

/// A folder of its own under the system's temporary folder.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("holdfast-model-server-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
