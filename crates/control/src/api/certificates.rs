//! Clients that are known by their certificates: rules `cn=`, `dns=`, `uri=` and `email=` over the names in them.
//!
//! Whoever is asked has verified the certificate; here only names are looked at. A certificate whose names fit two callers is nobody's: which of them
//! was meant would be a guess.

use super::auth::Caller;

/// The names of a client's certificate that was verified, each with its kind: `cn`, `dns` (in lower case), `uri`, `email`.
pub type Names<'a> = &'a [(&'a str, &'a str)];

/// The kinds of names that a rule may be about.
const KINDS: [&str; 4] = ["cn", "dns", "uri", "email"];

/// One name, and whose it is.
#[derive(Debug)]
pub(super) struct Rule {
    kind: &'static str,
    value: Box<str>,
    caller: Caller,
}

/// Whose certificate it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// Of nobody that is known.
    Nobody,
    /// Of this one.
    One(Caller),
    /// Its names are those of two.
    Several,
}

impl Rule {
    /// Reads `KIND=VALUE`. In a value `%20` is a space, and so on for all bytes.
    pub(super) fn parse(text: &str, caller: Caller) -> Result<Self, &'static str> {
        let wrong = "after cert: comes cn=, dns=, uri= or email= with a name";
        let (kind, value) = text.split_once('=').ok_or(wrong)?;
        let kind = KINDS.into_iter().find(|known| *known == kind).ok_or(wrong)?;
        let value = decoded(value).ok_or("a name of a certificate has % with two hexadecimal digits after it")?;
        if value.is_empty() || value.contains('*') {
            return Err("a name of a certificate is whole: not empty, and without *");
        }
        let value = if kind == "dns" { value.to_ascii_lowercase() } else { value };
        Ok(Self { kind, value: value.into(), caller })
    }

    /// What it is about.
    pub(super) fn name(&self) -> (&'static str, Box<str>) {
        (self.kind, self.value.clone())
    }
}

/// Whose certificate has these names.
pub(super) fn find(rules: &[Rule], names: Names<'_>) -> Found {
    let mut found: Option<&Caller> = None;
    for rule in rules.iter().filter(|rule| names.contains(&(rule.kind, &*rule.value))) {
        if found.is_some_and(|found| *found != rule.caller) {
            return Found::Several;
        }
        found = Some(&rule.caller);
    }
    found.cloned().map_or(Found::Nobody, Found::One)
}

fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?].map(|digit| (digit as char).to_digit(16));
        out.push(u8::try_from(digits[0]? * 16 + digits[1]?).ok()?);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::super::auth::Role;
    use super::*;

    fn caller(name: &str, role: Role) -> Caller {
        Caller { name: name.into(), role }
    }

    #[test]
    fn a_rule_is_a_whole_name_of_a_known_kind() {
        let ann = || caller("ann", Role::Admin);
        for good in ["cn=ann", "cn=Ann%20Smith", "dns=CI.example", "uri=spiffe://prod/ci", "email=ann@example.org"] {
            assert!(Rule::parse(good, ann()).is_ok(), "{good}");
        }
        for bad in
            ["", "cn", "cn=", "ip=1.2.3.4", "CN=ann", "dns=*.example", "cn=%", "cn=%4", "cn=%zz", "cn=%ff", "uri=%2a"]
        {
            assert!(Rule::parse(bad, ann()).is_err(), "{bad}");
        }
        let same = |a, b| [a, b].map(|text| Rule::parse(text, ann()).unwrap().name()).windows(2).all(|w| w[0] == w[1]);
        assert!(same("dns=CI.example", "dns=ci.EXAMPLE") && same("cn=a%62c", "cn=abc"));
        assert!(!same("cn=ci", "dns=ci") && !same("cn=ci", "cn=CI"));
    }

    #[test]
    fn names_are_those_of_one_caller_or_of_none() {
        let rules = [
            Rule::parse("cn=ann", caller("ann", Role::Admin)).unwrap(),
            Rule::parse("dns=ci.example", caller("ci", Role::Operator)).unwrap(),
            Rule::parse("uri=spiffe://prod/ci", caller("ci", Role::Operator)).unwrap(),
        ];
        let find = |names: &[(&str, &str)]| super::find(&rules, names);
        let ci = || Found::One(caller("ci", Role::Operator));
        assert_eq!(find(&[("cn", "ann"), ("dns", "elsewhere.example")]), Found::One(caller("ann", Role::Admin)));
        assert_eq!(find(&[("dns", "ci.example")]), ci());
        assert_eq!(find(&[("dns", "ci.example"), ("uri", "spiffe://prod/ci")]), ci(), "two names of one caller");
        assert_eq!(find(&[("cn", "ann"), ("dns", "ci.example")]), Found::Several);
        for nobody in [&[][..], &[("cn", "ann ")], &[("dns", "ann")], &[("cn", "ci.example")], &[("cn", "ANN")]] {
            assert_eq!(find(nobody), Found::Nobody, "{nobody:?}");
        }
    }
}
