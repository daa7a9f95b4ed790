//! The `requestState` of multi round-trip requests (2026-07-28, basic/patterns/mrtr): the client carries it from one
//! round to the next and must not be able to change it.

use std::fmt;

use actors::model::ReplicaId;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::rpc::RpcError;

/// Signs states and verifies them. The key is random, so a state is valid only in the process that signed it. With several
/// replicas it begins with the id of that one.
pub struct StateSigner {
    key: [u8; 64],
    replica: Option<ReplicaId>,
}

impl fmt::Debug for StateSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateSigner(***)")
    }
}

/// Identifies the request and the caller that a state is valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFingerprint {
    /// The caller.
    pub principal: String,
    /// The method.
    pub method: String,
    /// A digest of the params.
    pub params_digest: String,
}

impl RequestFingerprint {
    /// The fingerprint of a request. Order and white space of the params do not matter; the caller removes the members
    /// that differ between rounds.
    pub fn new(principal: &str, method: &str, params: &Value) -> Self {
        Self {
            principal: principal.to_owned(),
            method: method.to_owned(),
            params_digest: URL_SAFE_NO_PAD.encode(Sha256::digest(params.to_string())),
        }
    }
}

#[derive(Deserialize, Serialize)]
struct SignedState {
    /// The version of the format.
    #[serde(rename = "v")]
    version: u8,
    #[serde(rename = "p")]
    principal: String,
    #[serde(rename = "m")]
    method: String,
    #[serde(rename = "d")]
    digest: String,
    /// Milliseconds since the Unix epoch.
    #[serde(rename = "e")]
    expires_at: u64,
    /// The answers of earlier rounds.
    #[serde(rename = "a")]
    answers: Map<String, Value>,
}

const VERSION: u8 = 1;

/// Why a state is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// Not signed by this process, or changed.
    Forged,
    /// The state's time is over.
    Expired,
    /// Signed for another request or another caller.
    OtherRequest,
    /// It names another replica.
    OtherReplica(ReplicaId),
}

impl From<StateError> for RpcError {
    fn from(error: StateError) -> Self {
        let StateError::OtherReplica(replica) = error else {
            return invalid_state();
        };
        let reason = "Invalid params: requestState is of another replica, or of one that has ended: send the request to that \
                      replica, or start again without it";
        call_elsewhere(reason, replica)
    }
}

/// The refusal of what another replica has signed.
pub fn call_elsewhere(reason: &'static str, replica: ReplicaId) -> RpcError {
    RpcError::invalid_params(reason).with_data(json!({"reason": "call_elsewhere", "replica": replica}))
}

/// The refusal of a state. It does not tell the reasons apart: that would help only a forger.
pub fn invalid_state() -> RpcError {
    RpcError::invalid_params(
        "Invalid params: requestState belongs to another request or has expired: start again without it",
    )
    .with_data(json!({"reason": "invalid_request_state"}))
}

