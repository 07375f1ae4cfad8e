//! The route token: a resolution in a client's hands, signed, so that a retry brings it along.
//!
//! Form, name of the secret, flags, tenant, record, perhaps the submission's key; then the tag: BLAKE3 with a key over all before it. A token can be read by
//! whoever has it, and made by nobody without a secret. The first secret signs; all of them are good, so that one can be replaced without refusing what was
//! signed by the one before.

use std::fmt;

use holdfast_types::TenantId;

use crate::bytes::{Reader, put_text};
use crate::key::Key;
use crate::record::Record;

const FORM: u8 = 1;
const HAS_KEY: u8 = 1;
const NAME: usize = 4;
const TAG: usize = 32;
/// The longest token, in bytes before they are written as text.
pub const LONGEST: usize = 4_096;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whose submission it is.
    pub tenant: TenantId,
    /// What it was resolved to. Its `until` is the token's.
    pub record: Record,
    /// The key that the submission had.
    pub key: Option<Key>,
}

/// Why a token says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadToken {
    /// It is no route token.
    Malformed,
    /// No secret that is in force has signed it, or it was changed.
    Forged,
    /// Its time is over.
    Expired,
    /// It is another tenant's.
    OtherTenant,
}

impl BadToken {
    /// In words for a client.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Malformed => "x-holdfast-route is no route token, or is there more than once",
            Self::Forged => "x-holdfast-route was not signed here",
            Self::Expired => "x-holdfast-route is over its time; a request without it is resolved anew",
            Self::OtherTenant => "x-holdfast-route is another tenant's",
        }
    }
}

/// A secret that signs and checks.
#[derive(Clone)]
pub struct Secret {
    name: [u8; NAME],
    key: [u8; 32],
}

impl Secret {
    /// From a text that is hard to guess.
    #[must_use]
    pub fn new(text: &[u8]) -> Self {
        let derive = |what| blake3::derive_key(what, text);
        let name = derive("holdfast 2026-11-30 route token secret's name");
        Self {
            name: *name.first_chunk().unwrap_or(&[0; NAME]),
            key: derive("holdfast 2026-11-30 route token secret's key"),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({:02x?})", self.name)
    }
}

/// The secrets in force. The first one signs.
#[derive(Clone, Debug)]
pub struct Secrets {
    first: Secret,
    others: Vec<Secret>,
}

impl Secrets {
    /// These.
    #[must_use]
    pub fn new(first: Secret, others: Vec<Secret>) -> Self {
        Self { first, others }
    }

    /// The token of a resolution, as bytes.
    #[must_use]
    pub fn sign(&self, tenant: &TenantId, record: &Record, key: Option<&Key>) -> Vec<u8> {
        let mut out = Vec::with_capacity(160);
        out.push(FORM);
        out.extend_from_slice(&self.first.name);
        out.push(if key.is_some() { HAS_KEY } else { 0 });
        put_text(&mut out, tenant.as_str());
        record.put(&mut out);
        out.extend(key.iter().flat_map(|key| key.0));
        self.seal(out)
    }

    /// The name of the secret that signs.
    pub(crate) const fn name(&self) -> &[u8; NAME] {
        &self.first.name
    }

    /// Adds the tag.
    pub(crate) fn seal(&self, mut out: Vec<u8>) -> Vec<u8> {
        let tag = blake3::keyed_hash(&self.first.key, &out);
        out.extend_from_slice(tag.as_bytes());
        out
    }

    /// What a token says to this tenant now (milliseconds since 1970).
    ///
    /// # Errors
    /// [`BadToken`].
    pub fn open(&self, token: &[u8], tenant: &str, now: u64) -> Result<Claim, BadToken> {
        let claim = claim(self.unseal(FORM, token)?).ok_or(BadToken::Malformed)?;
        if claim.tenant.as_str() != tenant {
            return Err(BadToken::OtherTenant);
        }
        if claim.record.until <= now {
            return Err(BadToken::Expired);
        }
        Ok(claim)
    }

    /// What is signed, behind the form and the secret's name. Of each form there are other tokens, and none is taken for one of another form.
    pub(crate) fn unseal<'t>(&self, form: u8, token: &'t [u8]) -> Result<Reader<'t>, BadToken> {
        let at = token.len().checked_sub(TAG).filter(|_| token.len() <= LONGEST).ok_or(BadToken::Malformed)?;
        let (signed, tag) = token.split_at(at);
        let tag: [u8; TAG] = tag.try_into().map_err(|_| BadToken::Malformed)?;
        let mut reader = Reader(signed);
        if reader.byte() != Some(form) {
            return Err(BadToken::Malformed);
        }
        let name = reader.take(NAME).ok_or(BadToken::Malformed)?;
        let mut known = std::iter::once(&self.first).chain(&self.others).filter(|secret| secret.name == name);
        // In constant time: blake3's hashes are compared so.
        if !known.any(|secret| blake3::keyed_hash(&secret.key, signed) == blake3::Hash::from_bytes(tag)) {
            return Err(BadToken::Forged);
        }
        Ok(reader)
    }
}

fn claim(mut reader: Reader<'_>) -> Option<Claim> {
    let flags = reader.byte()?;
    let tenant = TenantId::parse(reader.text()?).ok()?;
    let record = Record::read(&mut reader)?;
    let key = match flags {
        0 => None,
        HAS_KEY => Some(Key(reader.take(16)?.try_into().ok()?)),
        _ => return None,
    };
    reader.0.is_empty().then_some(Claim { tenant, record, key })
}
