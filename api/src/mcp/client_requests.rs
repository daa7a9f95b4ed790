//! The JSON-RPC requests that the broker sends to a legacy client.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
};

use serde_json::Value;
use tokio::sync::oneshot;

use super::rpc::{INTERNAL_ERROR, RpcError};

/// The JSON-RPC requests to a legacy client that wait for its response.
#[derive(Default)]
pub struct ClientRequests {
    last_id: Cell<u64>,
    pending: RefCell<HashMap<u64, oneshot::Sender<Result<Value, RpcError>>>>,
}

impl ClientRequests {
    /// Opens a request: its id, and its response once the client has sent one.
    pub fn open(&self) -> (u64, oneshot::Receiver<Result<Value, RpcError>>) {
        let id = self.last_id.get() + 1;
        self.last_id.set(id);
        let (reply, answer) = oneshot::channel();
        let mut pending = self.pending.borrow_mut();
        pending.retain(|_, reply| !reply.is_closed());
        pending.insert(id, reply);
        (id, answer)
    }

    /// Passes the client's response to its waiter; an unexpected response is ignored.
    pub fn resolve(&self, id: Option<&str>, outcome: Result<&str, &str>) {
        let reply = id
            .and_then(|id| id.parse().ok())
            .and_then(|id: u64| self.pending.borrow_mut().remove(&id));
        let Some(reply) = reply else { return };
        let read = |text| serde_json::from_str::<Value>(text).unwrap_or_default();
        let answer = match outcome {
            Ok(result) => Ok(read(result)),
            Err(error) => {
                let error = read(error);
                let code = error["code"].as_i64().and_then(|code| i32::try_from(code).ok());
                let message = error["message"].as_str().unwrap_or("the client refused").to_owned();
                Err(RpcError::new(code.unwrap_or(INTERNAL_ERROR), message))
            }
        };
        let _ = reply.send(answer);
    }
}
