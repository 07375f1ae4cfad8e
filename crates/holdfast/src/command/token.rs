//! `holdfast token`: the gateways' own tokens are revoked, and their keys changed.

use http::Method;
use serde_json::{Value, json};

use super::{Failure, run_to_end};
use crate::admin::Admin;
use crate::cli::{AdminArgs, Output, TokenCommand};
use crate::output;

/// Runs one.
pub fn run(what: &TokenCommand) -> Result<(), Failure> {
    match what {
        TokenCommand::Revoke { token, key, reason, admin } => {
            let members = [("token", token), ("key", key), ("reason", reason)];
            let members = members.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
            let done = ask(admin, "/v1/tokens/revoke", &members.collect())?;
            told(admin, &done, format!("revoked; remembered until {}", text(&done, "until")));
        }
        TokenCommand::Rotate { at_once, admin } => {
            let done = ask(admin, "/v1/tokens/rotate", &json!({ "at_once": at_once }))?;
            told(admin, &done, format!("another key signs from {} on", text(&done, "signs_from")));
        }
    }
    Ok(())
}

fn ask(args: &AdminArgs, path: &str, body: &Value) -> Result<Value, Failure> {
    run_to_end(1, async { Admin::new(args)?.send_json(Method::POST, path, body, None).await })
}

fn text<'v>(value: &'v Value, member: &str) -> &'v str {
    value[member].as_str().unwrap_or("-")
}

fn told(args: &AdminArgs, done: &Value, words: String) {
    let words = if args.output == Output::Json { done.to_string() } else { words };
    output::say(&words);
}
