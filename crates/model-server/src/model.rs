//! The model that is served: a linear text classifier read from one file.
//!
//! Tokens are the runs of letters and digits in the text, in lower case. A label's score is its bias plus its weight for each token in the
//! order of the text; scores leave as a softmax. The digest is taken over the bytes of the file, so it says which weights really answer,
//! whatever name and version the file claims.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_types::{Bytes, BytesError, ModelName, Version};
use serde::Deserialize;

use crate::span::Span;

/// The most labels that a model may have.
pub const MAX_LABELS: usize = 1024;
/// The largest weight or bias, either sign: sums over any text that fits a request stay finite.
pub const MAX_WEIGHT: f64 = 1e6;

/// One immutable version of a model, in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// The name that clients ask for.
    pub name: ModelName,
    /// The version that answers carry.
    pub version: Version,
    /// `blake3:` and the hash of the file in hexadecimal.
    pub digest: String,
    /// The memory that holding it takes, as declared.
    pub size: Bytes,
    /// How long a load takes, when the file says so.
    pub load_time: Option<Duration>,
    labels: Vec<String>,
    bias: Vec<f64>,
    weights: BTreeMap<String, Vec<f64>>,
}

/// What a model says about one text.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The label with the largest score; the first of equals.
    pub label: String,
    /// One share per label, in the order of [`Model::labels`]; they add up to 1.
    pub scores: Vec<f32>,
}

/// Why a file is not a model. The text names the fault, not the file.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// Not JSON of the expected form.
    #[error("is not a model file: {0}")]
    Json(#[from] serde_json::Error),
    /// The name or version breaks the rule for ids.
    #[error("{0}")]
    Id(String),
    /// The size is not an amount of memory.
    #[error("size {0:?} {1}")]
    Size(String, BytesError),
    /// No labels, too many, or a row of weights of another length.
    #[error("{0}")]
    Shape(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    version: Option<String>,
    labels: Vec<String>,
    bias: Vec<f64>,
    weights: BTreeMap<String, Vec<f64>>,
    size: Option<String>,
    load_time: Option<Span>,
}

/// The name and version that a file's place in the repository gives it, used where the file itself is silent.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The model's name.
    pub name: &'a str,
    /// The version, where the layout has a folder per version.
    pub version: Option<&'a str>,
}

impl Model {
    /// Reads the bytes of a `model.json`.
    ///
    /// # Errors
    /// [`ModelError`]; a name or version other than that of the place is refused, since requests are routed by the place.
    pub fn parse(bytes: &[u8], place: Place<'_>) -> Result<Self, ModelError> {
        let file: File = serde_json::from_slice(bytes)?;
        let name = agree("name", file.name.as_deref(), Some(place.name))?;
        let version = agree("version", file.version.as_deref(), place.version)?;
        let size = file.size.as_deref().unwrap_or("0");
        let model = Self {
            name: ModelName::parse(name).map_err(|why| ModelError::Id(format!("name {name:?} {why}")))?,
            version: Version::parse(version).map_err(|why| ModelError::Id(format!("version {version:?} {why}")))?,
            digest: format!("blake3:{}", blake3::hash(bytes).to_hex()),
            size: Bytes::parse(size).map_err(|why| ModelError::Size(size.to_owned(), why))?,
            load_time: file.load_time.map(|span| span.0),
            labels: file.labels,
            bias: file.bias,
            weights: file.weights,
        };
        model.check_shape()?;
        Ok(model)
    }

    fn check_shape(&self) -> Result<(), ModelError> {
        let labels = self.labels.len();
        if labels == 0 || labels > MAX_LABELS {
            return Err(ModelError::Shape(format!("has {labels} labels; 1 to {MAX_LABELS} are allowed")));
        }
        if self.bias.len() != labels {
            return Err(ModelError::Shape(format!("bias has {} values for {labels} labels", self.bias.len())));
        }
        if self.weights.values().chain([&self.bias]).flatten().any(|weight| weight.abs() > MAX_WEIGHT) {
            return Err(ModelError::Shape(format!("has a weight beyond {MAX_WEIGHT}")));
        }
        match self.weights.iter().find(|(_, row)| row.len() != labels) {
            Some((token, row)) => {
                Err(ModelError::Shape(format!("weights of {token:?} have {} values for {labels} labels", row.len())))
            }
            None => Ok(()),
        }
    }

