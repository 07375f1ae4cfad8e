//! Licences: every package of this machine's builds has one that deny.toml allows.
//!
//! `cargo deny` checks more (all platforms, the texts of licences), but is not installed everywhere. Expressions are SPDX's, read as leniently as
//! crates.io has taken them (`MIT/Apache-2.0`).

use spdx::{Expression, ParseMode};

use crate::report::Fault;
use crate::tree::Tree;

const DENY: &str = "deny.toml";

/// `packages` is what `cargo tree --format '{l}|{p}'` prints.
pub(crate) fn check(tree: &Tree, packages: &str) -> Vec<Fault> {
    let allowed = allowed(tree.text(DENY).unwrap_or_default());
    let mut faults: Vec<Fault> = packages
        .lines()
        .filter_map(|line| line.split_once('|'))
        .filter(|(licence, _)| !is_allowed(licence, &allowed))
        .map(|(licence, package)| Fault::new(DENY, 1, "licence", format!("{package}: {licence:?} is not allowed")))
        .collect();
    faults.sort();
    faults.dedup();
    faults
}

fn is_allowed(licence: &str, allowed: &[&str]) -> bool {
    let expression = Expression::parse_mode(licence, ParseMode::LAX);
    expression.is_ok_and(|expression| expression.evaluate(|wanted| allowed.contains(&wanted.to_string().as_str())))
}

/// Licences in `deny.toml`'s `allow = [ "NAME", ... ]`, a line each.
fn allowed(deny: &str) -> Vec<&str> {
    let entries = deny.lines().skip_while(|line| *line != "allow = [").take_while(|line| *line != "]");
    entries.filter_map(|line| line.trim().strip_prefix('"')?.split('"').next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_deny_toml_does_not_allow_is_a_fault() {
        let deny = "[licenses]\nallow = [\n  \"Apache-2.0\",\n  \"Apache-2.0 WITH LLVM-exception\",\n  \"MIT\",\n]\n";
        let tree = Tree::of(&[(DENY, deny)]);
        let of = |licence: &str| check(&tree, &format!("{licence}|p v1\n")).len();
        let good = [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR ISC) AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
        ];
        assert_eq!(good.map(of), [0; 5]);
        assert_eq!(
            ["GPL-3.0-only", "MIT AND ISC", "", "some words", "Apache-2.0 WITH GCC-exception-3.1"].map(of),
            [1; 5]
        );
        let told = check(&tree, "MIT|a v1\nISC|b v2\nISC|b v2\n");
        assert_eq!(
            told.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["deny.toml:1: licence: b v2: \"ISC\" is not allowed"]
        );
    }
}
