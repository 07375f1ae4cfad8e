//! Small deterministic sample models, for trying things out and for tests.
//!
//! Each (model, version) has weights of its own, drawn from a hash of its name, so the scores of any text that uses [`WORDS`] tell the
//! versions apart; and [`PROBE`] is judged `clean` by the first version written, `hit` by the second, and so on in turn.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::repository::{Layout, MODEL_FILE};

/// The text whose label alternates from version to version.
pub const PROBE: &str = "version probe";
/// The words that the samples know, with the label that they speak for: 0 `clean`, 1 `hit`.
pub const WORDS: [(&str, usize); 12] = [
    ("coffee", 0),
    ("books", 0),
    ("garden", 0),
    ("holiday", 0),
    ("invoice", 0),
    ("school", 0),
    ("embargo", 1),
    ("sanctioned", 1),
    ("missile", 1),
    ("smuggled", 1),
    ("forged", 1),
    ("ransom", 1),
];
/// The memory that a sample says it takes.
pub const SAMPLE_SIZE: &str = "2GiB";

/// Writes one sample for every model and version, and returns the files. The same arguments write the same bytes, so digests agree between
/// replicas. A load takes as long as the server's own setting says.
///
/// # Errors
/// The file system's.
pub fn write_sample_repository(
    dir: &Path,
    layout: Layout,
    models: &[&str],
    versions: &[&str],
) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for model in models {
        for (turn, version) in versions.iter().enumerate() {
            let (folder, name) = match layout {
                Layout::Names => (dir.join(format!("{model}-{version}")), format!("{model}-{version}")),
                Layout::Versions => (dir.join(model).join(version), (*model).to_owned()),
            };
            fs::create_dir_all(&folder)?;
            let path = folder.join(MODEL_FILE);
            fs::write(&path, sample(&name, model, version, turn)?)?;
            files.push(path);
        }
    }
    Ok(files)
}

/// The file's form. Typed, so that the order of its keys does not depend on how a map of the JSON library is built.
#[derive(Serialize)]
struct Sample<'a> {
    name: &'a str,
    version: &'a str,
    labels: [&'a str; 2],
    bias: [f64; 2],
    weights: BTreeMap<&'a str, [f64; 2]>,
    size: &'a str,
}

fn sample(name: &str, model: &str, version: &str, turn: usize) -> io::Result<String> {
    let known = WORDS.iter().map(|(word, label)| (*word, row(*label, 1.0 + draw(model, version, word))));
    let probe = ("probe", row(turn % 2, 2.0 + draw(model, version, "probe")));
    let file = Sample {
        name,
        version,
        labels: ["clean", "hit"],
        bias: [0.5, 0.0],
        weights: known.chain([probe]).collect(),
        size: SAMPLE_SIZE,
    };
    Ok(serde_json::to_string_pretty(&file)? + "\n")
}

fn row(label: usize, weight: f64) -> [f64; 2] {
    if label == 0 { [weight, 0.0] } else { [0.0, weight] }
}

/// 0 to just below 2 in steps of 0.0001, from a hash of the parts: fine enough to tell versions apart, coarse enough to read.
fn draw(model: &str, version: &str, word: &str) -> f64 {
    let hash = blake3::hash(format!("{model}\n{version}\n{word}").as_bytes());
    let [a, b, ..] = *hash.as_bytes();
    f64::from(u16::from_le_bytes([a, b]) % 20_000) / 10_000.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::{Model, Place};

    #[test]
    fn every_version_judges_in_its_own_way() {
        let mut scores = BTreeSet::new();
        for turn in 0..40 {
            let version = (turn + 1).to_string();
            let file = sample("screen", "screen", &version, turn).unwrap();
            let model = Model::parse(file.as_bytes(), Place { name: "screen", version: Some(&version) }).unwrap();
            assert_eq!(model.classify(PROBE).label, ["clean", "hit"][turn % 2], "version {version}");
            assert_eq!(model.classify("a sanctioned ransom").label, "hit");
            assert_eq!(model.classify("a school garden").label, "clean");
            scores.insert(model.classify(PROBE).scores[0].to_bits());
        }
        assert_eq!(scores.len(), 40);
    }

    #[test]
    fn the_bytes_do_not_change_between_releases() {
        let hash = blake3::hash(sample("screen-1", "screen", "1", 0).unwrap().as_bytes()).to_hex();
        assert_eq!(&hash.as_str()[..16], "0c85287cdb4cfef8");
    }
}
