//! Requests to targets.

use std::{sync::Arc, time::Duration};

use actors::targets::Sending;
use tokio::{sync::Semaphore, task::spawn_blocking};
use ureq::Agent;

use common::{config::WebUrl, http_client};

/// Time for one request.
const DEADLINE: Duration = Duration::from_secs(5);
/// Requests to one target at once, over all projects: each has a thread, and a target that hangs holds up no other.
const REQUESTS_MAX: usize = 2;

/// Sends requests to one target.
#[derive(Clone, Debug)]
pub struct Sender {
    agent: Agent,
    room: Arc<Semaphore>,
}

impl Sender {
    /// A sender with room for [`REQUESTS_MAX`] requests.
    pub fn new() -> Self {
        let config = http_client::config()
            .timeout_global(Some(DEADLINE))
            .max_idle_connections(0);
        Self {
            agent: config.build().into(),
            room: Arc::new(Semaphore::new(REQUESTS_MAX)),
        }
    }

    /// Posts JSON. A status of 2xx is success; no other one is.
    pub async fn post(&self, url: WebUrl, headers: Vec<(&'static str, String)>, body: Vec<u8>) -> Sending {
        let Ok(room) = Arc::clone(&self.room).acquire_owned().await else {
            return Sending::Failed("the broker ends".to_owned());
        };
        let agent = self.agent.clone();
        let run = spawn_blocking(move || {
            let mut request = agent.post(url.as_str()).content_type("application/json");
            for (name, value) in headers {
                request = request.header(name, value);
            }
            let answer = request.send(&body[..]);
            drop(room);
            answer
        });
        match run.await {
            Ok(Ok(answer)) if answer.status().is_success() => Sending::Done,
            Ok(Ok(answer)) => Sending::Failed(format!("the answer is {}", answer.status().as_u16())),
            // The text of the library has no URL, which may hold a secret.
            Ok(Err(error)) => Sending::Failed(error.to_string()),
            Err(_) => Sending::Failed("the request was cut off".to_owned()),
        }
    }
}
