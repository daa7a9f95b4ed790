//! The keys as they are now, and the tokens that they have verified: both change together, so that no token outlives
//! the key that signed it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use sha2::{Digest, Sha256};

use super::{Claims, claims::VerifiedClaims, keys::JwkSet};

/// Verified tokens that are remembered: whoever sends the same one with each request costs a digest each time, and
/// not a signature.
const VERIFIED_TOKENS_MAX: usize = 1024;

/// Of a token or a key set: SHA-256.
pub type Fingerprint = [u8; 32];

#[derive(Default)]
pub struct KeyCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// None until there was a set.
    keys: Option<Arc<JwkSet>>,
    /// Of the text of the set.
    text: Fingerprint,
    /// By the token.
    verified: HashMap<Fingerprint, VerifiedClaims>,
}

impl KeyCache {
    pub fn keys(&self) -> Option<Arc<JwkSet>> {
        self.state().keys.clone()
    }

    /// Takes a set as the issuer has written it. An empty one is believed too: the issuer has withdrawn its keys.
    ///
    /// Returns how many of its keys are usable.
    pub fn replace_keys(&self, text: &[u8]) -> Result<usize, String> {
        let keys = JwkSet::parse(text)?;
        let len = keys.len();
        let text: Fingerprint = Sha256::digest(text).into();
        let mut state = self.state();
        if state.keys.is_none() || state.text != text {
            state.keys = Some(Arc::new(keys));
            state.text = text;
            state.verified.clear();
            tracing::info!(keys = len, "the keys of the issuer of tokens are new");
        }
        Ok(len)
    }

    /// What a token said that these keys have verified before.
    pub fn cached_claims(&self, token: &Fingerprint, now_s: u64) -> Option<Claims> {
        let mut state = self.state();
        let accepted = state.verified.get(token)?;
        if !is_fresh(accepted, now_s) {
            state.verified.remove(token);
            return None;
        }
        (accepted.not_before_s <= now_s).then(|| accepted.claims.clone())
    }

    /// Keeps what a token said. Keys that were replaced while it was verified say nothing any more.
    pub fn cache_claims(&self, token: Fingerprint, accepted: VerifiedClaims, by: &Arc<JwkSet>, now_s: u64) {
        let mut state = self.state();
        let is_current = state.keys.as_ref().is_some_and(|keys| Arc::ptr_eq(keys, by));
        if !is_current || !is_fresh(&accepted, now_s) {
            return;
        }
        if state.verified.len() >= VERIFIED_TOKENS_MAX {
            state.verified.retain(|_, accepted| is_fresh(accepted, now_s));
        }
        if state.verified.len() >= VERIFIED_TOKENS_MAX {
            let first = state.verified.iter().min_by_key(|(_, it)| it.claims.expires_at_ms);
            if let Some(first) = first.map(|(token, _)| *token) {
                state.verified.remove(&first);
            }
        }
        state.verified.insert(token, accepted);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Within the leeway after its expiry a token is verified anew each time.
fn is_fresh(accepted: &VerifiedClaims, now_s: u64) -> bool {
    now_s.saturating_mul(1000) < accepted.claims.expires_at_ms
}
