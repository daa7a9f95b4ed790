//! The id of a task of a backend as its caller knows it: signed for that caller, and saying all that the broker has to know of
//! the task.

use actors::clock::now;
use serde_json::{Map, Value};

use crate::mcp::{
    request_state::{RequestFingerprint, StateError, StateSigner, call_elsewhere},
    rpc::RpcError,
};

/// The members of an id.
const BACKEND: &str = "b";
const TOOL: &str = "t";
const PROCESS: &str = "p";
const ID: &str = "i";

/// What an id says of its task.
#[derive(Debug, PartialEq, Eq)]
pub struct TaskId {
    /// The name of the backend.
    pub backend: String,
    /// The backend's own name of the tool that was called.
    pub tool: String,
    /// The number of the process that made it; 0 for a server at a URL.
    pub process: u64,
    /// The backend's own id of the task.
    pub id: String,
}

/// What the ids of a caller are signed for. `owner` is its path, which begins with its project.
fn fingerprint(owner: &str) -> RequestFingerprint {
    RequestFingerprint::new(owner, "tasks", &Value::Null)
}

impl TaskId {
    /// The id for this caller.
    pub fn sign(self, signer: &StateSigner, owner: &str) -> String {
        let content = [
            (BACKEND, Value::from(self.backend)),
            (TOOL, Value::from(self.tool)),
            (PROCESS, Value::from(self.process)),
            (ID, Value::from(self.id)),
        ];
        let content = content.map(|(member, value)| (member.to_owned(), value));
        // The backend knows how long it keeps its task.
        signer.sign(&fingerprint(owner), Map::from_iter(content), u64::MAX)
    }

    /// Reads an id. `None` for one that was not signed here for this caller.
    ///
    /// # Errors
    /// Another replica has signed it.
    pub fn read(signer: &StateSigner, owner: &str, id: &str) -> Result<Option<Self>, RpcError> {
        let mut content = match signer.verify(id, &fingerprint(owner), now().unix_ms) {
            Ok(content) => content,
            Err(StateError::OtherReplica(replica)) => {
                let reason =
                    "the task is of another replica, or of one that has ended: send the request to that replica";
                return Err(call_elsewhere(reason, replica));
            }
            Err(_) => return Ok(None),
        };
        let process = content.remove(PROCESS).and_then(|number| number.as_u64());
        let mut text = |member| match content.remove(member) {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let (Some(backend), Some(tool), Some(process), Some(id)) = (text(BACKEND), text(TOOL), process, text(ID))
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            backend,
            tool,
            process,
            id,
        }))
    }
}

#[cfg(test)]
mod tests {
    use actors::model::ReplicaId;

    use super::*;

    fn task() -> TaskId {
        let [backend, tool, id] = ["b", "t", "1"].map(str::to_owned);
        TaskId {
            backend,
            tool,
            process: 7,
            id,
        }
    }

    #[test]
    fn an_id_is_good_for_its_caller_at_its_replica() {
        let replica = ReplicaId::generate();
        let signer = StateSigner::random(Some(replica)).unwrap();
        let signed = task().sign(&signer, "p/alice");
        assert_eq!(signed, task().sign(&signer, "p/alice"), "a task has one id");
        assert_eq!(TaskId::read(&signer, "p/alice", &signed).unwrap(), Some(task()));
        for (owner, id) in [
            ("p/bob", signed.as_str()),
            ("q/alice", &signed),
            ("p/alice", "1"),
            ("p/alice", &signed[..signed.len() - 1]),
        ] {
            assert_eq!(TaskId::read(&signer, owner, id).unwrap(), None, "{owner} {id}");
        }
        let elsewhere = StateSigner::random(Some(ReplicaId::generate())).unwrap();
        let error = TaskId::read(&elsewhere, "p/alice", &signed).unwrap_err().to_json();
        assert_eq!(error["data"]["replica"], Value::from(replica.to_string()));
        assert_eq!(error["data"]["reason"], "call_elsewhere");
    }

    #[test]
    fn a_state_that_a_caller_carries_is_no_id() {
        let signer = StateSigner::random(None).unwrap();
        let call = RequestFingerprint::new("p/alice", "tools/call", &Value::Null);
        let content = [(BACKEND, "b"), (TOOL, "t"), (ID, "1")];
        let content = content.map(|(member, text)| (member.to_owned(), Value::from(text)));
        let state = signer.sign(&call, Map::from_iter(content), u64::MAX);
        assert_eq!(TaskId::read(&signer, "p/alice", &state).unwrap(), None);
    }
}
