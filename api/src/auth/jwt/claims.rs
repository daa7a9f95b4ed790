//! Checks the claims of a token whose signature is verified.

use serde_json::{Map, Value};

use super::{settings::JwtSettings, token};

/// Seconds by which the issuer's clock may differ from ours.
pub const LEEWAY_S: u64 = 60;
/// The reason for refusing a token that was valid once.
pub const EXPIRED: &str = "it has expired";
/// Bytes of a subject.
const SUBJECT_LEN_MAX: usize = 256;

/// The claims of a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub subject: String,
    pub project: Option<String>,
    pub scopes: Vec<String>,
    /// The person whom the token lets answer questions: empty where the claim is missing or no text.
    pub human: String,
    /// Roles of that person.
    pub roles: Vec<String>,
    /// `exp` in milliseconds since the Unix epoch. The token is accepted for [`LEEWAY_S`] longer.
    pub expires_at_ms: u64,
}

/// The claims of an accepted token.
#[derive(Clone, Debug)]
pub struct VerifiedClaims {
    pub claims: Claims,
    /// The token is valid from this time, in seconds since the Unix epoch.
    pub not_before_s: u64,
}

/// Checks and reads the claims of a token at `now_s`, in seconds since the Unix epoch.
///
/// # Errors
/// The first claim that is missing or refused.
pub fn read(payload: &str, settings: &JwtSettings, now_s: u64) -> Result<VerifiedClaims, &'static str> {
    let claims_object = token::object(payload).ok_or("its claims are not a JSON object in base64url")?;
    if claims_object.get("iss").and_then(Value::as_str) != Some(&settings.issuer) {
        return Err("it is from another issuer");
    }
    // RFC 7519, section 4.1.3: one string, or an array that contains ours.
    let is_ours = |audience: &Value| audience.as_str() == Some(&settings.audience);
    match claims_object.get("aud") {
        Some(Value::Array(several)) if several.iter().any(is_ours) => {}
        Some(one) if is_ours(one) => {}
        _ => return Err("it is for another audience"),
    }
    let expires_s = claims_object
        .get("exp")
        .and_then(seconds)
        .ok_or("it has no expiry time")?;
    if now_s >= expires_s.saturating_add(LEEWAY_S) {
        return Err(EXPIRED);
    }
    let not_before_s = match claims_object.get("nbf") {
        None => 0,
        Some(from) => seconds(from).ok_or("its nbf is not a time")?.saturating_sub(LEEWAY_S),
    };
    if now_s < not_before_s {
        return Err("it is not valid yet");
    }
    let claims = Claims {
        subject: subject(&claims_object)?,
        project: project(&claims_object, &settings.project_claim)?,
        scopes: words(&claims_object, &settings.scope_claim).ok_or("its scopes are not strings")?,
        human: text(&claims_object, &settings.human_claim),
        roles: words(&claims_object, &settings.roles_claim).unwrap_or_default(),
        expires_at_ms: expires_s.saturating_mul(1000),
    };
    Ok(VerifiedClaims { claims, not_before_s })
}

/// Seconds since the Unix epoch, with an optional fraction (RFC 7519, section 2). A time before the epoch counts as the
/// epoch.
#[allow(clippy::cast_sign_loss)] // The cast saturates.
fn seconds(time: &Value) -> Option<u64> {
    time.as_u64().or_else(|| time.as_f64().map(|time| time as u64))
}

fn subject(claims_object: &Map<String, Value>) -> Result<String, &'static str> {
    match claims_object.get("sub").and_then(Value::as_str) {
        None | Some("") => Err("it has no subject"),
        Some(subject) if subject.len() > SUBJECT_LEN_MAX => Err("its subject is too long"),
        Some(subject) if subject.contains(char::is_control) => Err("its subject has control characters"),
        Some(subject) => Ok(subject.to_owned()),
    }
}

/// A project claim of another type is an error and not a missing claim: the token means some project.
fn project(claims_object: &Map<String, Value>, name: &str) -> Result<Option<String>, &'static str> {
    match claim_at(claims_object, name) {
        None => Ok(None),
        Some(Value::String(project)) => Ok(Some(project.clone())),
        Some(_) => Err("its project is not a string"),
    }
}

/// Scopes or roles separated by spaces (RFC 8693, section 4.2), or in an array. None for a claim of another form.
fn words(claims_object: &Map<String, Value>, name: &str) -> Option<Vec<String>> {
    match claim_at(claims_object, name) {
        None => Some(Vec::new()),
        Some(Value::String(words)) => {
            let words = words.split(' ').filter(|word| !word.is_empty());
            Some(words.map(str::to_owned).collect())
        }
        Some(Value::Array(words)) => words.iter().map(|word| word.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    }
}

fn text(claims_object: &Map<String, Value>, name: &str) -> String {
    let claim = claim_at(claims_object, name).and_then(Value::as_str);
    claim.unwrap_or_default().to_owned()
}

/// The claim with this full name, or the value at this dotted path. Full names with dots are common:
/// `https://ops.example/project`.
fn claim_at<'a>(claims_object: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    claims_object.get(name).or_else(|| {
        let (first, rest) = name.split_once('.')?;
        rest.split('.')
            .try_fold(claims_object.get(first)?, |value, part| value.get(part))
    })
}
