//! Compares the answer that a client got with the one that another version gave to the same question. Pure.
//!
//! What is compared are the outputs: which there are, and of each its datatype, shape and values. Outputs are told apart by name and may come in any
//! order; values are compared in row-major order, nested or not. Floating-point values (`FP16`, `FP32`, `FP64`, `BF16`) may differ by 1e-6 of the larger of
//! the two; everything else is equal or not. Tensors in binary form are compared by their bytes. Ids, names, versions and parameters are not looked at.
//! What is no JSON cannot be compared, bare `NaN` and `Infinity` among it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use holdfast_types::ModelName;

use super::difference::{Difference, Kind, Magnitude, Verdict};

/// How far floating-point values may be apart, relative to the larger one.
const TOLERANCE: f64 = 1e-6;
/// Datatypes whose values are floating-point numbers.
const FLOATS: [&str; 4] = ["FP16", "FP32", "FP64", "BF16"];
/// The protocol's datatypes.
const DATATYPES: [&str; 14] = [
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BF16",
    "BYTES",
];

/// An answer to an inference, whole.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// Its body.
    pub body: &'a [u8],
    /// How many bytes of it are JSON, if not all: binary tensors follow.
    pub json: Option<u64>,
}

/// Compares what the client got with what the other version said, both of status 200.
#[must_use]
pub fn compare(live: Answer<'_>, other: Answer<'_>) -> Verdict {
    let Some(live) = outputs(live) else { return Verdict::NotComparable };
    let Some(other) = outputs(other) else { return Verdict::Differs(Kind::Malformed.into()) };
    for (name, output) in &live {
        let verdict = other.get(name).map_or_else(|| output.says(Kind::OutputMissing), |other| output.compare(other));
        if verdict != Verdict::Agrees {
            return verdict;
        }
    }
    let extra = other.iter().find(|(name, _)| !live.contains_key(*name));
    extra.map_or(Verdict::Agrees, |(_, extra)| extra.says(Kind::OutputExtra))
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    outputs: Vec<Tensor<'a>>,
}

#[derive(Deserialize)]
struct Tensor<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    datatype: Cow<'a, str>,
    #[serde(default)]
    shape: Vec<i64>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(default)]
    parameters: Option<Parameters>,
}

#[derive(Deserialize)]
struct Parameters {
    #[serde(default)]
    binary_data_size: Option<u64>,
}

struct Output<'a> {
    tensor: Tensor<'a>,
    /// Its values in binary form.
    binary: Option<&'a [u8]>,
}

/// The outputs by name. None: this is no answer of the protocol, or one with two outputs of a name.
fn outputs(answer: Answer<'_>) -> Option<BTreeMap<String, Output<'_>>> {
    let length = answer.json.map_or(Some(answer.body.len()), |length| usize::try_from(length).ok())?;
    let (json, mut tail) = answer.body.split_at_checked(length)?;
    let body: Body<'_> = serde_json::from_slice(json).ok()?;
    let mut all = BTreeMap::new();
    for tensor in body.outputs {
        let mut binary = None;
        if let Some(size) = tensor.parameters.as_ref().and_then(|p| p.binary_data_size) {
            let (mine, rest) = tail.split_at_checked(usize::try_from(size).ok()?)?;
            (binary, tail) = (Some(mine), rest);
        }
        // Its values are there, and once.
        if tensor.data.is_some() == binary.is_some() {
            return None;
        }
        let name = tensor.name.clone().into_owned();
        if all.insert(name, Output { tensor, binary }).is_some() {
            return None;
        }
    }
    tail.is_empty().then_some(all)
}

impl Output<'_> {
    fn difference(&self, kind: Kind) -> Difference {
        let name = &*self.tensor.name;
        // What is no name may be a copy of something confidential.
        let output = ModelName::check(name).is_ok().then(|| name.to_owned());
        let datatype = DATATYPES.into_iter().find(|known| *known == self.tensor.datatype);
        Difference { output, datatype, ..kind.into() }
    }

    fn says(&self, kind: Kind) -> Verdict {
        Verdict::Differs(self.difference(kind))
    }

    fn compare(&self, other: &Self) -> Verdict {
        if self.tensor.datatype != other.tensor.datatype {
            return self.says(Kind::Datatype);
        }
        if self.tensor.shape != other.tensor.shape {
            return self.says(Kind::Shape);
        }
        match (self.binary, other.binary) {
            (Some(a), Some(b)) if a == b => Verdict::Agrees,
            (Some(a), Some(b)) if a.len() == b.len() => self.says(Kind::Value),
            (Some(_), Some(_)) => self.says(Kind::Length),
            (None, None) => self.compare_values(other),
            _ => self.says(Kind::Encoding),
        }
    }

    fn compare_values(&self, other: &Self) -> Verdict {
        let text = |output: &Self| output.tensor.data.map(RawValue::get).unwrap_or_default();
        if text(self) == text(other) {
            return Verdict::Agrees;
        }
        let Ok(a) = serde_json::from_str::<Value>(text(self)) else { return Verdict::NotComparable };
        let Ok(b) = serde_json::from_str::<Value>(text(other)) else { return self.says(Kind::Malformed) };
        let (mut left, mut right) = (Vec::new(), Vec::new());
        flatten(&a, &mut left);
        flatten(&b, &mut right);
        if left.len() != right.len() {
            return self.says(Kind::Length);
        }
        let is_float = FLOATS.contains(&&*self.tensor.datatype);
        let differing = left.into_iter().zip(right).enumerate().find(|(_, (a, b))| !is_same(a, b, is_float));
        let Some((index, (a, b))) = differing else { return Verdict::Agrees };
        let magnitude = a.as_f64().zip(b.as_f64()).map(|(a, b)| Magnitude::of(a, b));
        Verdict::Differs(Difference { index: Some(index as u64), magnitude, ..self.difference(Kind::Value) })
    }
}

fn flatten<'v>(value: &'v Value, out: &mut Vec<&'v Value>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| flatten(value, out)),
        value => out.push(value),
    }
}

fn is_same(a: &Value, b: &Value, is_float: bool) -> bool {
    if a == b {
        return true;
    }
    // Whole numbers of 64 bits are compared above; as floating-point numbers some of them would be equal that are not.
    let whole = |value: &Value| value.is_i64() || value.is_u64();
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) if is_float => (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()),
        (Some(x), Some(y)) => x == y && !(whole(a) && whole(b)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
