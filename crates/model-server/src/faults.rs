//! Faults that can be switched on, in the plain form that people send and see: what goes wrong, how often, and for how many requests.
//! What they mean for one request is drawn by the [injector](crate::injector).

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::span::Span;

/// A share of requests from 0 to 1; `true` is 1 and `false` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Share(pub(crate) f64);

impl Share {
    /// Every request.
    pub const ALL: Self = Self(1.0);

    pub(crate) fn is_none(&self) -> bool {
        self.0 <= 0.0
    }
}

impl TryFrom<f64> for Share {
    type Error = String;

    fn try_from(share: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&share) { Ok(Self(share)) } else { Err(format!("a share is 0 to 1, not {share}")) }
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Bool(bool),
            Number(f64),
        }
        match Form::deserialize(deserializer)? {
            Form::Bool(all) => Ok(Self(f64::from(u8::from(all)))),
            Form::Number(share) => Self::try_from(share).map_err(serde::de::Error::custom),
        }
    }
}

/// An answer sent in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chunks {
    /// The size of a piece, at least 1.
    pub bytes: std::num::NonZeroUsize,
    /// The pause between pieces.
    pub every: Span,
}

/// Everything that can be made to go wrong. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Faults {
    /// Every inference takes this much longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub infer_delay: Option<Span>,
    /// This share of inferences never ends.
    #[serde(skip_serializing_if = "Share::is_none")]
    pub hang: Share,
    /// This share of inferences is answered with `error_status`.
    #[serde(skip_serializing_if = "Share::is_none")]
    pub error_rate: Share,
    /// The status of an injected error, 400 to 599; 500 if not given. 429 and 503 carry `Retry-After: 1` and do no work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_status: Option<u16>,
    /// This share of inferences is really served by another held version (of another name, if no version of the same is held), and says
    /// so. With no other held, the answer only claims another version.
    #[serde(skip_serializing_if = "Share::is_none")]
    pub wrong_version_rate: Share,
    /// This share of inferences is served by another held version but says that it was the right one: a label that lies.
    #[serde(skip_serializing_if = "Share::is_none")]
    pub wrong_weights_rate: Share,
    /// Answers carry no `model_version`.
    #[serde(skip_serializing_if = "is_false")]
    pub omit_version: bool,
    /// Readiness and index say that everything on disk is ready, while inference answers "not found".
    #[serde(skip_serializing_if = "is_false")]
    pub ready_lies: bool,
    /// Loads take their time and then fail with this text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load_fails: Option<String>,
    /// Loads never end; an unload cancels them.
    #[serde(skip_serializing_if = "is_false")]
    pub load_hangs: bool,
    /// The process ends, with status 1 and no answer, at the inference after this many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub die_after_requests: Option<u64>,
    /// The connection is reset after this many bytes of an answer's body (over HTTP/2: the stream).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_after_bytes: Option<u64>,
    /// Answers leave in pieces with pauses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_chunks: Option<Chunks>,
    /// Answers have the right name and version at the head and, after at least [`crate::answer::LATE`] bytes, wrong ones at the very end.
    #[serde(skip_serializing_if = "is_false")]
    pub late_mismatch: bool,
    /// Only the first so many requests that a fault could meet (inferences, or loads for the load faults) meet it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Faults {
    /// Reads the settings of `--fault`: each a JSON object or `key=value`, later ones over earlier ones.
    ///
    /// # Errors
    /// What is wrong, for the person who typed it.
    pub fn from_settings<S: AsRef<str>>(settings: &[S]) -> Result<Self, String> {
        let mut all = Map::new();
        for setting in settings.iter().map(AsRef::as_ref) {
            if setting.trim_start().starts_with('{') {
                all.extend(serde_json::from_str::<Map<String, Value>>(setting).map_err(|why| why.to_string())?);
                continue;
            }
            let Some((key, value)) = setting.split_once('=') else {
                return Err(format!("{setting:?} is neither key=value nor a JSON object"));
            };
            // What is not JSON is a text: people write infer_delay=200ms without quotes.
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
            all.insert(key.to_owned(), value);
        }
        Self::from_json(Value::Object(all))
    }

    /// Reads the JSON form.
    ///
    /// # Errors
    /// What is wrong, for the person who sent it.
    pub fn from_json(json: Value) -> Result<Self, String> {
        let faults: Self = serde_json::from_value(json).map_err(|why| why.to_string())?;
        match faults.error_status {
            Some(status) if !(400..=599).contains(&status) => Err(format!("error_status is 400 to 599, not {status}")),
            _ => Ok(faults),
        }
    }

    /// Whether an inference can meet any of them; death counts on its own.
    pub(crate) fn meets_inference(&self) -> bool {
        let shares = [self.hang, self.error_rate, self.wrong_version_rate, self.wrong_weights_rate];
        let flags = [self.omit_version, self.ready_lies, self.late_mismatch];
        shares.iter().any(|share| !share.is_none())
            || flags.contains(&true)
            || self.infer_delay.is_some()
            || self.reset_after_bytes.is_some()
            || self.stream_chunks.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn faults(settings: &[&str]) -> Faults {
        Faults::from_settings(settings).unwrap()
    }

    #[test]
    fn settings_as_people_type_them() {
        let all = faults(&[
            "infer_delay=200ms",
            r#"{"hang":true,"error_rate":0.5}"#,
            "error_rate=0.25",
            "load_fails=no disk",
        ]);
        assert_eq!(all.infer_delay, Some(Span(Duration::from_millis(200))));
        assert_eq!((all.hang, all.error_rate), (Share::ALL, Share(0.25)));
        assert_eq!(all.load_fails.as_deref(), Some("no disk"));
        for (setting, says) in [
            ("hang", "neither"),
            ("hang=2", "0 to 1"),
            ("error_status=200", "400 to 599"),
            ("hung=true", "unknown field"),
            ("stream_chunks={\"bytes\":0,\"every\":\"1s\"}", "nonzero"),
        ] {
            let why = Faults::from_settings(&[setting]).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn what_is_shown_can_be_sent_back() {
        let all =
            faults(&["infer_delay=200ms", "hang=0.5", "limit=3", r#"stream_chunks={"bytes":250,"every":"250ms"}"#]);
        assert_eq!(Faults::from_json(serde_json::to_value(&all).unwrap()), Ok(all));
        assert_eq!(serde_json::to_string(&Faults::default()).unwrap(), "{}");
    }
}
