//! Writing an inference answer: JSON, with binary tensor data after it for the outputs that were asked for in binary form.
//!
//! The keys come in the order `model_name`, `model_version`, `id`, `outputs`, so that who answers is known from the first bytes.

use bytes::Bytes;
use serde::Serialize;

use crate::model::Verdict;
use crate::tensors::{Output, Wanted};

/// The least number of bytes before the wrong name of a late mismatch: more than a reader of the head would hold back.
pub const LATE: usize = 256 << 10;

/// An answer, before it is bytes.
#[derive(Debug)]
pub struct Answer<'a> {
    /// Who answers.
    pub model_name: &'a str,
    /// Which version; may be left out by a fault.
    pub model_version: Option<&'a str>,
    /// The request's id.
    pub id: Option<&'a str>,
    /// The number of labels, which is the width of `score`.
    pub labels: usize,
    /// One per text.
    pub verdicts: &'a [Verdict],
    /// What to answer, in order.
    pub outputs: &'a [Wanted],
    /// A second, contradicting name and version at the very end (a fault).
    pub late: Option<(&'a str, &'a str)>,
}

/// An answer as bytes.
#[derive(Debug)]
pub struct Encoded {
    /// The length of the JSON object, if binary data follows it.
    pub header_length: Option<usize>,
    /// The whole body.
    pub body: Bytes,
}

#[derive(Serialize)]
struct Wire<'a> {
    model_name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    outputs: Vec<WireOutput<'a>>,
}

#[derive(Serialize)]
struct WireOutput<'a> {
    name: &'static str,
    datatype: &'static str,
    shape: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<WireSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<WireData<'a>>,
}

#[derive(Serialize)]
struct WireSize {
    binary_data_size: usize,
}

#[derive(Serialize)]
#[serde(untagged)]
enum WireData<'a> {
    Labels(Vec<&'a str>),
    Scores(Vec<f32>),
}

impl Answer<'_> {
    /// The answer's bytes.
    ///
    /// # Errors
    /// None in practice; the JSON writer's own.
    pub fn encode(&self) -> serde_json::Result<Encoded> {
        let mut binary = Vec::new();
        let outputs = self.outputs.iter().map(|wanted| self.output(*wanted, &mut binary)).collect();
        let wire = Wire { model_name: self.model_name, model_version: self.model_version, id: self.id, outputs };
        let mut json = serde_json::to_vec(&wire)?;
        if let Some((name, version)) = self.late {
            json.pop();
            json.resize(json.len().max(LATE), b' ');
            let tail = (serde_json::to_string(name)?, serde_json::to_string(version)?);
            json.extend_from_slice(format!(",\"model_name\":{},\"model_version\":{}}}", tail.0, tail.1).as_bytes());
        }
        let header_length = self.outputs.iter().any(|wanted| wanted.binary).then_some(json.len());
        json.extend_from_slice(&binary);
        Ok(Encoded { header_length, body: json.into() })
    }

    fn output(&self, wanted: Wanted, binary: &mut Vec<u8>) -> WireOutput<'_> {
        let shape = match wanted.output {
            Output::Label => vec![self.verdicts.len()],
            Output::Score => vec![self.verdicts.len(), self.labels],
        };
        let (name, datatype) = (wanted.output.name(), wanted.output.datatype());
        if !wanted.binary {
            return WireOutput { name, datatype, shape, parameters: None, data: Some(self.json(wanted.output)) };
        }
        let before = binary.len();
        self.write_binary(wanted.output, binary);
        let parameters = Some(WireSize { binary_data_size: binary.len() - before });
        WireOutput { name, datatype, shape, parameters, data: None }
    }

    fn json(&self, output: Output) -> WireData<'_> {
        match output {
            Output::Label => WireData::Labels(self.verdicts.iter().map(|verdict| verdict.label.as_str()).collect()),
            Output::Score => WireData::Scores(self.verdicts.iter().flat_map(|v| v.scores.iter().copied()).collect()),
        }
    }

    fn write_binary(&self, output: Output, binary: &mut Vec<u8>) {
        for verdict in self.verdicts {
            match output {
                Output::Label => {
                    // Labels come from a file of bounded size, far below 4 GiB.
                    let length = u32::try_from(verdict.label.len()).unwrap_or(u32::MAX);
                    binary.extend_from_slice(&length.to_le_bytes());
                    binary.extend_from_slice(verdict.label.as_bytes());
                }
                Output::Score => verdict.scores.iter().for_each(|score| binary.extend_from_slice(&score.to_le_bytes())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(binary: bool, late: Option<(&str, &str)>) -> Encoded {
        let verdicts = [
            Verdict { label: "hit".into(), scores: vec![0.25, 0.75] },
            Verdict { label: "clean".into(), scores: vec![1.0, 0.0] },
        ];
        let outputs = Output::ALL.map(|output| Wanted { output, binary: binary && output == Output::Label });
        Answer {
            model_name: "screen",
            model_version: Some("2"),
            id: Some("7"),
            labels: 2,
            verdicts: &verdicts,
            outputs: &outputs,
            late,
        }
        .encode()
        .unwrap()
    }

    #[test]
    fn json_keys_come_in_the_stated_order() {
        let golden = concat!(
            r#"{"model_name":"screen","model_version":"2","id":"7","outputs":["#,
            r#"{"name":"label","datatype":"BYTES","shape":[2],"data":["hit","clean"]},"#,
            r#"{"name":"score","datatype":"FP32","shape":[2,2],"data":[0.25,0.75,1.0,0.0]}]}"#
        );
        let encoded = encode(false, None);
        assert_eq!((encoded.header_length, encoded.body), (None, golden.into()));
    }

    #[test]
    fn binary_outputs_follow_the_json() {
        let encoded = encode(true, None);
        let (json, binary) = encoded.body.split_at(encoded.header_length.unwrap());
        assert!(String::from_utf8_lossy(json).contains(r#""shape":[2],"parameters":{"binary_data_size":16}}"#));
        assert_eq!(binary, b"\x03\0\0\0hit\x05\0\0\0clean");
    }

    #[test]
    fn a_late_mismatch_is_valid_json_with_the_wrong_name_last() {
        let body = encode(false, Some(("other", "9"))).body;
        assert!(body.len() > LATE && body.starts_with(b"{\"model_name\":\"screen\""));
        assert!(body.ends_with(br#","model_name":"other","model_version":"9"}"#));
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(value["model_version"], "9", "a reader of the whole sees the last of two equal keys");
    }
}
