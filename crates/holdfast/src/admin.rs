//! Asking a running gateway over its admin port.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use serde_json::Value;

use holdfast_net::{Connector, Fetch, Target, Tasks};

use crate::cli::AdminArgs;
use crate::command::Failure;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Gets a resource.
///
/// # Errors
/// The gateway cannot be reached, or refuses; in words that say what to do.
pub fn get(args: &AdminArgs, path: &str) -> Result<Value, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::failed(format!("cannot start: {e}")))?;
    runtime.block_on(ask(args, path, Tasks::new(runtime.handle().clone())))
}

async fn ask(args: &AdminArgs, path: &str, tasks: Tasks) -> Result<Value, Failure> {
    let wrong = || Failure::wrong(format!("--admin {:?} is not a URL such as http://127.0.0.1:7401", args.admin));
    let authority = args.admin.trim_end_matches('/').strip_prefix("http://").ok_or_else(wrong)?;
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let connector = Arc::new(Connector::new(Target::new(host, port)));
    let mut fetch = Fetch::new(connector, authority, tasks);
    if let Some(file) = &args.admin_token_file {
        let token = std::fs::read_to_string(file)
            .map_err(|e| Failure::wrong(format!("the token file {} cannot be read: {e}", file.display())))?;
        let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
        let value = value.map_err(|_| Failure::wrong("the token has a character that no token has"))?;
        fetch = fetch.with_field(http::header::AUTHORIZATION, value);
    }
    let answer = fetch.fetch(Method::GET, path, Bytes::new(), PATIENCE).await.map_err(|error| {
        Failure::failed(format!("no gateway answers at {}: {error}\nis it running, and is --admin right?", args.admin))
    })?;
    let value: Value = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
    if !answer.status.is_success() {
        let detail = value.get("detail").and_then(Value::as_str).unwrap_or("no reason given");
        return Err(Failure::failed(format!("the gateway answers {}: {detail}", answer.status)));
    }
    Ok(value)
}

/// Encodes a value for a query.
pub fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}