impl StateSigner {
    /// A signer with a random key, of this replica if there are several.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random(replica: Option<ReplicaId>) -> Result<Self, getrandom::Error> {
        let mut key = [0; 64];
        getrandom::fill(&mut key)?;
        Ok(Self { key, replica })
    }

    /// A state that carries the answers so far; `expires_at` in milliseconds since the Unix epoch.
    pub fn sign(&self, origin: &RequestFingerprint, answers: Map<String, Value>, expires_at: u64) -> String {
        let RequestFingerprint {
            principal,
            method,
            params_digest: digest,
        } = origin.clone();
        let sealed = SignedState {
            version: VERSION,
            principal,
            method,
            digest,
            expires_at,
            answers,
        };
        let mut body = Vec::new();
        common::json::write_json(&mut body, &sealed);
        let body = URL_SAFE_NO_PAD.encode(body);
        let tag = self.mac(&body).finalize().into_bytes();
        let replica = self.replica.map(|replica| format!("{replica}."));
        format!("{}{body}.{}", replica.unwrap_or_default(), URL_SAFE_NO_PAD.encode(tag))
    }

    /// The answers of earlier rounds.
    ///
    /// # Errors
    /// [`StateError`] if the state is not valid for this request at `now_ms`, in milliseconds since the Unix epoch.
    pub fn verify(
        &self,
        state: &str,
        origin: &RequestFingerprint,
        now_ms: u64,
    ) -> Result<Map<String, Value>, StateError> {
        let (signed, tag) = state.rsplit_once('.').ok_or(StateError::Forged)?;
        let body = match signed.split_once('.') {
            None => signed,
            Some((replica, body)) => {
                let replica = ReplicaId::parse(replica).ok_or(StateError::Forged)?;
                if self.replica != Some(replica) {
                    return Err(StateError::OtherReplica(replica));
                }
                body
            }
        };
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| StateError::Forged)?;
        self.mac(body).verify_slice(&tag).map_err(|_| StateError::Forged)?;
        let sealed: SignedState = URL_SAFE_NO_PAD
            .decode(body)
            .ok()
            .and_then(|body| serde_json::from_slice(&body).ok())
            .filter(|sealed: &SignedState| sealed.version == VERSION)
            .ok_or(StateError::Forged)?;
        if sealed.expires_at <= now_ms {
            return Err(StateError::Expired);
        }
        let same = sealed.principal == origin.principal
            && sealed.method == origin.method
            && sealed.digest == origin.params_digest;
        same.then_some(sealed.answers).ok_or(StateError::OtherRequest)
    }

    fn mac(&self, body: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new(&self.key.into());
        mac.update(body.as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(params: &Value) -> RequestFingerprint {
        RequestFingerprint::new("default", "tools/call", params)
    }

    fn answers() -> Map<String, Value> {
        json!({"name": {"action": "accept"}}).as_object().unwrap().clone()
    }

    #[test]
    fn a_state_is_valid_for_its_request_until_it_expires() {
        let sealer = StateSigner::random(None).unwrap();
        let origin = origin(&json!({"name": "x", "arguments": {"a": 1, "b": 2}}));
        let state = sealer.sign(&origin, answers(), 1000);
        assert_eq!(sealer.verify(&state, &origin, 999), Ok(answers()));
        assert_eq!(sealer.verify(&state, &origin, 1000), Err(StateError::Expired));
        let same = RequestFingerprint::new(
            "default",
            "tools/call",
            &serde_json::from_str(r#"{"arguments":{"b":2,"a":1}, "name":"x"}"#).unwrap(),
        );
        assert!(sealer.verify(&state, &same, 0).is_ok());
    }

    #[test]
    fn a_state_is_invalid_for_other_requests_callers_and_processes() {
        let sealer = StateSigner::random(None).unwrap();
        let params = json!({"name": "x"});
        let state = sealer.sign(&origin(&params), answers(), 1000);
        for other in [
            RequestFingerprint::new("other", "tools/call", &params),
            RequestFingerprint::new("default", "prompts/get", &params),
            origin(&json!({"name": "y"})),
        ] {
            assert_eq!(sealer.verify(&state, &other, 0), Err(StateError::OtherRequest));
        }
        assert_eq!(
            StateSigner::random(None).unwrap().verify(&state, &origin(&params), 0),
            Err(StateError::Forged)
        );
    }

    #[test]
    fn a_state_of_another_replica_names_it() {
        let (here, there) = (ReplicaId::generate(), ReplicaId::generate());
        let [at_this, at_that] = [here, there].map(|replica| StateSigner::random(Some(replica)).unwrap());
        let origin = origin(&json!({}));
        let state = at_this.sign(&origin, answers(), 1000);
        assert_eq!(at_this.verify(&state, &origin, 0), Ok(answers()));
        assert_eq!(at_that.verify(&state, &origin, 0), Err(StateError::OtherReplica(here)));
        let error = RpcError::from(StateError::OtherReplica(here)).to_json();
        assert_eq!(error["data"], json!({"reason": "call_elsewhere", "replica": here}));
        let renamed = state.replacen(&here.to_string(), &there.to_string(), 1);
        assert_eq!(at_that.verify(&renamed, &origin, 0), Err(StateError::Forged));
    }

    #[test]
    fn a_state_with_any_changed_byte_is_forged() {
        let sealer = StateSigner::random(None).unwrap();
        let origin = origin(&json!({}));
        let state = sealer.sign(&origin, answers(), 1000);
        for at in 0..state.len() {
            let mut changed = state.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            // The last character of Base64 has unused bits; a decoder must not ignore them.
            assert_eq!(sealer.verify(&changed, &origin, 0), Err(StateError::Forged), "{at}");
        }
        for bad in ["", ".", "a.b", &state[..state.len() - 1], &format!("{state}-TAMPERED")] {
            assert_eq!(sealer.verify(bad, &origin, 0), Err(StateError::Forged), "{bad}");
        }
    }
}
