//! `holdfast backup` of a process that runs: it is asked over its admin port, and what it sends is written as it comes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Method, Request};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use serde_json::Value;

use super::{Failure, run_to_end};
use crate::cli::AdminArgs;
use crate::link::{Link, within};
use crate::output;

/// How long it may take to write the backup on its side.
const TAKE: Duration = Duration::from_secs(330);
/// How long no byte may come.
const IDLE: Duration = Duration::from_secs(60);
/// The most bytes of a refusal.
const WORDS: usize = 64 * 1024;

/// Asks, and writes the file.
pub fn run(args: &AdminArgs, file: &Path) -> Result<(), Failure> {
    run_to_end(1, async {
        let mut part = Part::create(file)?;
        let mut answer = ask(args).await?;
        let revision =
            answer.headers().get("x-holdfast-revision").and_then(|v| v.to_str().ok()).unwrap_or("-").to_owned();
        let length = receive(&mut answer, &mut part).await?;
        part.publish(file)?;
        output::say(&format!("written     {}", file.display()));
        output::say(&format!("revision    {revision}"));
        output::say(&format!("holds       {length} bytes"));
        Ok(())
    })
}

async fn ask(args: &AdminArgs) -> Result<http::Response<Incoming>, Failure> {
    let link = Link::new(args)?;
    let gone = |why: String| {
        Failure::failed(format!("no gateway answers at {}: {why}\nis it running, and is --admin right?", args.admin))
    };
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static("/v1/backup");
    link.sign(request.headers_mut());
    let mut sender = link.open().await.map_err(gone)?;
    let answer = within(TAKE, sender.send_request(request)).await.map_err(gone)?;
    if answer.status().is_success() { Ok(answer) } else { Err(refused(answer).await) }
}

async fn refused(answer: http::Response<Incoming>) -> Failure {
    let status = answer.status();
    let body = http_body_util::Limited::new(answer.into_body(), WORDS).collect();
    let body = tokio::time::timeout(IDLE, body).await.ok().and_then(Result::ok).map(|b| b.to_bytes());
    let told: Value = body.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    let detail = told["detail"].as_str().unwrap_or("no reason given");
    Failure::failed(format!("the gateway answers {status}: {detail}"))
}

/// The body, to its announced end: what ends before is told as such by the connection.
async fn receive(answer: &mut http::Response<Incoming>, part: &mut Part) -> Result<u64, Failure> {
    let cut = |why: String| Failure::failed(format!("the backup was cut on its way: {why}"));
    let mut length = 0u64;
    loop {
        let frame = tokio::time::timeout(IDLE, answer.body_mut().frame());
        match frame.await.map_err(|_| cut(format!("nothing within {} s", IDLE.as_secs())))? {
            None => return Ok(length),
            Some(frame) => {
                let Ok(bytes) = frame.map_err(|e| cut(e.to_string()))?.into_data() else { continue };
                part.write(&bytes)?;
                length += bytes.len() as u64;
            }
        }
    }
}

/// A file beside its place. It is gone at the end, unless it was put there.
struct Part {
    file: std::fs::File,
    path: PathBuf,
}

impl Part {
    fn create(place: &Path) -> Result<Self, Failure> {
        if place.exists() {
            return Err(Failure::failed(format!("{} is there already", place.display())));
        }
        let mut name = place.file_name().unwrap_or_default().to_owned();
        name.push(format!(".new-{}", std::process::id()));
        let path = place.with_file_name(name);
        let file = std::fs::File::create_new(&path).map_err(|e| cannot(&path, &e))?;
        Ok(Self { file, path })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(|e| cannot(&self.path, &e))
    }

    /// A link, unlike a rename, never replaces a file that has appeared meanwhile.
    fn publish(self, place: &Path) -> Result<(), Failure> {
        let done = self.file.sync_all().and_then(|()| std::fs::hard_link(&self.path, place));
        done.map_err(|e| cannot(place, &e))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()))
}
