//! The inbox socket of Claude Code, by which other sessions of the user tell it something. Each server on stdio finds that of
//! its own client in its environment.

use std::{
    fmt, fs,
    io::{self, ErrorKind, Write},
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::PathBuf,
    time::Instant,
};

use rustix::process::geteuid;
use serde_json::json;
use uuid::Uuid;

use super::missed::Missed;
use common::user_broker;

/// The variables with the path of the socket and the token of its first line.
pub const SOCKET_ENV: &str = "CLAUDE_CODE_MESSAGING_SOCKET";
/// See [`SOCKET_ENV`].
pub const TOKEN_ENV: &str = "CLAUDE_CODE_MESSAGING_TOKEN";

/// The inbox of the client that has started this process.
#[derive(Clone)]
pub struct Inbox {
    socket: PathBuf,
    /// Goes to the socket alone: not to the broker, not into logs.
    token: String,
}

impl fmt::Debug for Inbox {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Inbox(..)")
    }
}

impl Inbox {
    /// The inbox at this path.
    pub fn new(socket: PathBuf, token: String) -> Self {
        Self { socket, token }
    }

    /// The inbox that the environment names.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let socket = PathBuf::from(variable(SOCKET_ENV)?);
        let token = variable(TOKEN_ENV).unwrap_or_default();
        socket.is_absolute().then(|| Self::new(socket, token))
    }

    /// Writes a text on a connection of its own. The client does not answer: that it was written says nothing about what
    /// the client does with it.
    ///
    /// # Errors
    /// There is no socket of this user, or it takes no text until the deadline.
    pub fn write(&self, text: &str, deadline: Instant) -> Result<(), Missed> {
        let metadata = fs::symlink_metadata(&self.socket).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Missed::absent("the inbox socket of the client is gone"),
            _ => Missed::failed(format!("the inbox socket cannot be used: {error}")),
        })?;
        if !metadata.file_type().is_socket() {
            return Err(Missed::failed("the inbox of the client is no socket"));
        }
        let own = geteuid().as_raw();
        if metadata.uid() != own {
            return Err(Missed::failed("the inbox socket belongs to another user"));
        }
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                Missed::refused("the client has closed the connection")
            }
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Missed::failed("the inbox of the client takes nothing"),
            _ => Missed::failed(format!("the inbox socket cannot be used: {error}")),
        };
        let Some(mut stream) = user_broker::connect(&self.socket, deadline).map_err(failed)? else {
            return Err(Missed::absent("no program listens at the inbox socket"));
        };
        if user_broker::peer_of(&stream)
            .map_err(failed)?
            .is_some_and(|peer| peer.uid != own)
        {
            return Err(Missed::failed("another user listens at the inbox socket"));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Missed::failed("the time is up"));
        }
        stream.set_write_timeout(Some(left)).map_err(failed)?;
        stream
            .write_all(self.lines(text, Uuid::new_v4()).as_bytes())
            .map_err(failed)
    }

    /// What one wake writes: the line with the token, and the line with the text.
    fn lines(&self, text: &str, id: Uuid) -> String {
        let (token, text) = (json!(self.token), json!(text));
        format!(
            "{{\"type\":\"auth\",\"token\":{token}}}\n{{\"type\":\"user\",\"message\":{{\"role\":\"user\",\
             \"content\":{text}}},\"from\":\"mcp-broker\",\"msg_id\":\"{id}\"}}\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_is_two_lines() {
        let inbox = Inbox::new("/run/1.sock".into(), "s3\"cret".to_owned());
        let id = Uuid::nil();
        assert_eq!(
            inbox.lines("2 messages \"wait\"", id),
            "{\"type\":\"auth\",\"token\":\"s3\\\"cret\"}\n{\"type\":\"user\",\"message\":{\"role\":\"user\",\
             \"content\":\"2 messages \\\"wait\\\"\"},\"from\":\"mcp-broker\",\
             \"msg_id\":\"00000000-0000-0000-0000-000000000000\"}\n"
        );
        assert_eq!(format!("{inbox:?}"), "Inbox(..)");
    }

    #[test]
    fn only_an_absolute_path_is_a_socket() {
        let of = |path: &'static str| {
            Inbox::from_environment(move |name| (name == SOCKET_ENV).then(|| path.to_owned())).is_some()
        };
        assert!(of("/run/1.sock") && !of("1.sock") && !of(""));
        assert!(Inbox::from_environment(|_| None).is_none());
    }
}
