//! `wait`: waits until a message waits for a session.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TrySendError};
use std::time::{Duration, Instant};

use clap::Args;
use rest::sessions::Session;
use serde_json::{Value, json};

use super::events::{EventStream, Frame};
use super::job::{Context, Job};
use super::lookup::whole_path;
use super::sessions::path_of;
use crate::client::{Client, ClientError};
use crate::error::CliError;
use crate::flags::{DURATION_SECONDS_MAX, id, seconds};
use crate::output::{json_value_line, print};
use crate::short::counted;
use crate::table::escaped;

const ABOUT: &str = "\
Wait until a session has a message waiting, and print how many there are. The command takes none: mcp-broker inbox
shows or takes them. Messages that were pushed to a connected agent do not count.";

/// Wait until a session has a message waiting.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = "Exit code 3: no message waits after --timeout.")]
pub struct Wait {
    /// Name or id of the session.
    #[arg(value_name = "NAME", value_parser = id)]
    session: String,
    #[arg(long, value_name = "TIME", value_parser = seconds(0..=DURATION_SECONDS_MAX),
        help = "Longest wait, such as 30s or 5m\n[default: no limit]")]
    timeout: Option<u64>,
}

impl Job for Wait {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let deadline = self
            .timeout
            .map(|timeout| Instant::now() + Duration::from_secs(timeout));
        let path = whole_path(&context.client, &path_of(&self.session))?;
        let session = look(context, &path)?;
        if session.queue_size > 0 {
            return report(context, &session);
        }
        let changes = follow(&context.client, session.session_id);
        loop {
            let changed = match deadline {
                Some(deadline) => changes.recv_timeout(deadline.saturating_duration_since(Instant::now())),
                None => changes.recv().map_err(RecvTimeoutError::from),
            };
            if changed == Err(RecvTimeoutError::Timeout) {
                break;
            }
            match look(context, &path) {
                Ok(session) if session.queue_size > 0 => return report(context, &session),
                Ok(_) => {}
                // A broker that restarts is waited for.
                Err(error) if error.code.is_none() || error.is_passing() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let seconds = self.timeout.unwrap_or_default();
        let name = escaped(&self.session);
        Err(CliError::TimedOut(format!(
            "no message waits for {name} after {seconds} s"
        )))
    }
}

fn look(context: &Context, path: &str) -> Result<Session, ClientError> {
    context.client.get(path)
}

/// Follows the events in a thread of its own, which ends with the process. It tells when the inbox may have changed: by an
/// event, or because the stream was opened and what happened before is not known. Changes that are not yet looked at
/// count as one.
fn follow(client: &Client, session: String) -> Receiver<()> {
    let (changed, changes) = mpsc::sync_channel(1);
    let mut stream = EventStream::new(client, Some("message"), None);
    std::thread::spawn(move || {
        let mut is_open = false;
        loop {
            let frame = stream.next();
            let tells = match &frame {
                Ok(Frame::Event { data, .. }) => may_concern(data, &session),
                Ok(Frame::Heartbeat) => !is_open,
                Err(_) => true,
            };
            is_open = frame.is_ok();
            if tells && let Err(TrySendError::Disconnected(())) = changed.try_send(()) {
                return;
            }
        }
    });
    changes
}

fn report(context: &Context, session: &Session) -> Result<(), CliError> {
    let waiting = session.queue_size;
    if context.output.json {
        let (id, name) = (&session.session_id, &session.name);
        return print(&json_value_line(
            &json!({"session_id": id, "name": name, "queue_size": waiting}),
        ));
    }
    let name = escaped(session.name.as_deref().unwrap_or(&session.session_id));
    let verb = if waiting == 1 { "waits" } else { "wait" };
    print(&format!("{} {verb} for {name}\n", counted(waiting, "message")))
}

/// Whether an event may put a message into the inbox: one to the session, a broadcast, or something that happened to it.
fn may_concern(data: &str, session: &str) -> bool {
    let Ok(data) = serde_json::from_str::<Value>(data) else {
        return true;
    };
    match &data["message"] {
        Value::Object(message) => {
            let recipient = message.get("recipient_id").and_then(Value::as_str);
            recipient.is_none_or(|recipient| recipient == session)
        }
        _ => data["session_id"] == session || data["dropped"] != Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_events_of_the_inbox_concern_it() {
        for (data, concerns) in [
            (r#"{"message":{"recipient_id":"me"}}"#, true),
            (r#"{"message":{"recipient_id":null}}"#, true),
            (r#"{"message":{"recipient_id":"other"}}"#, false),
            (r#"{"event":"released","session_id":"me"}"#, true),
            (r#"{"event":"released","session_id":"other"}"#, false),
            (r#"{"dropped":3}"#, true),
            ("?", true),
        ] {
            assert_eq!(may_concern(data, "me"), concerns, "{data}");
        }
    }
}
