//! Signers of tokens, one for each family of algorithms.
#![allow(dead_code, reason = "each test uses a part of it")]

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeySize, PublicKeyComponents};
use aws_lc_rs::signature::{self as lc, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use holdfast_identity::base64;
use serde_json::{Value, json};

/// A private key.
pub enum Signer {
    Ed(Ed25519KeyPair),
    Ec(EcdsaKeyPair),
    Rsa(Box<RsaKeyPair>),
}

impl Signer {
    pub fn ed() -> Self {
        Self::Ed(Ed25519KeyPair::generate().unwrap())
    }

    pub fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&lc::ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    pub fn rsa() -> Self {
        Self::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    pub fn alg(&self) -> &'static str {
        match self {
            Self::Ed(_) => "EdDSA",
            Self::Ec(_) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    /// Its public key, without `alg` and `use`.
    pub fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Ed(pair) => {
                json!({ "kid": kid, "kty": "OKP", "crv": "Ed25519", "x": base64::encode(pair.public_key().as_ref()) })
            }
            Self::Ec(pair) => {
                let point = pair.public_key().as_ref();
                json!({ "kid": kid, "kty": "EC", "crv": "P-256", "x": base64::encode(&point[1..33]), "y": base64::encode(&point[33..]) })
            }
            Self::Rsa(pair) => {
                let key: PublicKeyComponents<Vec<u8>> = pair.public_key().into();
                json!({ "kid": kid, "kty": "RSA", "n": base64::encode(&key.n), "e": base64::encode(&key.e) })
            }
        }
    }

    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Ed(pair) => pair.sign(message).as_ref().to_vec(),
            Self::Ec(pair) => pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec(),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&lc::RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }
        }
    }

    /// A token with this header and these claims, as they are.
    pub fn token_of(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", base64::encode(header.as_bytes()), base64::encode(claims.as_bytes()));
        format!("{signed}.{}", base64::encode(&self.sign(signed.as_bytes())))
    }

    /// A token under a key of this name.
    pub fn token(&self, kid: &str, claims: &Value) -> String {
        self.token_of(&json!({ "alg": self.alg(), "kid": kid, "typ": "JWT" }).to_string(), &claims.to_string())
    }
}
