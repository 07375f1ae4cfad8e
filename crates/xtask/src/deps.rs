//! Who may depend on whom: the table of ARCHITECTURE.md, as code, against what the manifests say.
//!
//! The table is about normal and build dependencies. A dev-dependency may in addition be the test kit or the model server, but the pure
//! crates are tested by themselves.

use crate::report::Fault;
use crate::tree::Tree;
use serde_json::Value;

const RULE: &str = "dependency-table";
const DOCUMENT: &str = "ARCHITECTURE.md";

struct Row {
    level: &'static str,
    name: &'static str,
    may_use: &'static [&'static str],
    /// No clock, randomness or IO: third-party crates only from [`PURE_MAY_USE`].
    pure: bool,
}

const fn row(level: &'static str, name: &'static str, may_use: &'static [&'static str], pure: bool) -> Row {
    Row { level, name, may_use, pure }
}

/// The table. A new edge is the change that deserves the hardest second look.
const TABLE: &[Row] = &[
    row("0", "types", &[], true),
    row("1", "placement", &["types"], true),
    row("1", "quota", &["types"], true),
    row("1", "codec", &["types"], true),
    row("1", "digest", &[], true),
    row("1", "assign", &[], true),
    // As the pure ones, but with signatures and JSON of third parties.
    row("1", "identity", &["types"], false),
    row("1", "quorum", &[], true),
    row("1", "submission", &["types"], true),
    row("2", "decide", &["types", "placement", "assign"], true),
    row("3", "config", &["types", "assign", "identity", "decide"], false),
    row("3", "plane", &["types", "decide", "config"], false),
    row("3", "net", &["types", "codec"], false),
    row("3", "store", &["types", "digest"], false),
    row("3", "bank", &["types", "quota"], false),
    row("3", "telemetry", &["types"], false),
    row("3", "wire", &["types", "placement", "digest", "decide", "config", "plane"], false),
    row("4", "sim", &["types", "placement", "quota", "assign", "quorum", "decide"], true),
    row(
        "4",
        "gateway",
        &[
            "types",
            "placement",
            "quota",
            "codec",
            "assign",
            "identity",
            "submission",
            "decide",
            "config",
            "plane",
            "net",
            "bank",
            "telemetry",
        ],
        false,
    ),
    row(
        "4",
        "control",
        &["types", "placement", "assign", "identity", "decide", "config", "plane", "store", "telemetry"],
        false,
    ),
    row("4", "model-server", &["types"], false),
    row(
        "5",
        "holdfast",
        &[
            "types",
            "placement",
            "quota",
            "quorum",
            "codec",
            "assign",
            "identity",
            "decide",
            "config",
            "plane",
            "net",
            "store",
            "telemetry",
            "wire",
            "gateway",
            "control",
            "model-server",
            "sim",
        ],
        false,
    ),
    row("dev", "counts", &["types", "placement", "codec", "decide", "config", "plane", "telemetry", "gateway"], false),
    row("dev", "testkit", &[], false),
    row("dev", "xtask", &[], false),
];

/// Third-party crates without clock, randomness or IO.
const PURE_MAY_USE: &[&str] = &["xxhash-rust", "blake3", "memchr", "smallvec", "sha1_smol"];
/// Crates of the project that tests outside the pure crates may use in addition.
const TESTS_MAY_USE: &[&str] = &["testkit", "model-server"];

/// Every fault of the manifests and of the document's table.
pub(crate) fn check(tree: &Tree, metadata: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        check_package(tree, package, &mut faults);
    }
    check_document(tree, &mut faults);
    faults
}

fn check_package(tree: &Tree, package: &Value, faults: &mut Vec<Fault>) {
    let name = short(package["name"].as_str().unwrap_or_default());
    let manifest = format!("crates/{name}/Cargo.toml");
    let Some(row) = TABLE.iter().find(|row| row.name == name) else {
        faults.push(Fault::new(&manifest, 1, RULE, format!("crate {name} is not in the table of xtask")));
        return;
    };
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        let (full, dev) = (dependency["name"].as_str().unwrap_or_default(), dependency["kind"] == "dev");
        if let Some(what) = refused(row, full, dependency["path"].is_string(), dev) {
            faults.push(Fault::new(&manifest, line_of(tree.text(&manifest), full), RULE, what));
        }
    }
}

