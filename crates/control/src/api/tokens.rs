//! Who may ask at the admin port, from a file of lines `NAME ROLE TOKEN` that is read anew when it changes.
//!
//! In the place of a token `cert:KIND=NAME` stands for a client's certificate (`certificates`). A token is `sha256:` and 64 hexadecimal digits, or the token itself; a file with the second kind must be its owner's alone. `#` begins a line
//! of comment. No fault, log line or answer has any part of a token in it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use holdfast_telemetry::Clock;
use holdfast_types::{Mono, TenantId};

use super::auth::{Caller, Role};
use super::certificates::{Found, Names, Rule, find};

/// Shorter ones could be guessed.
pub const SHORTEST: usize = 16;
/// The most bytes of a file of tokens.
const MOST: u64 = 1 << 20;
/// How often the file is looked at, at most.
const LOOK: Duration = Duration::from_secs(1);

/// Why there are no tokens. No part of a token is in it.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// The file cannot be read.
    #[error("{} cannot be read: {}", .0.display(), .1)]
    Read(PathBuf, io::Error),
    /// A line is wrong.
    #[error("{}:{}: {}", .0.display(), .1, .2)]
    Line(PathBuf, usize, &'static str),
    /// It is none of a line's business.
    #[error("{}: {}", .0.display(), .1)]
    File(PathBuf, &'static str),
}

type Hash = [u8; 32];

#[derive(Debug)]
struct Entry {
    caller: Caller,
    hash: Hash,
}

/// What a file says.
#[derive(Debug, Default)]
struct Listed {
    entries: Vec<Entry>,
    rules: Vec<Rule>,
    /// Whether a token is not hashed.
    plain: bool,
}

/// What tells one state of a file from another.
type Mark = (u64, u64, i64, i64);

#[derive(Debug)]
struct Kept {
    listed: Arc<Listed>,
    mark: Option<Mark>,
    looked: Mono,
}

/// Tokens with their owners.
#[derive(Debug)]
pub struct Tokens {
    /// Not in the file: the one token of `token_file`.
    single: Option<Entry>,
    file: Option<PathBuf>,
    kept: Mutex<Kept>,
}

impl Tokens {
    /// One token for everything, a file of tokens, or both. The owner of the one is called `admin`.
    ///
    /// # Errors
    /// [`TokensError`].
    pub fn new(single: Option<&str>, file: Option<&Path>) -> Result<Self, TokensError> {
        let owner = Caller { name: "admin".into(), role: Role::Admin };
        let single = single.map(|token| Entry { caller: owner, hash: hash(token.as_bytes()) });
        let (listed, mark) = match file {
            Some(file) => read(file)?,
            None => (Listed::default(), None),
        };
        let kept = Kept { listed: Arc::new(listed), mark, looked: Clock::now() };
        Ok(Self { single, file: file.map(Path::to_owned), kept: Mutex::new(kept) })
    }

    /// Whose token it is. All hashes are compared to their ends, whatever is found.
    #[must_use]
    pub fn find(&self, token: &[u8]) -> Option<Caller> {
        let given = hash(token);
        let listed = self.listed();
        let all = self.single.iter().chain(&listed.entries);
        all.fold(None, |found, entry| if equal(&entry.hash, &given) { Some(&entry.caller) } else { found }).cloned()
    }

    /// Whose certificate has these names.
    pub(super) fn certified(&self, names: Names<'_>) -> Found {
        find(&self.listed().rules, names)
    }

    /// Whether anybody is known by a certificate.
    #[must_use]
    pub fn knows_certificates(&self) -> bool {
        !self.listed().rules.is_empty()
    }

    /// What the file says. If it has changed it is read; one that cannot be taken leaves in force what was.
    fn listed(&self) -> Arc<Listed> {
        let mut kept = self.kept.lock();
        let now = Clock::now();
        let Some(file) = self.file.as_deref().filter(|_| now.since(kept.looked) >= LOOK) else {
            return kept.listed.clone();
        };
        kept.looked = now;
        let mark = std::fs::metadata(file).ok().map(|m| mark(&m));
        if mark != kept.mark {
            kept.mark = mark;
            match read(file) {
                Ok((listed, mark)) => {
                    let (tokens, certificates) = (listed.entries.len(), listed.rules.len());
                    tracing::info!(file = %file.display(), tokens, certificates, "the admin tokens were read anew");
                    (kept.listed, kept.mark) = (Arc::new(listed), mark);
                }
                Err(error) => tracing::error!(%error, "the admin tokens stay as they were"),
            }
        }
        kept.listed.clone()
    }
}

fn mark(metadata: &std::fs::Metadata) -> Mark {
    (metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec())
}

fn read(path: &Path) -> Result<(Listed, Option<Mark>), TokensError> {
    let failed = |error| TokensError::Read(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text).map_err(failed)?;
    let wrong = |reason| Err(TokensError::File(path.to_owned(), reason));
    if text.len() as u64 > MOST {
        return wrong("a file of tokens has at most 1 MiB");
    }
    let listed = parse(&text).map_err(|(line, reason)| TokensError::Line(path.to_owned(), line, reason))?;
    if listed.entries.is_empty() && listed.rules.is_empty() {
        return wrong("there is no token in it");
    }
    if listed.plain && metadata.mode() & 0o077 != 0 {
        return wrong("a file with tokens that are not hashed must be its owner's alone: chmod 600");
    }
    Ok((listed, Some(mark(&metadata))))
}

/// What the text says; or the line and what is wrong with it.
fn parse(text: &str) -> Result<Listed, (usize, &'static str)> {
    let (mut listed, mut tokens, mut names) = (Listed::default(), HashSet::new(), HashSet::new());
    for (line, words) in text.lines().enumerate() {
        let words: Vec<&str> = words.split_whitespace().collect();
        let wrong = |reason| (line + 1, reason);
        let (name, role, token) = match words[..] {
            [] => continue,
            [first, ..] if first.starts_with('#') => continue,
            [name, role, token] => (name, role, token),
            _ => return Err(wrong("a line is: NAME ROLE TOKEN")),
        };
        TenantId::check(name).map_err(|_| wrong("the name is not one: ASCII letters, digits, '.', '_' and '-'"))?;
        let role = Role::parse(role).ok_or_else(|| wrong("the role is viewer, operator or admin"))?;
        let caller = Caller { name: name.into(), role };
        match token.strip_prefix("cert:") {
            Some(rule) => {
                let rule = Rule::parse(rule, caller).map_err(wrong)?;
                if !names.insert(rule.name()) {
                    return Err(wrong("the name of the certificate is there twice"));
                }
                listed.rules.push(rule);
            }
            None => {
                let hash = token_hash(token, &mut listed.plain).map_err(wrong)?;
                if !tokens.insert(hash) {
                    return Err(wrong("the token is there twice"));
                }
                listed.entries.push(Entry { caller, hash });
            }
        }
    }
    Ok(listed)
}

/// The hash of a token that is given as such or as a hash; notes if it is the first.
fn token_hash(token: &str, plain: &mut bool) -> Result<Hash, &'static str> {
    match token.strip_prefix("sha256:") {
        Some(digits) => unhex(digits).ok_or("after sha256: come 64 hexadecimal digits"),
        None if token.chars().count() < SHORTEST => Err("a token has at least 16 characters"),
        None => {
            *plain = true;
            Ok(hash(token.as_bytes()))
        }
    }
}

