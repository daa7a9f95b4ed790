//! The issuer's keys: the signature keys of a JWK set (RFC 7517).

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    agreement::{self, EphemeralPrivateKey},
    rand::SystemRandom,
    signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm},
};
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

/// How a signature is verified.
#[derive(Clone, Copy, Debug)]
enum Check {
    Rsa(&'static RsaParameters),
    Other(&'static dyn VerificationAlgorithm),
}

/// An accepted algorithm (RFC 7518, section 3.1; RFC 8037).
#[derive(Debug)]
pub struct Algorithm {
    name: &'static str,
    of: KeyType,
    check: Check,
}

impl Algorithm {
    const fn new(name: &'static str, of: KeyType, check: Check) -> Self {
        Self { name, of, check }
    }
}

/// The accepted algorithms. `none` and HMAC are excluded: a public key used as a shared secret would sign everything
/// (RFC 8725, section 2.1).
static ALGORITHMS: [Algorithm; 9] = [
    Algorithm::new(
        "RS256",
        KeyType::Rsa,
        Check::Rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
    ),
    Algorithm::new(
        "RS384",
        KeyType::Rsa,
        Check::Rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
    ),
    Algorithm::new(
        "RS512",
        KeyType::Rsa,
        Check::Rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
    ),
    Algorithm::new("PS256", KeyType::Rsa, Check::Rsa(&signature::RSA_PSS_2048_8192_SHA256)),
    Algorithm::new("PS384", KeyType::Rsa, Check::Rsa(&signature::RSA_PSS_2048_8192_SHA384)),
    Algorithm::new("PS512", KeyType::Rsa, Check::Rsa(&signature::RSA_PSS_2048_8192_SHA512)),
    Algorithm::new(
        "ES256",
        KeyType::P256,
        Check::Other(&signature::ECDSA_P256_SHA256_FIXED),
    ),
    Algorithm::new(
        "ES384",
        KeyType::P384,
        Check::Other(&signature::ECDSA_P384_SHA384_FIXED),
    ),
    Algorithm::new("EdDSA", KeyType::Ed25519, Check::Other(&signature::ED25519)),
];

/// Bits of an RSA modulus: RFC 7518, section 3.3, sets the minimum; the maximum bounds the time of a verification.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=4096;

/// The accepted algorithm with this case-sensitive name.
pub fn algorithm(name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|known| known.name == name)
}

/// A public key as its algorithm takes it.
#[derive(Clone)]
enum PublicKey {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// A point of a curve.
    Other(Vec<u8>),
}

/// One key that verifies signatures.
#[derive(Clone)]
pub struct VerificationKey {
    id: Option<String>,
    /// The algorithm that the JWK names, or else all algorithms of its type.
    algorithms: Vec<&'static str>,
    key: PublicKey,
}

impl VerificationKey {
    /// Whether this key made the signature, which is in base64url, of a text.
    pub fn has_signed(&self, text: &str, signature: &str, algorithm: &Algorithm) -> bool {
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else {
            return false;
        };
        let verified = match (&self.key, algorithm.check) {
            (PublicKey::Rsa(key), Check::Rsa(parameters)) => key.verify(parameters, text.as_bytes(), &signature),
            (PublicKey::Other(point), Check::Other(check)) => {
                UnparsedPublicKey::new(check, point).verify(text.as_bytes(), &signature)
            }
            _ => return false,
        };
        verified.is_ok()
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
    pub fn find(&self, id: Option<&str>, algorithm: &Algorithm) -> Result<&VerificationKey, &'static str> {
        let is_named = |key: &&VerificationKey| id.is_none_or(|id| key.id.as_deref() == Some(id));
        let mut fitting = self
            .keys
            .iter()
            .filter(is_named)
            .filter(|key| key.algorithms.contains(&algorithm.name));
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
    let (kind, key) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
        ("RSA", _) => (KeyType::Rsa, rsa(&jwk.n?, &jwk.e?)?),
        ("EC", Some("P-256")) => (KeyType::P256, point(&jwk.x?, &jwk.y?, 32, &agreement::ECDH_P256)?),
        ("EC", Some("P-384")) => (KeyType::P384, point(&jwk.x?, &jwk.y?, 48, &agreement::ECDH_P384)?),
        ("OKP", Some("Ed25519")) => (KeyType::Ed25519, PublicKey::Other(bytes_of(&jwk.x?, 32)?)),
        _ => return None,
    };
    let algorithms: Vec<_> = ALGORITHMS
        .iter()
        .filter(|known| known.of == kind && jwk.alg.as_deref().is_none_or(|alg| alg == known.name))
        .map(|known| known.name)
        .collect();
    (!algorithms.is_empty()).then_some(VerificationKey {
        id: jwk.kid,
        algorithms,
        key,
    })
}

/// An even exponent, or 1, belongs to no key: with 1 every text is its own signature.
fn rsa(n: &str, e: &str) -> Option<PublicKey> {
    let (n, e) = (unsigned_bytes(n)?, unsigned_bytes(e)?);
    let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
    let is_exponent = e.last()? % 2 == 1 && e != [1];
    (RSA_BITS.contains(&bits) && is_exponent).then_some(PublicKey::Rsa(RsaPublicKeyComponents { n, e }))
}

/// Decodes a number without its leading zeros, which some issuers write.
fn unsigned_bytes(text: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
}

/// A point in its uncompressed form (SEC 1, section 2.3.3). Coordinates have their full length (RFC 7518, section 6.2.1.2).
fn point(x: &str, y: &str, len: usize, curve: &'static agreement::Algorithm) -> Option<PublicKey> {
    let point = [&[4][..], &bytes_of(x, len)?, &bytes_of(y, len)?].concat();
    // An agreement checks that the point is on its curve, which a signature would show only with the first token.
    let own = EphemeralPrivateKey::generate(curve, &SystemRandom::new()).ok()?;
    agreement::agree_ephemeral(own, &agreement::UnparsedPublicKey::new(curve, &point), |_| ()).ok()?;
    Some(PublicKey::Other(point))
}

fn bytes_of(text: &str, len: usize) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok().filter(|bytes| bytes.len() == len)
}
