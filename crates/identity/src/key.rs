//! One key out of a key set (RFC 7517, RFC 7518 6, RFC 8037), and what it may check.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use aws_lc_rs::signature::{self as lc, ParsedPublicKey, RsaPublicKeyComponents};
use holdfast_types::Mono;
use serde_json::{Map, Value};

use crate::alg::Algorithm;
use crate::reject::{Reject, Why};
use crate::{base64, rsa};

/// Where keys come from, as those who hold one of them see it: until when its keys may be used.
#[derive(Debug, Default)]
pub struct Source(AtomicU64);

impl Source {
    /// Until when the keys may be used.
    #[must_use]
    pub fn usable_until(&self) -> Mono {
        Mono(self.0.load(Relaxed))
    }

    /// Sets it.
    pub fn set_usable_until(&self, until: Mono) {
        self.0.store(until.0, Relaxed);
    }
}

/// A public key that checks signatures.
pub struct Key {
    /// Its name.
    pub kid: Option<String>,
    /// Where it comes from.
    pub source: Arc<Source>,
    /// What it checks, and how. Never empty.
    checks: Vec<(Algorithm, ParsedPublicKey)>,
    /// Of what it is made: equal for equal keys.
    print: [u8; 32],
    is_gone: AtomicBool,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algs: Vec<Algorithm> = self.checks.iter().map(|(alg, _)| *alg).collect();
        f.debug_struct("Key").field("kid", &self.kid).field("algs", &algs).finish_non_exhaustive()
    }
}

/// The longest name of a key.
const KID: usize = 256;

impl Key {
    /// Reads a key. `allowed` is what configuration allows; a key of which nothing remains is not taken.
    ///
    /// # Errors
    /// Why it is not taken.
    pub fn read(jwk: &Map<String, Value>, allowed: &[Algorithm], source: &Arc<Source>) -> Result<Self, &'static str> {
        let kid = match jwk.get("kid") {
            None => None,
            Some(Value::String(kid)) if kid.len() <= KID => Some(kid.clone()),
            Some(_) => return Err("its kid is not a short text"),
        };
        check_use(jwk)?;
        let material = Material::read(jwk)?;
        let named = match jwk.get("alg") {
            None => None,
            Some(name) => Some(name.as_str().and_then(Algorithm::parse).ok_or("its algorithm is not known here")?),
        };
        if named.is_some_and(|alg| !material.fits(alg)) {
            return Err("its algorithm is not one of its type");
        }
        let fitting = Algorithm::ALL.into_iter().filter(|alg| material.fits(*alg));
        let fitting: Vec<Algorithm> = fitting.filter(|alg| named.is_none_or(|named| named == *alg)).collect();
        let algs = fitting.into_iter().filter(|alg| allowed.contains(alg));
        let checks = algs.map(|alg| Ok((alg, material.parse(alg)?))).collect::<Result<Vec<_>, &'static str>>()?;
        if checks.is_empty() {
            return Err("none of its algorithms is allowed");
        }
        let print = print(kid.as_deref(), &checks, &material);
        Ok(Self { kid, source: source.clone(), checks, print, is_gone: AtomicBool::new(false) })
    }

    /// Whether it checks this algorithm.
    #[must_use]
    pub fn checks(&self, alg: Algorithm) -> bool {
        self.checks.iter().any(|(one, _)| *one == alg)
    }

    /// Checks a signature.
    ///
    /// # Errors
    /// `Algorithm` or `Signature`.
    pub fn verify(&self, alg: Algorithm, message: &[u8], signature: &[u8]) -> Result<(), Reject> {
        let found = self.checks.iter().find(|(one, _)| *one == alg);
        let (_, key) = found.ok_or(Reject::new(Why::Algorithm, "the token's algorithm is not that of its key"))?;
        key.verify_sig(message, signature).map_err(|_| Reject::new(Why::Signature, "the token's signature is wrong"))
    }

    /// Whether both are the same key under the same name.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.print == other.print
    }

    /// Notes that it is not among its issuer's keys any more. What it proved is proved no more.
    pub fn go(&self) {
        self.is_gone.store(true, Relaxed);
    }

    /// Whether it is not among its issuer's keys any more.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }
}

