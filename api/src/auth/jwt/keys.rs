//! The issuer's keys: the signature keys of a JWK set (RFC 7517).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, crypto};
use serde::Deserialize;
use serde_json::Value;

/// The type of a key: `kty` and `crv` of its JWK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyType {
    Rsa,
    P256,
    P384,
    Ed25519,
}

/// The accepted algorithms. `none` and HMAC are excluded: a public key used as a shared secret would sign everything
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

/// Bits of an RSA modulus: RFC 7518, section 3.3, sets the minimum, the library the maximum.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// The accepted algorithm with this case-sensitive name.
pub fn algorithm(name: &str) -> Option<Algorithm> {
    let (_, algorithm, _) = ALGORITHMS.iter().find(|(known, ..)| *known == name)?;
    Some(*algorithm)
}

/// One key that verifies signatures.
#[derive(Clone)]
pub struct VerificationKey {
    id: Option<String>,
    /// The algorithm that the JWK names, or else all algorithms of its type.
    algorithms: Vec<Algorithm>,
    decoding: DecodingKey,
}

impl VerificationKey {
    /// The key in the form of the library.
    pub fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }
}

/// A key set in the order of the issuer.
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
    /// Parses a JWK set. Unusable keys are skipped (RFC 7517, section 5); the set may be empty.
    ///
    /// # Errors
    /// The reason when the text is no JWK set.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let set: Set = serde_json::from_slice(text).map_err(|error| format!("it is not a JWK set: {error}"))?;
        let keys = set.keys.into_iter().filter_map(|key| {
            let key = serde_json::from_value(key).ok()?;
            parse_jwk(key)
        });
        Ok(Self { keys: keys.collect() })
    }

    /// The number of usable keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether a key has this id.
    pub fn contains(&self, id: &str) -> bool {
        self.keys.iter().any(|key| key.id.as_deref() == Some(id))
    }

    /// Returns the one key that can have signed a token.
    ///
    /// # Errors
    /// The reason when no key fits, or several do: keys are not tried one after the other.
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
    // Verifying a signature finds a point that is not on its curve: now, and not with the first token.
    let is_sound = crypto::verify("", &[], &decoding, *algorithms.first()?).is_ok();
    is_sound.then_some(VerificationKey {
        id: jwk.kid,
        algorithms,
        decoding,
    })
}

/// An even exponent, or 1, belongs to no key: with 1 every text is its own signature.
fn rsa(n: &str, e: &str) -> Option<DecodingKey> {
    let (n, e) = (unsigned_bytes(n)?, unsigned_bytes(e)?);
    let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
    let is_exponent = e.last()? % 2 == 1 && e != [1];
    (RSA_BITS.contains(&bits) && is_exponent).then(|| DecodingKey::from_rsa_raw_components(&n, &e))
}

/// Decodes a number without its leading zeros, which some issuers write.
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

/// The library takes the first 32 bytes and panics when fewer exist.
fn ed25519(x: &str) -> Option<DecodingKey> {
    has_len(x, 32)
        .then(|| DecodingKey::from_ed_components(x).ok())
        .flatten()
}

fn has_len(text: &str, len: usize) -> bool {
    URL_SAFE_NO_PAD.decode(text).is_ok_and(|bytes| bytes.len() == len)
}
