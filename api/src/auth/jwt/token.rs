//! A token in compact form (RFC 7515, section 7.1), before verification.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value};

use super::keys::{self, Algorithm, VerificationKey};

/// The parts of a token.
#[derive(Debug)]
pub struct Token<'a> {
    pub algorithm: &'static Algorithm,
    pub key_id: Option<String>,
    /// The claims in base64url.
    pub payload: &'a str,
    /// Header and payload as they were sent.
    signed: &'a str,
    signature: &'a str,
}

/// Accepted values of `typ`, in lower case and without `application/`: a token with another type was made for another
/// purpose (RFC 8725, section 3.11; RFC 9068, section 4).
const TYPES: [&str; 2] = ["jwt", "at+jwt"];

impl<'a> Token<'a> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// Why its form or header is refused.
    pub fn parse(token: &'a str) -> Result<Self, &'static str> {
        let (signed, signature) = token.rsplit_once('.').ok_or("it does not have three parts")?;
        let (header, payload) = signed.split_once('.').ok_or("it does not have three parts")?;
        let header = object(header).ok_or("its header is not a JSON object in base64url")?;
        // RFC 7515, section 4.1.11: critical parameters must be understood, and no extension is.
        if header.contains_key("crit") {
            return Err("its header has critical parameters");
        }
        let algorithm = header
            .get("alg")
            .and_then(Value::as_str)
            .and_then(keys::algorithm)
            .ok_or("its algorithm is not accepted")?;
        if header.get("typ").is_some_and(|kind| !is_access_token(kind)) {
            return Err("it is a token of another type");
        }
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => return Err("its kid is not a string"),
        };
        Ok(Self {
            algorithm,
            key_id,
            payload,
            signed,
            signature,
        })
    }

    /// Verifies the signature with a key.
    ///
    /// # Errors
    /// The reason when the key did not sign the token.
    pub fn verify_signature(&self, key: &VerificationKey) -> Result<(), &'static str> {
        key.has_signed(self.signed, self.signature, self.algorithm)
            .then_some(())
            .ok_or("its signature is invalid")
    }
}

/// Whether a text has three base64url parts of which the first is a JSON object.
pub fn has_jwt_form(token: &str) -> bool {
    let is_base64url = |part: &str| {
        part.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    let mut parts = token.split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(payload), Some(signature), None) => {
            is_base64url(payload) && is_base64url(signature) && object(header).is_some()
        }
        _ => false,
    }
}

/// Decodes a JSON object. Of a repeated name the last value counts (RFC 7519, section 4).
pub fn object(part: &str) -> Option<Map<String, Value>> {
    let text = URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice(&text).ok()
}

fn is_access_token(kind: &Value) -> bool {
    let Some(kind) = kind.as_str().map(str::to_ascii_lowercase) else {
        return false;
    };
    TYPES.contains(&kind.strip_prefix("application/").unwrap_or(&kind))
}
