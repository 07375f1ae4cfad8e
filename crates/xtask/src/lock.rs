//! The lock file: every package from crates.io, and none that deny.toml bans.
//!
//! `cargo deny` checks more, but is not installed everywhere; these two rules hold on every machine. The lock file also lists what a feature
//! like `ring?/alloc` names of a crate that nothing turns on. What no build of any feature for any platform has is no fault.

use crate::report::Fault;
use crate::tree::Tree;

const LOCK: &str = "Cargo.lock";
const DENY: &str = "deny.toml";
const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The packages of all builds, as `built` tells; it is asked only if the lock file has a banned crate. `None`: it could not be told.
pub(crate) fn check(tree: &Tree, built: impl FnOnce() -> Option<Vec<String>>) -> Vec<Fault> {
    let Some(lock) = tree.text(LOCK) else {
        return vec![Fault::new(LOCK, 1, "lock", "the lock file is missing")];
    };
    let banned = banned(tree.text(DENY).unwrap_or_default());
    let mut faults = Vec::new();
    let mut locked = Vec::new();
    for (at, line) in lock.lines().enumerate() {
        if let Some(source) = quoted(line, "source = ").filter(|source| *source != SOURCE) {
            faults.push(Fault::new(LOCK, at + 1, "source", format!("{source} is not crates.io")));
        }
        if let Some(name) = quoted(line, "name = ").filter(|name| banned.contains(name)) {
            locked.push((at + 1, name));
        }
    }
    let built = if locked.is_empty() { None } else { built() };
    let in_a_build = |name: &str| built.as_ref().is_none_or(|built| built.iter().any(|package| package == name));
    for (line, name) in locked.into_iter().filter(|(_, name)| in_a_build(name)) {
        faults.push(Fault::new(LOCK, line, "banned-crate", format!("{name}: the reason is in {DENY}")));
    }
    faults
}

/// Names in `deny.toml`'s `deny = [ { crate = "NAME", ... }, ... ]`.
fn banned(deny: &str) -> Vec<&str> {
    let entries = deny.lines().skip_while(|line| !line.starts_with("deny = [")).take_while(|line| *line != "]");
    entries.filter_map(|line| quoted(line.trim().trim_start_matches("{ "), "crate = ")).collect()
}

fn quoted<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix('"')?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_source_and_a_banned_crate_are_found() {
        let lock = format!(
            "[[package]]\nname = \"ring\"\nsource = \"{SOURCE}\"\n\n[[package]]\nname = \"x\"\nsource = \"git+https://e.org/x\"\n"
        );
        let deny =
            "[bans]\ndeny = [\n  { crate = \"ring\", reason = \"r\" },\n  { crate = \"rsa\", reason = \"r\" },\n]\n";
        let faults = |built: Option<&[&str]>| -> Vec<String> {
            let built = built.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
            let mut faults = check(&Tree::of(&[(LOCK, &lock), (DENY, deny)]), || built);
            faults.sort();
            faults.iter().map(ToString::to_string).collect()
        };
        let banned = "Cargo.lock:2: banned-crate: ring: the reason is in deny.toml";
        let source = "Cargo.lock:7: source: git+https://e.org/x is not crates.io";
        assert_eq!(faults(Some(&["ring", "x"])), [banned, source]);
        assert_eq!(faults(None), [banned, source], "what is not known to be in no build may be in one");
        assert_eq!(faults(Some(&["x"])), [source], "listed, but in no build");
    }

    #[test]
    fn a_missing_lock_file_is_a_fault() {
        assert_eq!(check(&Tree::of(&[]), || None).len(), 1);
    }
}