/// Why a dependency is not allowed.
fn refused(row: &Row, full: &str, own: bool, dev: bool) -> Option<String> {
    let name = short(full);
    if own {
        let by_table = row.may_use.contains(&name);
        let by_test = dev && !row.pure && TESTS_MAY_USE.contains(&name);
        return (!by_table && !by_test).then(|| format!("{} (level {}) may not use {name}", row.name, row.level));
    }
    let pure = row.pure && !dev && !PURE_MAY_USE.contains(&full);
    pure.then(|| format!("{} is pure: {full} is not among {}", row.name, PURE_MAY_USE.join(", ")))
}

fn short(package: &str) -> &str {
    package.strip_prefix("holdfast-").unwrap_or(package)
}

fn line_of(manifest: Option<&str>, dependency: &str) -> usize {
    let starts = |line: &str| line.strip_prefix(dependency).is_some_and(|rest| rest.starts_with([' ', '.', '=']));
    manifest.and_then(|text| text.lines().position(starts)).map_or(1, |at| at + 1)
}

fn check_document(tree: &Tree, faults: &mut Vec<Fault>) {
    let Some(text) = tree.text(DOCUMENT) else {
        faults.push(Fault::new(DOCUMENT, 1, RULE, "the file with the dependency table is missing"));
        return;
    };
    let Some((start, columns)) = text.lines().enumerate().find_map(|(at, line)| Some((at, columns(line)?))) else {
        faults.push(Fault::new(DOCUMENT, 1, RULE, "no table with the columns level, crate and may use"));
        return;
    };
    let mut seen = Vec::new();
    for (at, line) in text.lines().enumerate().skip(start + 2).take_while(|(_, line)| line.starts_with('|')) {
        let cells = cells(line);
        let cell = |column: usize| cells.get(column).map_or("", String::as_str);
        let names: Vec<&str> = list(cell(columns.name)).collect();
        for name in names {
            seen.push(name.to_owned());
            if let Some(what) = differs(name, cell(columns.level), cell(columns.may_use)) {
                faults.push(Fault::new(DOCUMENT, at + 1, RULE, what));
            }
        }
    }
    for row in TABLE.iter().filter(|row| !seen.iter().any(|name| name == row.name)) {
        faults.push(Fault::new(DOCUMENT, start + 1, RULE, format!("crate {} has no row", row.name)));
    }
}

struct Columns {
    level: usize,
    name: usize,
    may_use: usize,
}

fn columns(header: &str) -> Option<Columns> {
    let cells = cells(header);
    let find = |title: &str| cells.iter().position(|cell| cell == title);
    Some(Columns { level: find("level")?, name: find("crate")?, may_use: find("may use")? })
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "").to_lowercase()).collect()
}

fn list(cell: &str) -> impl Iterator<Item = &str> {
    cell.split(',').map(|name| short(name.trim())).filter(|name| !name.is_empty() && *name != "nothing")
}

fn differs(name: &str, level: &str, may_use: &str) -> Option<String> {
    let Some(row) = TABLE.iter().find(|row| row.name == name) else {
        return Some(format!("crate {name} is not in the table of xtask"));
    };
    if row.level != level {
        return Some(format!("{name} is at level {} in xtask", row.level));
    }
    let (mut here, mut there): (Vec<&str>, Vec<&str>) = (list(may_use).collect(), row.may_use.to_vec());
    here.sort_unstable();
    there.sort_unstable();
    (here != there).then(|| format!("{name} may use {} in xtask", may(row)))
}

fn may(row: &Row) -> String {
    if row.may_use.is_empty() { "nothing".to_owned() } else { row.may_use.join(", ") }
}

