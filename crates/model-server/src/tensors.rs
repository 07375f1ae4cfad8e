//! Reading an inference request: the JSON object, and binary tensor data after it.
//!
//! The model takes one input, `text` of BYTES with shape `[n]`, and gives `label` and `score`. Requests are checked against that as strictly
//! as the protocol allows; every fault has a text that says what was expected. Binary form: each element is a 4-byte little-endian length
//! and its bytes (binary tensor data extension of the Open Inference Protocol).

use serde::Deserialize;
use serde_json::Value;

/// The name of the input.
pub const TEXT: &str = "text";
/// The most elements that one request may have.
pub const MAX_ELEMENTS: usize = 1 << 20;

/// A checked request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferRequest {
    /// To be echoed.
    pub id: Option<String>,
    /// The texts to judge; bytes that are not UTF-8 are replaced.
    pub texts: Vec<String>,
    /// What to answer, in order.
    pub outputs: Vec<Wanted>,
}

/// One output asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub output: Output,
    /// In binary form.
    pub binary: bool,
}

/// The outputs of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// `label`: BYTES of shape `[n]`.
    Label,
    /// `score`: FP32 of shape `[n, labels]`.
    Score,
}

impl Output {
    /// All, in the order of the metadata.
    pub const ALL: [Self; 2] = [Self::Label, Self::Score];

    /// The tensor's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Score => "score",
        }
    }

    /// The tensor's data type.
    #[must_use]
    pub fn datatype(self) -> &'static str {
        match self {
            Self::Label => "BYTES",
            Self::Score => "FP32",
        }
    }
}

#[derive(Deserialize)]
struct Wire {
    id: Option<String>,
    parameters: Option<WireParameters>,
    inputs: Vec<WireInput>,
    outputs: Option<Vec<WireOutput>>,
}

#[derive(Deserialize)]
struct WireInput {
    name: String,
    shape: Vec<u64>,
    datatype: String,
    parameters: Option<WireParameters>,
    data: Option<Value>,
}

#[derive(Deserialize)]
struct WireOutput {
    name: String,
    parameters: Option<WireParameters>,
}

/// The parameters that matter here; the protocol lets clients send others.
#[derive(Default, Deserialize)]
struct WireParameters {
    binary_data_size: Option<u64>,
    binary_data_output: Option<bool>,
    binary_data: Option<bool>,
}

const DATATYPES: [&str; 14] = [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES",
    "BF16",
];

/// Reads a request body. `header_length` is the value of `Inference-Header-Content-Length`: the length of the JSON object.
///
/// # Errors
/// What is wrong, for the client.
pub fn parse(body: &[u8], header_length: Option<&str>, model: &str) -> Result<InferRequest, String> {
    let (json, binary) = split(body, header_length)?;
    let wire: Wire = serde_json::from_slice(json).map_err(|why| format!("failed to parse the request JSON: {why}"))?;
    let [input] = wire.inputs.as_slice() else {
        return Err(format!("expected 1 inputs but got {} inputs for model '{model}'", wire.inputs.len()));
    };
    let count = check_input(input, model)?;
    let size = input.parameters.as_ref().and_then(|parameters| parameters.binary_data_size);
    let texts = match (size, &input.data) {
        (Some(_), Some(_)) => return Err("input 'text' has both 'data' and 'binary_data_size'".to_owned()),
        (Some(size), None) => from_binary(binary, size)?,
        (None, Some(data)) if binary.is_empty() => from_json(data)?,
        (None, Some(_)) => return Err(format!("unexpected additional input data for model '{model}'")),
        (None, None) => return Err("input 'text' has neither 'data' nor 'binary_data_size'".to_owned()),
    };
    if texts.len() as u64 != count {
        return Err(format!("input 'text' has {} elements, but its shape [{count}] says {count}", texts.len()));
    }
    let binary_default = wire.parameters.and_then(|parameters| parameters.binary_data_output).unwrap_or(false);
    let outputs = wanted(wire.outputs.unwrap_or_default(), binary_default, model)?;
    Ok(InferRequest { id: wire.id, texts, outputs })
}

fn split<'a>(body: &'a [u8], header_length: Option<&str>) -> Result<(&'a [u8], &'a [u8]), String> {
    let Some(text) = header_length else { return Ok((body, &[])) };
    let length = text.trim().parse::<usize>().ok();
    let Some(parts) = length.and_then(|length| body.split_at_checked(length)) else {
        return Err(format!(
            "Inference-Header-Content-Length {text:?} is not a length within the {} bytes",
            body.len()
        ));
    };
    Ok(parts)
}

