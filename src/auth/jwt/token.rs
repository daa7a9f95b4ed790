//! A token in its compact form (RFC 7515, section 7.1), before anything is believed of it.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, crypto};
use serde_json::{Map, Value};

use super::keys::{self, VerificationKey};

#[derive(Debug)]
pub struct Token<'a> {
    pub algorithm: Algorithm,
    pub key_id: Option<String>,
    /// Base64url of the claims.
    pub payload: &'a str,
    /// Header and payload as they were sent.
    signed: &'a str,
    signature: &'a str,
}

/// What `typ` may be, in lower case and without `application/`: a token that says what it is and is no access token
/// was made for something else (RFC 8725, section 3.11; RFC 9068, section 4).
const TYPES: [&str; 2] = ["jwt", "at+jwt"];

impl<'a> Token<'a> {
    pub fn parse(token: &'a str) -> Result<Self, &'static str> {
        let (signed, signature) = token.rsplit_once('.').ok_or("it has not three parts")?;
        let (header, payload) = signed.split_once('.').ok_or("it has not three parts")?;
        let header = object(header).ok_or("its header is no JSON object in base64url")?;
        // RFC 7515, section 4.1.11: what is critical must be understood, and no extension is understood here.
        if header.contains_key("crit") {
            return Err("its header has critical parameters");
        }
        let algorithm = header
            .get("alg")
            .and_then(Value::as_str)
            .and_then(keys::algorithm)
            .ok_or("its algorithm is not taken")?;
        if header.get("typ").is_some_and(|kind| !is_access_token(kind)) {
            return Err("it is a token of another type");
        }
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(id)) => Some(id.clone()),
            Some(_) => return Err("its kid is no string"),
        };
        Ok(Self {
            algorithm,
            key_id,
            payload,
            signed,
            signature,
        })
    }

    /// Whether this key signed it.
    pub fn verify_signature(&self, key: &VerificationKey) -> Result<(), &'static str> {
        match crypto::verify(self.signature, self.signed.as_bytes(), key.decoding(), self.algorithm) {
            Ok(true) => Ok(()),
            _ => Err("its signature does not hold"),
        }
    }
}

/// Whether a text has three parts in base64url, of which the first is a JSON object.
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

/// Of a name that stands twice the last is taken (RFC 7519, section 4).
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
