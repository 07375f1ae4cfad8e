//! The gateways' own tokens: some are revoked, or another key is to sign them.

use http::StatusCode;
use serde_json::json;

use holdfast_identity::api_key::{MARK, is_prefix};
use holdfast_identity::issuing::What;
use holdfast_telemetry::utc;

use super::problem::Problem;
use super::request::Members;
use super::{Answer, Api, Input, answer};
use crate::tokens::{Tokens, TokensError};

impl Api {
    fn own_tokens(&self) -> Result<&Tokens, Problem> {
        self.own_tokens.as_deref().ok_or_else(|| Problem::missing("there are no tokens here; write auth.tokens"))
    }

    pub(super) async fn revoke_token(&self, input: &Input<'_>) -> Answer {
        let mut body = Members::read(&input.body)?;
        let (token, key, reason) = (body.text("token")?, body.text("key")?, body.text("reason")?);
        body.end()?;
        let what = what(token, key)?;
        let ends = self.own_tokens()?.revoke(&what).await.map_err(refused)?;
        // There is no revision that says who did it.
        tracing::warn!(what = %json!(what), by = %input.caller.name, reason, "tokens were revoked");
        Ok(answer::json(StatusCode::OK, &json!({ "revoked": what, "until": utc(ends) })))
    }

    pub(super) async fn rotate_keys(&self, input: &Input<'_>) -> Answer {
        let mut body = Members::read(&input.body)?;
        let at_once = body.flag("at_once")?;
        body.end()?;
        let from = self.own_tokens()?.rotate(at_once).await.map_err(refused)?;
        tracing::warn!(at_once, by = %input.caller.name, "another key for tokens was asked for");
        Ok(answer::json(StatusCode::OK, &json!({ "signs_from": utc(from), "at_once": at_once })))
    }
}

/// One of the two.
fn what(token: Option<String>, key: Option<String>) -> Result<What, Problem> {
    let bad = |words: &str| Problem::new(StatusCode::BAD_REQUEST, "bad_request", words);
    match (token, key) {
        (Some(jti), None) => {
            let is_jti = jti.len() == 32 && jti.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            if is_jti {
                Ok(What::Token(jti))
            } else {
                Err(bad("token is the claim jti of a token: 32 hexadecimal digits"))
            }
        }
        (None, Some(key)) => {
            let prefix = key.strip_prefix(MARK).unwrap_or(&key);
            if is_prefix(prefix) {
                Ok(What::Key(prefix.to_owned()))
            } else {
                Err(bad("key is the prefix of an API key"))
            }
        }
        _ => Err(bad("the body has either token or key")),
    }
}

fn refused(error: TokensError) -> Problem {
    let (status, code) = match &error {
        TokensError::UnderWay | TokensError::Full => (StatusCode::CONFLICT, "conflict"),
        TokensError::Store(_) | TokensError::NoKeys | TokensError::Random => {
            (StatusCode::SERVICE_UNAVAILABLE, "unavailable")
        }
    };
    Problem::new(status, code, error.to_string())
}
