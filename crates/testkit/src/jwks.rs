//! An issuer of tokens: a server with a key set that rotates, is slow, hangs or fails on order, and private keys to sign with.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeySize, PublicKeyComponents};
use aws_lc_rs::signature::{self as lc, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use serde_json::{Value, json};

use crate::script::Script;
use crate::stub::Stub;

/// How the server answers.
#[derive(Debug, Clone)]
pub enum Mode {
    /// With the key set.
    Serve,
    /// With the key set, after a pause.
    Slow(Duration),
    /// Never.
    Hang,
    /// With this status and no keys.
    Status(u16),
    /// With these bytes.
    Bytes(Vec<u8>),
}

#[derive(Debug)]
struct State {
    mode: Mode,
    keys: Vec<Value>,
}

/// A running issuer.
pub struct Jwks {
    stub: Stub,
    state: Arc<Mutex<State>>,
}

impl Jwks {
    /// Starts one that serves these keys.
    ///
    /// # Panics
    /// When no socket can be bound.
    pub async fn start(keys: &[Value]) -> Self {
        let state = Arc::new(Mutex::new(State { mode: Mode::Serve, keys: keys.to_vec() }));
        let answers = state.clone();
        let stub = Stub::start(move |_| {
            let state = answers.lock().unwrap_or_else(PoisonError::into_inner);
            let served = Script::json(200, &json!({ "keys": state.keys }));
            match &state.mode {
                Mode::Serve => served,
                Mode::Slow(pause) => served.after(*pause),
                Mode::Hang => Script::never(),
                Mode::Status(status) => Script::json(*status, &json!({ "error": "no" })),
                Mode::Bytes(bytes) => Script::with_headers(200, &[("content-type", "application/json")], bytes),
            }
        })
        .await;
        Self { stub, state }
    }

    /// Its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}/jwks.json", self.stub.url())
    }

    /// How often the keys were asked for.
    #[must_use]
    pub fn fetches(&self) -> usize {
        self.stub.count(|request| request.path == "/jwks.json")
    }

    /// How often anything was asked.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.stub.count(|_| true)
    }

    /// Answers differently from now on.
    pub fn set_mode(&self, mode: Mode) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).mode = mode;
    }

    /// Has other keys from now on.
    pub fn rotate(&self, keys: &[Value]) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).keys = keys.to_vec();
    }
}

/// A private key.
pub enum Signer {
    /// Ed25519.
    Ed(Ed25519KeyPair),
    /// P-256.
    Ec(EcdsaKeyPair),
    /// RSA with 2048 bits.
    Rsa(Box<RsaKeyPair>),
}

impl Signer {
    /// A new key for `EdDSA`.
    ///
    /// # Panics
    /// When there is no randomness.
    #[must_use]
    pub fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().expect("a key"))
    }

    /// A new key for `ES256`.
    ///
    /// # Panics
    /// When there is no randomness.
    #[must_use]
    pub fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&lc::ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"))
    }

    /// A new key for `RS256`.
    ///
    /// # Panics
    /// When there is no randomness.
    #[must_use]
    pub fn rsa() -> Self {
        Self::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key")))
    }

    /// Its algorithm.
    #[must_use]
    pub fn alg(&self) -> &'static str {
        match self {
            Self::Ed(_) => "EdDSA",
            Self::Ec(_) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    /// Its public key, without `alg` and `use`.
    #[must_use]
    pub fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Ed(pair) => {
                json!({ "kid": kid, "kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key().as_ref()) })
            }
            Self::Ec(pair) => {
                let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
                json!({ "kid": kid, "kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y) })
            }
            Self::Rsa(pair) => {
                let key: PublicKeyComponents<Vec<u8>> = pair.public_key().into();
                json!({ "kid": kid, "kty": "RSA", "n": encode(&key.n), "e": encode(&key.e) })
            }
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Self::Ec(pair) => pair.sign(&random, message).expect("a signature").as_ref().to_vec(),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&lc::RSA_PKCS1_SHA256, &random, message, &mut signature).expect("a signature");
                signature
            }
        }
    }

    /// A token with this header and these claims, as they are.
    #[must_use]
    pub fn token_of(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
        format!("{signed}.{}", encode(&self.sign(signed.as_bytes())))
    }

    /// A token under a key of this name.
    #[must_use]
    pub fn token(&self, kid: &str, claims: &Value) -> String {
        self.token_of(&json!({ "alg": self.alg(), "kid": kid, "typ": "JWT" }).to_string(), &claims.to_string())
    }
}

/// Base64url without padding.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = [0_u8; 4];
        word[1..=chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(word);
        (0..=chunk.len()).for_each(|at| out.push(char::from(ALPHABET[(word >> (18 - 6 * at) & 63) as usize])));
    }
    out
}

/// Seconds since 1970.
///
/// # Panics
/// When the clock is before 1970.
#[must_use]
pub fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock after 1970").as_secs()
}
