//! An issuer of JWTs: has a key, publishes it as a JWK set, and signs tokens.

use std::path::Path;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, crypto, jwk::Jwk};
use serde_json::{Value, json};

/// The prefix of a private key in PKCS #8 form (RFC 5958, RFC 8410, RFC 5915).
const ED25519: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
const P256: [u8; 35] = *b"\x30\x41\x02\x01\x00\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\
    \x3d\x03\x01\x07\x04\x27\x30\x25\x02\x01\x01\x04\x20";
const P384: [u8; 32] = *b"\x30\x4e\x02\x01\x00\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\
    \x04\x37\x30\x35\x02\x01\x01\x04\x30";

#[derive(Clone)]
pub struct Issuer {
    pub name: String,
    pub audience: String,
    pub key_id: String,
    algorithm: Algorithm,
    key: EncodingKey,
}

impl Issuer {
    /// An issuer with a new Ed25519 key, whose tokens are for this audience.
    pub fn new(name: &str, audience: &str) -> Self {
        let key = EncodingKey::from_ed_der(&[&ED25519[..], &random::<32>()].concat());
        Self {
            name: name.to_owned(),
            audience: audience.to_owned(),
            key_id: URL_SAFE_NO_PAD.encode(random::<8>()),
            algorithm: Algorithm::EdDSA,
            key,
        }
    }

    /// The same issuer with a new Ed25519 key and another kid.
    pub fn rotated(&self) -> Self {
        Self::new(&self.name, &self.audience)
    }

    /// The same issuer with a new P-256 key and another kid.
    pub fn p256(&self) -> Self {
        let key = EncodingKey::from_ec_der(&[&P256[..], &random::<32>()].concat());
        self.rotated().with_key(Algorithm::ES256, key)
    }

    /// The same issuer with a new P-384 key and another kid.
    pub fn p384(&self) -> Self {
        let key = EncodingKey::from_ec_der(&[&P384[..], &random::<48>()].concat());
        self.rotated().with_key(Algorithm::ES384, key)
    }

    /// The same issuer and kid with this key.
    pub fn with_key(self, algorithm: Algorithm, key: EncodingKey) -> Self {
        Self { algorithm, key, ..self }
    }

    /// The public key.
    pub fn jwk(&self) -> Value {
        let mut jwk = serde_json::to_value(Jwk::from_encoding_key(&self.key, self.algorithm).unwrap()).unwrap();
        jwk["kid"] = json!(self.key_id);
        jwk["use"] = json!("sig");
        jwk
    }

    /// The JWK set with this key only.
    pub fn jwks(&self) -> String {
        json!({"keys": [self.jwk()]}).to_string()
    }

    /// Writes the JWK set to a file.
    pub fn publishes(&self, path: &Path) {
        std::fs::write(path, self.jwks()).unwrap();
    }

    /// Claims of a token that is valid for an hour from `now_s`.
    pub fn claims(&self, subject: &str, now_s: u64) -> Value {
        json!({
            "iss": self.name,
            "aud": self.audience,
            "sub": subject,
            "iat": now_s,
            "nbf": now_s,
            "exp": now_s + 3600,
        })
    }

    /// A token with these claims.
    pub fn signs(&self, claims: &Value) -> String {
        self.signs_with(&self.header(), claims)
    }

    /// Signs with this header. The algorithm in the header does not change how the token is signed.
    pub fn signs_with(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = crypto::sign(signed.as_bytes(), &self.key, self.algorithm).unwrap();
        format!("{signed}.{signature}")
    }

    /// The header of its tokens.
    pub fn header(&self) -> Value {
        json!({"typ": "at+jwt", "alg": self.algorithm, "kid": self.key_id})
    }
}

/// The signed part of a token: header and claims.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    format!("{header}.{claims}")
}

/// Random bytes that are a valid private number for every curve here: not zero and below its order.
fn random<const LEN: usize>() -> [u8; LEN] {
    let mut bytes = [0; LEN];
    getrandom::fill(&mut bytes).unwrap();
    bytes[0] = (bytes[0] & 0x7f) | 1;
    bytes
}
