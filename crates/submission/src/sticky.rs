//! The sticky token: the key that gave somebody an arm, in a client's hands, signed, so that it still decides when more is known of them.
//!
//! It is signed like a route token, with the same secrets and another form. It names no arm and no version. Whoever has it can read the key, which is the
//! client's own.

use holdfast_types::{ExperimentName, TenantId};

use crate::bytes::{Reader, put_number, put_text};
use crate::token::{BadToken, Secrets};

const FORM: u8 = 2;
/// The longest key that is kept, in bytes.
pub const LONGEST_KEY: usize = 256;
/// The longest token, in bytes before they are written as text.
pub const LONGEST: usize = 1_024;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Whose person it is.
    pub tenant: TenantId,
    /// In which experiment.
    pub experiment: ExperimentName,
    /// What the key is, such as `device`.
    pub attribute: Box<str>,
    /// The key.
    pub key: Box<str>,
    /// Whose it became: a hash of the better key that was known first beside it.
    pub owner: Option<u64>,
    /// Until when it counts, in milliseconds since 1970.
    pub until: u64,
}

impl Keep {
    /// The token. None: the key is too long to be kept.
    #[must_use]
    pub fn sign(&self, secrets: &Secrets) -> Option<Vec<u8>> {
        if self.key.len() > LONGEST_KEY {
            return None;
        }
        let mut out = Vec::with_capacity(160);
        out.push(FORM);
        out.extend_from_slice(secrets.name());
        put_text(&mut out, self.tenant.as_str());
        put_text(&mut out, self.experiment.as_str());
        put_text(&mut out, &self.attribute);
        put_text(&mut out, &self.key);
        put_number(&mut out, self.until);
        out.push(u8::from(self.owner.is_some()));
        out.extend(self.owner.iter().flat_map(|owner| owner.to_le_bytes()));
        Some(secrets.seal(out))
    }

    /// What a token says to this tenant now (milliseconds since 1970).
    ///
    /// # Errors
    /// [`BadToken`].
    pub fn open(secrets: &Secrets, token: &[u8], tenant: &str, now: u64) -> Result<Self, BadToken> {
        if token.len() > LONGEST {
            return Err(BadToken::Malformed);
        }
        let keep = read(secrets.unseal(FORM, token)?).ok_or(BadToken::Malformed)?;
        match () {
            () if keep.tenant.as_str() != tenant => Err(BadToken::OtherTenant),
            () if keep.until <= now => Err(BadToken::Expired),
            () => Ok(keep),
        }
    }
}

fn read(mut reader: Reader<'_>) -> Option<Keep> {
    let tenant = TenantId::parse(reader.text()?).ok()?;
    let experiment = ExperimentName::parse(reader.text()?).ok()?;
    let (attribute, key) = (reader.text()?.into(), reader.text()?.into());
    let until = reader.number()?;
    let owner = match reader.byte()? {
        0 => None,
        1 => Some(u64::from_le_bytes(reader.take(8)?.try_into().ok()?)),
        _ => return None,
    };
    reader.0.is_empty().then_some(Keep { tenant, experiment, attribute, key, owner, until })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Secret;

    fn keep(key: &str) -> Keep {
        let (tenant, experiment) = (TenantId::parse("acme").unwrap(), ExperimentName::parse("ab").unwrap());
        Keep { tenant, experiment, attribute: "device".into(), key: key.into(), owner: Some(7), until: 1_000 }
    }

    fn secrets(text: &str) -> Secrets {
        Secrets::new(Secret::new(text.as_bytes()), Vec::new())
    }

    #[test]
    fn a_token_says_what_was_signed_and_nothing_else_does() {
        let ours = secrets("ours");
        for one in [keep("d0"), Keep { owner: None, ..keep("d1") }, keep(&"x".repeat(LONGEST_KEY))] {
            let token = one.sign(&ours).unwrap();
            assert!(token.len() <= LONGEST);
            assert_eq!(Keep::open(&ours, &token, "acme", 999), Ok(one));
            assert_eq!(Keep::open(&ours, &token, "acme", 1_000), Err(BadToken::Expired));
            assert_eq!(Keep::open(&ours, &token, "globex", 0), Err(BadToken::OtherTenant));
            assert_eq!(Keep::open(&secrets("others"), &token, "acme", 0), Err(BadToken::Forged));
            for bit in 0..token.len() * 8 {
                let mut changed = token.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(Keep::open(&ours, &changed, "acme", 0).is_err(), "bit {bit}");
            }
            for end in 0..token.len() {
                assert!(Keep::open(&ours, &token[..end], "acme", 0).is_err(), "{end} bytes");
            }
            assert_eq!(ours.open(&token, "acme", 0), Err(BadToken::Malformed), "it is no route token");
        }
        assert_eq!(keep(&"x".repeat(LONGEST_KEY + 1)).sign(&ours), None);
        assert_eq!(Keep::open(&ours, &[FORM; LONGEST + 1], "acme", 0), Err(BadToken::Malformed));
    }
}
