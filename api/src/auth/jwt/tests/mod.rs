//! Tests of bearer tokens: shared settings, timings and helpers.

mod properties;
mod rules;
mod sources;

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::FutureExt;
use serde_json::{Value, json};

use super::{issuer::Issuer, settings::SET_LEN_MAX, *};

const NOW: u64 = 1_800_000_000;
const ISSUER: &str = "https://login.example/realm";
const AUDIENCE: &str = "https://broker.example/mcp";

/// An interval longer than any test.
const NEVER: Duration = Duration::from_secs(3600);
/// Longest wait of a test; far longer than needed, so that a slow machine changes no result.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Timings under which no interval ends during a test.
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
        human_claim: "sub".to_owned(),
        roles_claim: "roles".to_owned(),
    }
}

/// A file in the temporary directory, removed on drop.
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

/// A verifier with these keys in a file.
fn verifier(jwks: &[Value]) -> Arc<JwtVerifier> {
    let file = TempFile::new(&json!({"keys": jwks}).to_string());
    JwtVerifier::open_with(NO_TIMERS, settings(KeySource::File(file.0.clone()))).unwrap()
}

/// The result of a verification that waits for nothing.
fn verdict(jwt: &JwtVerifier, token: &str, now_s: u64) -> Result<Claims, JwtError> {
    jwt.verify(token, now_s).now_or_never().unwrap()
}

/// The reason why a token is refused.
fn refusal(jwt: &JwtVerifier, token: &str) -> &'static str {
    match verdict(jwt, token, NOW) {
        Err(JwtError::Invalid(why)) => why,
        other => panic!("{other:?}: {token}"),
    }
}

/// The object with this member set, or removed if the value is null.
fn with(mut object: Value, name: &str, value: Value) -> Value {
    let members = object.as_object_mut().unwrap();
    if value.is_null() {
        members.remove(name);
    } else {
        members.insert(name.to_owned(), value);
    }
    object
}
