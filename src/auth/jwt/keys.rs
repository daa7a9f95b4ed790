//! The issuer's keys: a JWK set (RFC 7517), of which what verifies signatures is kept.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde::Deserialize;
use serde_json::Value;

/// What a key is of: the `kty` and `crv` of its JWK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyType {
    Rsa,
    P256,
    P384,
    Ed25519,
}

/// What is taken. There is no `none`, and no HMAC: a public key that is taken for a shared secret signs everything
/// (RFC 8725, section 2.1).
const ALGORITHMS: [(&str, Algorithm, KeyType); 9] = [
    ("RS256", Algorithm::RS256, KeyType::Rsa),
    ("RS384", Algorithm::RS384, KeyType::Rsa),
    ("RS512", Algorithm::RS512, KeyType::Rsa),
    ("PS256", Algorithm::PS256, KeyType::Rsa),
    ("PS384", Algorithm::PS384, KeyType::Rsa),
    ("PS512", Algorithm::PS512, KeyType::Rsa),
    ("ES256", Algorithm::ES256, KeyType::P256),
    ("ES384", Algorithm::ES384, KeyType::P384),
    ("EdDSA", Algorithm::EdDSA, KeyType::Ed25519),
];

/// Bits of an RSA modulus: fewer are too few (RFC 7518, section 3.3), and more are not verified by the library.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// The algorithm of this name, if it is taken. Names are told apart by case.
pub fn algorithm(name: &str) -> Option<Algorithm> {
    let (_, algorithm, _) = ALGORITHMS.iter().find(|(known, ..)| *known == name)?;
    Some(*algorithm)
}

/// One key that verifies signatures.
#[derive(Clone)]
pub struct VerificationKey {
    id: Option<String>,
    /// The one that it is for, if its JWK says so, or else every one of its kind.
    algorithms: Vec<Algorithm>,
    decoding: DecodingKey,
}

impl VerificationKey {
    pub fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }
}

/// A set of keys, in the order of the issuer.
#[derive(Default)]
pub struct JwkSet {
    keys: Vec<VerificationKey>,
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl JwkSet {
    /// Keys that cannot be used are skipped (RFC 7517, section 5), and a set may have no other.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let set: Set = serde_json::from_slice(text).map_err(|error| format!("it is no JWK set: {error}"))?;
        let keys = set.keys.into_iter().filter_map(|key| {
            let key = serde_json::from_value(key).ok()?;
            parse_jwk(key)
        });
        Ok(Self { keys: keys.collect() })
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn contains(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id.as_deref() == Some(id))
    }

    /// The key that has to have signed a token. There is no trying out: what is fit by several is refused.
    pub fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&VerificationKey, &'static str> {
        let is_named = |key: &&VerificationKey| id.is_none_or(|id| key.id.as_deref() == Some(id));
        let mut fitting = self
            .keys
            .iter()
            .filter(is_named)
            .filter(|key| key.algorithms.contains(&algorithm));
        match (fitting.next(), fitting.next()) {
            (Some(key), None) => Ok(key),
            (None, _) => Err("no key of the issuer fits"),
            (Some(_), Some(_)) => Err("several keys of the issuer fit"),
        }
    }
}

fn parse_jwk(jwk: Jwk) -> Option<VerificationKey> {
    let verifies = jwk.usage.is_none_or(|usage| usage == "sig")
        && jwk.key_ops.is_none_or(|ops| ops.iter().any(|op| op == "verify"));
    if !verifies {
        return None;
    }
    let (kind, decoding) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => (KeyType::Rsa, rsa(&jwk.n?, &jwk.e?)?),
        ("EC", Some("P-256")) => (KeyType::P256, curve(&jwk.x?, &jwk.y?, 32)?),
        ("EC", Some("P-384")) => (KeyType::P384, curve(&jwk.x?, &jwk.y?, 48)?),
        ("OKP", Some("Ed25519")) => (KeyType::Ed25519, ed25519(&jwk.x?)?),
        _ => return None,
    };
    let algorithms: Vec<_> = ALGORITHMS
        .iter()
        .filter(|(name, _, of)| *of == kind && jwk.alg.as_deref().is_none_or(|alg| alg == *name))
        .map(|(_, algorithm, _)| *algorithm)
        .collect();
    // A point that is not on its curve is found when a signature is looked at: here, and not with the first token.
    let is_sound = crypto::verify("", &[], &decoding, *algorithms.first()?).is_ok();
    is_sound.then_some(VerificationKey {
        id: jwk.kid,
        algorithms,
        decoding,
    })
}

/// An even exponent, or 1, belongs to no key: with 1 everything is its own signature.
fn rsa(n: &str, e: &str) -> Option<DecodingKey> {
    let (n, e) = (unsigned_bytes(n)?, unsigned_bytes(e)?);
    let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
    let is_exponent = e.last()? % 2 == 1 && e != [1];
    (RSA_BITS.contains(&bits) && is_exponent).then(|| DecodingKey::from_rsa_raw_components(&n, &e))
}

/// Without the zeros in front that some issuers write.
fn unsigned_bytes(text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
}

/// Coordinates have their full length (RFC 7518, section 6.2.1.2).
fn curve(x: &str, y: &str, len: usize) -> Option<DecodingKey> {
    (has_len(x, len) && has_len(y, len))
        .then(|| DecodingKey::from_ec_components(x, y).ok())
        .flatten()
}

/// The library takes the first 32 bytes, and panics where there are fewer.
fn ed25519(x: &str) -> Option<DecodingKey> {
    has_len(x, 32)
        .then(|| DecodingKey::from_ed_components(x).ok())
        .flatten()
}

fn has_len(text: &str, len: usize) -> bool {
    URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == len)
}