/// Checks name, type and shape; returns the number of elements.
fn check_input(input: &WireInput, model: &str) -> Result<u64, String> {
    if input.name != TEXT {
        return Err(format!(
            "unexpected inference input '{}' for model '{model}'; allowed inputs are: text",
            input.name
        ));
    }
    if !DATATYPES.contains(&input.datatype.as_str()) {
        return Err(format!("input 'text' has the unknown datatype '{}'", input.datatype));
    }
    if input.datatype != "BYTES" {
        return Err(format!(
            "inference input 'text' data-type is '{}', but model '{model}' expects 'BYTES'",
            input.datatype
        ));
    }
    let [count] = input.shape.as_slice() else {
        return Err(format!(
            "unexpected shape for input 'text' for model '{model}'. Expected [-1], got {}",
            serde_json::to_string(&input.shape).unwrap_or_default()
        ));
    };
    if *count > MAX_ELEMENTS as u64 {
        return Err(format!("input 'text' has {count} elements; at most {MAX_ELEMENTS} are allowed"));
    }
    Ok(*count)
}

/// JSON tensors may be flat or nested like their shape.
fn from_json(data: &Value) -> Result<Vec<String>, String> {
    fn flatten(value: &Value, texts: &mut Vec<String>) -> Result<(), String> {
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| flatten(item, texts)),
            Value::String(text) => {
                texts.push(text.clone());
                Ok(())
            }
            other => Err(format!("element {} of input 'text' is not a string", shorten(other))),
        }
    }
    let Value::Array(_) = data else { return Err("'data' of input 'text' is not an array".to_owned()) };
    let mut texts = Vec::new();
    flatten(data, &mut texts).map(|()| texts)
}

fn shorten(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}

fn from_binary(binary: &[u8], size: u64) -> Result<Vec<String>, String> {
    if size != binary.len() as u64 {
        return Err(format!(
            "'binary_data_size' of input 'text' is {size}, but {} bytes follow the JSON object",
            binary.len()
        ));
    }
    let mut texts = Vec::new();
    let mut rest = binary;
    while !rest.is_empty() {
        let element = rest.split_first_chunk::<4>().and_then(|(length, tail)| {
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            tail.split_at_checked(length)
        });
        let Some((text, tail)) = element else {
            return Err(format!("element {} of input 'text' goes beyond its binary data", texts.len()));
        };
        if texts.len() == MAX_ELEMENTS {
            return Err(format!("input 'text' has more than {MAX_ELEMENTS} elements"));
        }
        texts.push(String::from_utf8_lossy(text).into_owned());
        rest = tail;
    }
    Ok(texts)
}