/// The table as Markdown, the column for one line about each crate left empty.
pub(crate) fn markdown() -> String {
    let rows = TABLE.iter().map(|row| format!("| {} | `{}` | | {} |\n", row.level, row.name, may(row)));
    format!("| level | crate | one line | may use |\n|---|---|---|---|\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tree() -> Tree {
        Tree::of(&[
            (DOCUMENT, &markdown()),
            (
                "crates/decide/Cargo.toml",
                "[dependencies]\nholdfast-types.workspace = true\nholdfast-net.workspace = true\n",
            ),
        ])
    }

    fn package(name: &str, dependencies: &Value) -> Value {
        json!({"packages": [{"name": name, "dependencies": dependencies}]})
    }

    fn own(name: &str, kind: Option<&str>) -> Value {
        json!({"name": name, "kind": kind, "path": "/x"})
    }

    fn whats(metadata: &Value) -> Vec<String> {
        check(&tree(), metadata).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_edge_outside_the_table_is_found_at_its_line() {
        let metadata = package("holdfast-decide", &json!([own("holdfast-types", None), own("holdfast-net", None)]));
        assert_eq!(
            whats(&metadata),
            ["crates/decide/Cargo.toml:3: dependency-table: decide (level 2) may not use net"]
        );
    }

    #[test]
    fn level_one_crates_never_use_one_another() {
        assert_eq!(whats(&package("holdfast-codec", &json!([own("holdfast-placement", None)]))).len(), 1);
        assert_eq!(whats(&package("holdfast-placement", &json!([own("holdfast-codec", Some("build"))]))).len(), 1);
    }

    #[test]
    fn the_test_kit_is_for_tests_only_and_not_for_pure_crates() {
        assert_eq!(whats(&package("holdfast", &json!([own("holdfast-testkit", Some("dev"))]))).len(), 0);
        assert_eq!(whats(&package("holdfast", &json!([own("holdfast-testkit", None)]))).len(), 1);
        assert_eq!(whats(&package("holdfast-codec", &json!([own("holdfast-testkit", Some("dev"))]))).len(), 1);
    }

    #[test]
    fn pure_crates_take_nothing_with_io_but_their_tests_may() {
        let tokio = |kind: Option<&str>| json!([{"name": "tokio", "kind": kind, "path": null}]);
        assert_eq!(whats(&package("holdfast-placement", &tokio(None))).len(), 1);
        assert_eq!(whats(&package("holdfast-placement", &tokio(Some("dev")))).len(), 0);
        assert_eq!(whats(&package("holdfast-net", &tokio(None))).len(), 0);
        let hash = json!([{"name": "xxhash-rust", "kind": null, "path": null}]);
        assert_eq!(whats(&package("holdfast-placement", &hash)).len(), 0);
    }

    #[test]
    fn an_unknown_crate_needs_a_row() {
        assert_eq!(whats(&package("holdfast-extra", &json!([]))).len(), 1);
    }

    #[test]
    fn the_document_must_say_the_same() {
        let faults = |text: &str| {
            let faults = check(&Tree::of(&[(DOCUMENT, text)]), &json!({"packages": []}));
            faults.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let line = |name: &str| TABLE.iter().position(|row| row.name == name).unwrap() + 3;
        assert_eq!(faults(&markdown()), Vec::<String>::new());
        let more = markdown().replace("| 3 | `net` | | types, codec |", "| 3 | net | text | codec, types, decide |");
        let at = |name: &str, what: &str| [format!("ARCHITECTURE.md:{}: dependency-table: {what}", line(name))];
        assert_eq!(faults(&more), at("net", "net may use types, codec in xtask"));
        let moved = markdown().replace("| 2 | `decide` ", "| 3 | `decide` ");
        assert_eq!(faults(&moved), at("decide", "decide is at level 2 in xtask"));
        let fewer = markdown().replace("| dev | `xtask` | | nothing |\n", "");
        assert_eq!(faults(&fewer), ["ARCHITECTURE.md:1: dependency-table: crate xtask has no row"]);
        assert_eq!(faults("# Text\n").len(), 1);
        assert_eq!(check(&Tree::of(&[]), &json!({"packages": []})).len(), 1);
    }
}
