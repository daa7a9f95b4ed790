mod properties;
mod rules;
mod sources;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use futures_util::FutureExt;
use serde_json::{Value, json};

use super::{issuer::Issuer, *};

const NOW: u64 = 1_800_000_000;
const ISSUER: &str = "https://login.example/realm";
const AUDIENCE: &str = "https://broker.example/mcp";

/// An interval that no test lives to see the end of.
const NEVER: Duration = Duration::from_secs(3600);
/// The longest that anything here is waited for. Far more than it takes, so that a slow machine changes nothing.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Nothing happens because of time.
const NO_TIMERS: JwtTimings = JwtTimings {
    file_check_interval: NEVER,
    refresh_interval: NEVER,
    fetch_interval_min: NEVER,
    fetch_timeout: TEST_TIMEOUT,
    wait_timeout: TEST_TIMEOUT,
};

fn issuer() -> Issuer {
    Issuer::new(ISSUER, AUDIENCE)
}

fn settings(keys: KeySource) -> JwtSettings {
    JwtSettings {
        issuer: ISSUER.to_owned(),
        audience: AUDIENCE.to_owned(),
        keys,
        project_claim: "project".to_owned(),
        scope_claim: "scope".to_owned(),
    }
}

/// A file in the directory for such, gone with this.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mcp-broker-{}-jwks-{count}.json", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Takes the tokens of whoever has one of these keys.
fn verifier(jwks: &[Value]) -> Arc<JwtVerifier> {
    let file = TempFile::new(&json!({"keys": jwks}).to_string());
    JwtVerifier::open_with(NO_TIMERS, settings(KeySource::File(file.0.clone()))).unwrap()
}

/// What becomes of a token where nothing has to be waited for.
fn verdict(jwt: &JwtVerifier, token: &str, now_s: u64) -> Result<Claims, JwtError> {
    jwt.verify(token, now_s).now_or_never().unwrap()
}

/// Why it is refused.
fn refusal(jwt: &JwtVerifier, token: &str) -> &'static str {
    match verdict(jwt, token, NOW) {
        Err(JwtError::Invalid(why)) => why,
        other => panic!("{other:?}: {token}"),
    }
}

/// The object with this member, or without it if the value is null.
fn with(mut object: Value, name: &str, value: Value) -> Value {
    let members = object.as_object_mut().unwrap();
    if value.is_null() {
        members.remove(name);
    } else {
        members.insert(name.to_owned(), value);
    }
    object
}
