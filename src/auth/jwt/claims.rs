//! What a token must say to be taken. Its signature has been verified by then.

use serde_json::{Map, Value};

use super::{Claims, JwtSettings, token};

/// How far the issuer's clock may be from ours, in seconds.
pub const LEEWAY_S: u64 = 60;
/// What is wrong with a token of the issuer that was good once.
pub const EXPIRED: &str = "it has expired";
/// Bytes of a subject.
const SUBJECT_LEN_MAX: usize = 256;

/// The claims of a token that is taken.
#[derive(Clone, Debug)]
pub struct VerifiedClaims {
    pub claims: Claims,
    /// The token is taken from here on, in seconds since the Unix epoch.
    pub not_before_s: u64,
}

pub fn read(payload: &str, settings: &JwtSettings, now_s: u64) -> Result<VerifiedClaims, &'static str> {
    let said = token::object(payload).ok_or("its claims are no JSON object in base64url")?;
    if said.get("iss").and_then(Value::as_str) != Some(&settings.issuer) {
        return Err("it is of another issuer");
    }
    // RFC 7519, section 4.1.3: one string, or several of which one must be ours.
    let is_ours = |audience: &Value| audience.as_str() == Some(&settings.audience);
    match said.get("aud") {
        Some(Value::Array(several)) if several.iter().any(is_ours) => {}
        Some(one) if is_ours(one) => {}
        _ => return Err("it is for another audience"),
    }
    let expires_s = said.get("exp").and_then(seconds).ok_or("it has no time of expiry")?;
    if now_s >= expires_s.saturating_add(LEEWAY_S) {
        return Err(EXPIRED);
    }
    let from_s = match said.get("nbf") {
        None => 0,
        Some(from) => seconds(from).ok_or("its nbf is no time")?.saturating_sub(LEEWAY_S),
    };
    if now_s < from_s {
        return Err("it is not valid yet");
    }
    let claims = Claims {
        subject: subject(&said)?,
        project: project(&said, &settings.project_claim)?,
        scopes: scopes(&said, &settings.scope_claim)?,
        expires_at_ms: expires_s.saturating_mul(1000),
    };
    Ok(VerifiedClaims {
        claims,
        not_before_s: from_s,
    })
}

/// Seconds since the Unix epoch, which may have a fraction (RFC 7519, section 2). A time before it counts as the epoch.
#[allow(clippy::cast_sign_loss)] // The cast saturates.
fn seconds(time: &Value) -> Option<u64> {
    time.as_u64().or_else(|| time.as_f64().map(|time| time as u64))
}

fn subject(said: &Map<String, Value>) -> Result<String, &'static str> {
    match said.get("sub").and_then(Value::as_str) {
        None | Some("") => Err("it has no subject"),
        Some(subject) if subject.len() > SUBJECT_LEN_MAX => Err("its subject is too long"),
        Some(subject) if subject.contains(char::is_control) => Err("its subject has control characters"),
        Some(subject) => Ok(subject.to_owned()),
    }
}

/// A claim of another type is no claim that is missing: a token that means a project must not count as one that
/// means none.
fn project(said: &Map<String, Value>, name: &str) -> Result<Option<String>, &'static str> {
    match claim_at(said, name) {
        None => Ok(None),
        Some(Value::String(project)) => Ok(Some(project.clone())),
        Some(_) => Err("its project is no string"),
    }
}

/// Separated by spaces (RFC 8693, section 4.2), or in an array.
fn scopes(said: &Map<String, Value>, name: &str) -> Result<Vec<String>, &'static str> {
    let scopes = match claim_at(said, name) {
        None => Some(Vec::new()),
        Some(Value::String(scopes)) => {
            let scopes = scopes.split(' ').filter(|scope| !scope.is_empty());
            Some(scopes.map(str::to_owned).collect())
        }
        Some(Value::Array(scopes)) => scopes.iter().map(|scope| scope.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    };
    scopes.ok_or("its scopes are no strings")
}

/// The claim of this name, or what its parts lead to. Names with dots are common: `https://ops.example/project`.
fn claim_at<'a>(said: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    said.get(name).or_else(|| {
        let (first, rest) = name.split_once('.')?;
        rest.split('.')
            .try_fold(said.get(first)?, |value, part| value.get(part))
    })
}
