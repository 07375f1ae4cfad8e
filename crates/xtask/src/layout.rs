//! What every crate has: a module doc in each file of code, the workspace's lints, and for the pure crates the stricter list of clippy.

use crate::report::Fault;
use crate::tree::Tree;

/// Crates without clock, randomness and IO.
const PURE: &[&str] = &["types", "placement", "codec", "digest", "quota", "quorum", "submission", "decide", "sim"];
const PURE_LINTS: &str = "../../lints/pure/clippy.toml";

pub(crate) fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for name in tree.crates() {
        check_root(tree, name, &mut faults);
        check_lints(tree, name, &mut faults);
    }
    for (path, text) in tree.texts() {
        let source = path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs");
        // A module's tests in a file of their own are part of that module.
        let tests = path.ends_with("/tests.rs") || path.contains("/tests/");
        if source && !tests && !text.trim_start().starts_with("//!") {
            faults.push(Fault::new(path, 1, "module-doc", "the file does not begin with a module doc (//!)"));
        }
    }
    faults
}

fn check_root(tree: &Tree, name: &str, faults: &mut Vec<Fault>) {
    let roots = ["lib.rs", "main.rs"].map(|root| format!("crates/{name}/src/{root}"));
    if !roots.iter().any(|root| tree.get(root).is_some()) {
        faults.push(Fault::new(&format!("crates/{name}/Cargo.toml"), 1, "layout", "no src/lib.rs and no src/main.rs"));
    }
}

fn check_lints(tree: &Tree, name: &str, faults: &mut Vec<Fault>) {
    let manifest = format!("crates/{name}/Cargo.toml");
    if !tree.text(&manifest).unwrap_or_default().contains("[lints]\nworkspace = true") {
        faults.push(Fault::new(
            &manifest,
            1,
            "lints",
            "the workspace's lints are not taken over ([lints] workspace = true)",
        ));
    }
    let own = format!("crates/{name}/clippy.toml");
    let link = tree.get(&own).and_then(|file| file.link.as_deref());
    if PURE.contains(&name) && link != Some(PURE_LINTS) {
        faults.push(Fault::new(&own, 1, "lints", format!("a pure crate links to {PURE_LINTS}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[package]\n\n[lints]\nworkspace = true\n";

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(|f| format!("{}:{}", f.file, f.rule)).collect()
    }

    #[test]
    fn a_pure_crate_in_order_passes() {
        let files = [
            ("crates/codec/Cargo.toml", LINTS),
            ("crates/codec/clippy.toml", "-> ../../lints/pure/clippy.toml"),
            ("crates/codec/src/lib.rs", "//! Doc.\nmod a;"),
            ("crates/codec/src/a.rs", "//! Doc."),
            ("crates/codec/src/a/tests.rs", "use super::*;"),
            ("crates/codec/tests/t.rs", "fn x() {}"),
        ];
        assert_eq!(faults(&files), Vec::<String>::new());
    }

    #[test]
    fn a_pure_crate_without_its_link_or_with_a_copy_fails() {
        let base = [("crates/codec/Cargo.toml", LINTS), ("crates/codec/src/lib.rs", "//! Doc.")];
        assert_eq!(faults(&base), ["crates/codec/clippy.toml:lints"]);
        let copy = [base.as_slice(), &[("crates/codec/clippy.toml", "disallowed-methods = []")]].concat();
        assert_eq!(faults(&copy), ["crates/codec/clippy.toml:lints"]);
    }

    #[test]
    fn lints_root_and_docs_are_required_everywhere() {
        let files = [("crates/net/Cargo.toml", "[package]\n"), ("crates/net/src/pool.rs", "use x;\n")];
        assert_eq!(
            faults(&files),
            ["crates/net/Cargo.toml:layout", "crates/net/Cargo.toml:lints", "crates/net/src/pool.rs:module-doc"]
        );
    }
}