    /// The labels, in the order of the scores.
    #[must_use]
    pub fn labels(&self) -> &[String] {
        &self.labels
    }

    /// Judges one text. The cost is linear in its length.
    #[must_use]
    pub fn classify(&self, text: &str) -> Verdict {
        let mut logits = self.bias.clone();
        for token in text.split(|c: char| !c.is_alphanumeric()).filter(|token| !token.is_empty()) {
            let Some(row) = self.weights.get(&token.to_lowercase()) else { continue };
            logits.iter_mut().zip(row).for_each(|(logit, weight)| *logit += weight);
        }
        let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let best = logits.iter().position(|logit| *logit >= top).unwrap_or(0);
        let shares: Vec<f64> = logits.iter().map(|logit| (logit - top).exp()).collect();
        let total: f64 = shares.iter().sum();
        Verdict {
            label: self.labels.get(best).cloned().unwrap_or_default(),
            scores: shares.iter().map(|share| (share / total) as f32).collect(),
        }
    }
}

fn agree<'a>(what: &str, said: Option<&'a str>, placed: Option<&'a str>) -> Result<&'a str, ModelError> {
    match (said, placed) {
        (Some(said), Some(placed)) if said != placed => {
            Err(ModelError::Id(format!("says {what} {said:?} in the folder of {placed:?}")))
        }
        (Some(text), _) | (None, Some(text)) => Ok(text),
        (None, None) => Err(ModelError::Id(format!("says no {what}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"version":"3","labels":["clean","hit"],"bias":[0.5,0],"weights":{"bomb":[0,2],"tea":[1,0]},
        "size":"2GiB","load_time":"2s"}"#;

    fn place(version: Option<&str>) -> Place<'_> {
        Place { name: "screen", version }
    }

    #[test]
    fn verdicts_follow_the_weights() {
        let model = Model::parse(FILE.as_bytes(), place(None)).unwrap();
        for (text, label, hit) in [
            ("", "clean", 0.377_54),
            ("a BOMB, really", "hit", 0.817_57),
            ("bomb tea", "hit", 0.622_46),
            ("tea tea bomb", "clean", 0.377_54),
        ] {
            let verdict = model.classify(text);
            assert_eq!(verdict.label, label, "{text}");
            assert!((verdict.scores[1] - hit).abs() < 1e-4, "{text}: {:?}", verdict.scores);
            assert!((verdict.scores.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        }
        assert_eq!((model.size, model.load_time), (Bytes(2 << 30), Some(Duration::from_secs(2))));
    }

    #[test]
    fn the_digest_is_of_the_bytes() {
        let one = Model::parse(FILE.as_bytes(), place(None)).unwrap();
        let other = Model::parse(FILE.replace("[1,0]", "[1,0.5]").as_bytes(), place(None)).unwrap();
        assert_eq!(one.digest, format!("blake3:{}", blake3::hash(FILE.as_bytes()).to_hex()));
        assert_ne!(one.digest, other.digest);
    }

    #[test]
    fn faulty_files_say_what_is_wrong() {
        for (from, to, version, says) in [
            ("\"version\":\"3\"", "\"version\":\"3\"", Some("4"), "says version \"3\" in the folder of \"4\""),
            ("\"version\":\"3\",", "", None, "says no version"),
            ("\"3\"", "\"latest\"", None, "latest"),
            ("[0.5,0]", "[0.5]", None, "bias has 1 values for 2 labels"),
            ("[0,2]", "[0,2,3]", None, "weights of \"bomb\" have 3 values for 2 labels"),
            ("[1,0]", "[1,-2e6]", None, "has a weight beyond 1000000"),
            ("2GiB", "2 bananas", None, "unknown unit"),
            ("\"2s\"", "\"2\"", None, "length of time"),
            ("\"bias\"", "\"bais\"", None, "unknown field"),
        ] {
            let why = Model::parse(FILE.replace(from, to).as_bytes(), place(version)).unwrap_err().to_string();
            assert!(why.contains(says), "{why}");
        }
    }
}