/// RFC 7517, 4.2 and 4.3: a key for something else than signatures is not for signatures. One whose secret part is published is nobody's.
fn check_use(jwk: &Map<String, Value>) -> Result<(), &'static str> {
    if ["d", "p", "q", "dp", "dq", "qi", "oth", "k"].iter().any(|name| jwk.contains_key(*name)) {
        return Err("its secret part is published with it, or it is a shared secret");
    }
    if jwk.get("use").is_some_and(|what| what != "sig") {
        return Err("it is not for signatures");
    }
    let verifies = |ops: &Value| ops.as_array().is_some_and(|ops| ops.iter().any(|op| op == "verify"));
    if jwk.get("key_ops").is_some_and(|ops| !verifies(ops)) {
        return Err("it is not for checking signatures");
    }
    Ok(())
}

/// What a key is made of.
enum Material {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    Ec { curve: Algorithm, point: Vec<u8> },
    Ed25519(Vec<u8>),
}

impl Material {
    fn read(jwk: &Map<String, Value>) -> Result<Self, &'static str> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        let bytes = |name: &str| {
            text(name)
                .and_then(|text| base64::decode(text.as_bytes()))
                .ok_or("a part of it is missing, or not base64url")
        };
        match text("kty").ok_or("it has no type")? {
            "RSA" => {
                let (n, e) = (bytes("n")?, bytes("e")?);
                rsa::fault(&n, &e).map_or(Ok(Self::Rsa { n, e }), Err)
            }
            "EC" => {
                let (curve, length) = match text("crv") {
                    Some("P-256") => (Algorithm::Es256, 32),
                    Some("P-384") => (Algorithm::Es384, 48),
                    Some("P-521") => (Algorithm::Es512, 66),
                    _ => return Err("its curve is not known here"),
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != length || y.len() != length {
                    return Err("its point is not of its curve");
                }
                Ok(Self::Ec { curve, point: [&[4], x.as_slice(), y.as_slice()].concat() })
            }
            "OKP" if text("crv") == Some("Ed25519") => {
                let x = bytes("x")?;
                if x.len() == 32 { Ok(Self::Ed25519(x)) } else { Err("its point is not of its curve") }
            }
            "OKP" => Err("its curve is not known here"),
            _ => Err("its type is not known here"),
        }
    }

    fn fits(&self, alg: Algorithm) -> bool {
        match self {
            Self::Rsa { .. } => matches!(
                alg,
                Algorithm::Rs256
                    | Algorithm::Rs384
                    | Algorithm::Rs512
                    | Algorithm::Ps256
                    | Algorithm::Ps384
                    | Algorithm::Ps512
            ),
            Self::Ec { curve, .. } => alg == *curve,
            Self::Ed25519(_) => alg == Algorithm::EdDsa,
        }
    }

    fn parse(&self, alg: Algorithm) -> Result<ParsedPublicKey, &'static str> {
        let rejected = |_| "it is no good key";
        let rsa = |params| match self {
            Self::Rsa { n, e } => RsaPublicKeyComponents { n, e }.to_parsed_public_key(params).map_err(rejected),
            _ => Err("it is no RSA key"),
        };
        match alg {
            Algorithm::Rs256 => rsa(&lc::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Rs384 => rsa(&lc::RSA_PKCS1_2048_8192_SHA384),
            Algorithm::Rs512 => rsa(&lc::RSA_PKCS1_2048_8192_SHA512),
            Algorithm::Ps256 => rsa(&lc::RSA_PSS_2048_8192_SHA256),
            Algorithm::Ps384 => rsa(&lc::RSA_PSS_2048_8192_SHA384),
            Algorithm::Ps512 => rsa(&lc::RSA_PSS_2048_8192_SHA512),
            Algorithm::Es256 => ParsedPublicKey::new(&lc::ECDSA_P256_SHA256_FIXED, self.point()).map_err(rejected),
            Algorithm::Es384 => ParsedPublicKey::new(&lc::ECDSA_P384_SHA384_FIXED, self.point()).map_err(rejected),
            Algorithm::Es512 => ParsedPublicKey::new(&lc::ECDSA_P521_SHA512_FIXED, self.point()).map_err(rejected),
            Algorithm::EdDsa => ParsedPublicKey::new(&lc::ED25519, self.point()).map_err(rejected),
        }
    }

    fn point(&self) -> &[u8] {
        match self {
            Self::Ec { point, .. } | Self::Ed25519(point) => point,
            Self::Rsa { .. } => &[],
        }
    }
}

fn print(kid: Option<&str>, checks: &[(Algorithm, ParsedPublicKey)], material: &Material) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(kid.map_or(&[0][..], str::as_bytes));
    checks.iter().for_each(|(alg, _)| part(alg.as_str().as_bytes()));
    match material {
        Material::Rsa { n, e } => {
            part(n);
            part(e);
        }
        _ => part(material.point()),
    }
    *hasher.finalize().as_bytes()
}