fn hash(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// In a time that does not depend on where they differ.
fn equal(a: &Hash, b: &Hash) -> bool {
    a.iter().zip(b).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
}

fn unhex(digits: &str) -> Option<Hash> {
    let mut hash = Hash::default();
    if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf %s a-token-of-bob-01 | sha256sum`.
    const BOB: &str = "sha256:69505b1a0f87a4990e356d5d5dc497be153350941eb9cc2903d729f8be933860";

    #[test]
    fn a_line_is_taken_whole_or_its_fault_is_told_without_the_token() {
        let hashed = format!("sha256:{}", "Ab".repeat(32));
        let text = format!("# who\n\n ann admin  a-long-enough-token \nbob\tviewer {hashed}\n");
        let Listed { entries, plain, .. } = parse(&text).unwrap();
        let told: Vec<_> = entries.iter().map(|e| (&*e.caller.name, e.caller.role)).collect();
        assert_eq!((told, plain), (vec![("ann", Role::Admin), ("bob", Role::Viewer)], true));
        let Listed { entries, plain, .. } = parse(&format!("bob viewer {BOB}")).unwrap();
        assert_eq!((entries[0].hash, plain), (hash(b"a-token-of-bob-01"), false));
        for (text, line, reason) in [
            ("ann admin", 1, "NAME ROLE TOKEN"),
            ("ann admin a-long-enough-token more", 1, "NAME ROLE TOKEN"),
            ("\nann root a-long-enough-token", 2, "viewer, operator or admin"),
            ("a/b admin a-long-enough-token", 1, "the name"),
            ("ann admin short-secret", 1, "16 characters"),
            ("ann admin sha256:12", 1, "64 hexadecimal"),
            ("a admin a-long-enough-token\nb viewer a-long-enough-token", 2, "twice"),
            ("a admin cert:cn=ann\nb viewer cert:cn=ann", 2, "twice"),
            ("a admin cert:dns=ci.example\na admin cert:dns=CI.example", 2, "twice"),
            ("a admin cert:ann", 1, "cn=, dns=, uri= or email="),
        ] {
            let Err((at, told)) = parse(text) else { panic!("{text} is taken") };
            assert!(at == line && told.contains(reason) && !told.contains("secret"), "{text}: {at} {told}");
        }
    }

    #[test]
    fn only_the_whole_token_is_one() {
        let tokens = Tokens::new(Some("the-one-token-of-all"), None).unwrap();
        assert_eq!(
            tokens.find(b"the-one-token-of-all").map(|c| (c.name.to_string(), c.role)),
            Some(("admin".into(), Role::Admin))
        );
        for wrong in ["", "the-one-token-of-al", "the-one-token-of-all ", "The-one-token-of-all"] {
            assert_eq!(tokens.find(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
