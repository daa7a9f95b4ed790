//! How the front reaches a broker.

use std::{
    os::unix::net::UnixStream,
    time::{Duration, Instant},
};

use common::user_broker::{
    LocalPaths, StartPolicy, attach,
    hello::{Agent, Hello, HelloResult},
};

/// How long one attempt to connect takes at most, the start of a broker included.
const ATTACH_MAX: Duration = Duration::from_secs(10);

/// Bytes of the longest frame that a broker may send on a connection.
pub const FRAME_LEN_MAX: usize = 256 * 1024 * 1024;

/// A connection to a broker.
pub struct Dialed {
    /// Carries one frame a line, in both directions.
    pub stream: UnixStream,
    /// What a local broker says of itself; `None` for a broker that knows no hello.
    pub hello: Option<HelloResult>,
}

/// Why there is no connection: one line for the user.
#[derive(Debug, Clone)]
pub struct DialError(pub String);

/// A way to reach a broker. One attempt runs at a time, on a thread of its own.
pub trait Dial: Send + Sync {
    /// Connects on behalf of this agent.
    ///
    /// # Errors
    /// One line for the user.
    fn dial(&self, agent: Agent) -> Result<Dialed, DialError>;
}

/// Reaches the broker of this user, which it starts if the policy allows it.
pub struct LocalDial {
    pub paths: LocalPaths,
    pub policy: StartPolicy,
}

impl Dial for LocalDial {
    fn dial(&self, agent: Agent) -> Result<Dialed, DialError> {
        let hello = Hello {
            agent: Some(agent),
            ..Hello::of_this_process("connect")
        };
        // Another client may have started the broker since, with another runtime folder.
        let paths = LocalPaths::of(&self.paths.instance).unwrap_or_else(|_| self.paths.clone());
        let attached = attach(&paths, &hello, self.policy, Instant::now() + ATTACH_MAX);
        let attached = attached.map_err(|error| DialError(error.to_string()))?;
        Ok(Dialed {
            stream: attached.stream,
            hello: Some(attached.hello),
        })
    }
}