fn wanted(outputs: Vec<WireOutput>, binary_default: bool, model: &str) -> Result<Vec<Wanted>, String> {
    if outputs.is_empty() {
        return Ok(Output::ALL.map(|output| Wanted { output, binary: binary_default }).to_vec());
    }
    let mut all: Vec<Wanted> = Vec::new();
    for wire in outputs {
        let Some(output) = Output::ALL.into_iter().find(|output| output.name() == wire.name) else {
            return Err(format!("unexpected inference output '{}' for model '{model}'", wire.name));
        };
        if all.iter().any(|wanted| wanted.output == output) {
            return Err(format!("output '{}' is asked for twice", wire.name));
        }
        let binary = wire.parameters.and_then(|parameters| parameters.binary_data).unwrap_or(binary_default);
        all.push(Wanted { output, binary });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(input: &str) -> String {
        format!(r#"{{"id":"7","inputs":[{{"name":"text",{input}}}]}}"#)
    }

    fn elements(texts: &[String]) -> Vec<u8> {
        texts.iter().flat_map(|text| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()).collect()
    }

    #[test]
    fn flat_and_nested_json_mean_the_same() {
        for data in [r#"["a","b"]"#, r#"[["a"],["b"]]"#] {
            let body = json(&format!(r#""shape":[2],"datatype":"BYTES","data":{data}"#));
            let request = parse(body.as_bytes(), None, "m").unwrap();
            assert_eq!((request.id.as_deref(), request.texts.join("+")), (Some("7"), "a+b".to_owned()));
            assert_eq!(request.outputs.len(), 2);
        }
    }

    #[test]
    fn faults_say_what_was_expected() {
        for (input, says) in [
            (r#""shape":[2],"datatype":"BYTES","data":["a"]"#, "has 1 elements, but its shape [2]"),
            (r#""shape":[1,1],"datatype":"BYTES","data":["a"]"#, "Expected [-1], got [1,1]"),
            (r#""shape":[-1],"datatype":"BYTES","data":["a"]"#, "failed to parse"),
            (r#""shape":[1],"datatype":"FP32","data":[1.0]"#, "data-type is 'FP32'"),
            (r#""shape":[1],"datatype":"STRING","data":["a"]"#, "unknown datatype"),
            (r#""shape":[1],"datatype":"BYTES","data":[1]"#, "element 1 of input 'text' is not a string"),
            (r#""shape":[1],"datatype":"BYTES","data":"a""#, "not an array"),
            (r#""shape":[1],"datatype":"BYTES""#, "neither"),
            (r#""shape":[1],"datatype":"BYTES","data":["a"],"parameters":{"binary_data_size":5}"#, "both"),
            (r#""shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}"#, "0 bytes follow"),
            (r#""shape":[99999999],"datatype":"BYTES","data":[]"#, "at most"),
        ] {
            let why = parse(json(input).as_bytes(), None, "m").unwrap_err();
            assert!(why.contains(says), "{input}: {why}");
        }
        for (body, says) in [
            (r#"{"inputs":[]}"#, "expected 1 inputs but got 0"),
            (r#"{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["a"]}]}"#, "input 'x'"),
            (
                r#"{"inputs":[{"name":"text","shape":[0],"datatype":"BYTES","data":[]}],"outputs":[{"name":"y"}]}"#,
                "'y'",
            ),
            ("{", "failed to parse"),
        ] {
            let why = parse(body.as_bytes(), None, "m").unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }

    #[test]
    fn outputs_choose_their_own_form() {
        let body = r#"{"parameters":{"binary_data_output":true,"other":1},"outputs":[{"name":"score"},
            {"name":"label","parameters":{"binary_data":false}}],
            "inputs":[{"name":"text","shape":[1],"datatype":"BYTES","data":["a"]}]}"#;
        let request = parse(body.as_bytes(), None, "m").unwrap();
        let score = Wanted { output: Output::Score, binary: true };
        assert_eq!(request.outputs, [score, Wanted { output: Output::Label, binary: false }]);
    }

    #[test]
    fn binary_lengths_must_agree() {
        let head = json(r#""shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":5}"#);
        let body = |tail: &[u8]| [head.as_bytes(), tail].concat();
        let length = head.len().to_string();
        let good = body(&[1, 0, 0, 0, b'a']);
        assert_eq!(parse(&good, Some(&length), "m").unwrap().texts, ["a"]);
        for (tail, length, says) in [
            (&[1, 0, 0, 0][..], length.as_str(), "4 bytes follow"),
            (&[2, 0, 0, 0, b'a'], &length, "goes beyond"),
            (&[255, 255, 255, 255, b'a'], &length, "goes beyond"),
            (&[], "9999", "not a length within"),
            (&[], "-1", "not a length within"),
        ] {
            let why = parse(&body(tail), Some(length), "m").unwrap_err();
            assert!(why.contains(says), "{why}");
        }
        let plain = json(r#""shape":[1],"datatype":"BYTES","data":["a"]"#);
        let why = parse(&[plain.as_bytes(), b"xx"].concat(), Some(&plain.len().to_string()), "m").unwrap_err();
        assert!(why.contains("additional input data"), "{why}");
    }

    proptest! {
        #[test]
        fn binary_elements_come_back(texts in proptest::collection::vec(".{0,12}", 0..20)) {
            let tail = elements(&texts);
            let input = format!(r#""shape":[{}],"datatype":"BYTES","parameters":{{"binary_data_size":{}}}"#, texts.len(), tail.len());
            let head = json(&input);
            let request = parse(&[head.as_bytes(), &tail].concat(), Some(&head.len().to_string()), "m").unwrap();
            prop_assert_eq!(request.texts, texts);
        }

        #[test]
        fn no_bytes_make_it_panic(body in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..250) {
            let _ = parse(&body, Some(&cut.to_string()), "m");
        }
    }
}
