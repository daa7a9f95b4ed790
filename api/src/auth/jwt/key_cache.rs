//! The current keys and the claims that they verified. Both change together, so that no cached claim outlives its key.

use std::{collections::HashMap, sync::Arc};

use actors::locked::Locked;

use sha2::{Digest, Sha256};

use super::{
    claims::{Claims, VerifiedClaims},
    keys::JwkSet,
};

/// Cached tokens. A caller that sends one token with each request costs a digest each time and not a signature.
const VERIFIED_TOKENS_MAX: usize = 1024;

/// SHA-256 of a token or a key set.
pub type Fingerprint = [u8; 32];

/// The current keys and the claims that they verified.
#[derive(Default)]
pub struct KeyCache {
    state: Locked<State>,
}

#[derive(Default)]
struct State {
    /// None until a set was loaded.
    keys: Option<Arc<JwkSet>>,
    /// Fingerprint of the text of the set.
    text: Fingerprint,
    /// By fingerprint of the token.
    verified: HashMap<Fingerprint, VerifiedClaims>,
}

impl KeyCache {
    /// The current keys; `None` until a set was loaded.
    pub fn keys(&self) -> Option<Arc<JwkSet>> {
        self.state.lock().keys.clone()
    }

    /// Takes a key set as the issuer wrote it and returns the number of usable keys. An empty set is taken too: the
    /// issuer has withdrawn its keys.
    ///
    /// # Errors
    /// The reason when the text is no JWK set.
    pub fn replace_keys(&self, text: &[u8]) -> Result<usize, String> {
        let keys = JwkSet::parse(text)?;
        let len = keys.len();
        let text: Fingerprint = Sha256::digest(text).into();
        let mut state = self.state.lock();
        if state.keys.is_none() || state.text != text {
            state.keys = Some(Arc::new(keys));
            state.text = text;
            state.verified.clear();
            tracing::info!(keys = len, "the issuer's keys have changed");
        }
        Ok(len)
    }

    /// Returns the cached claims of a token.
    pub fn cached_claims(&self, token: &Fingerprint, now_s: u64) -> Option<Claims> {
        let mut state = self.state.lock();
        let accepted = state.verified.get(token)?;
        if !is_fresh(accepted, now_s) {
            state.verified.remove(token);
            return None;
        }
        (accepted.not_before_s <= now_s).then(|| accepted.claims.clone())
    }

    /// Caches the claims of a token, unless the keys were replaced while it was verified.
    pub fn cache_claims(&self, token: Fingerprint, accepted: VerifiedClaims, by: &Arc<JwkSet>, now_s: u64) {
        let mut state = self.state.lock();
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
}

/// Whether claims may be cached. Within the leeway after its expiry a token is verified each time.
fn is_fresh(accepted: &VerifiedClaims, now_s: u64) -> bool {
    now_s.saturating_mul(1000) < accepted.claims.expires_at_ms
}
