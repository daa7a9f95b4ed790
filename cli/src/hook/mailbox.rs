//! The connection of a hook to the broker of the user, for one conversation.

use std::time::{Duration, Instant};

use serde_json::json;

use super::input::time_left;
use common::user_broker::{
    LineClient, LocalPaths, RequestError, StartPolicy, attach,
    hello::{COMMAND, Hello},
    mail::{ACTIVITY, ActivityReport, MAIL, Mail, MailQuery, ReportedActivity},
};

/// Longest time for which a hook other than `wait` keeps its client waiting, and of an attempt to connect.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// An open connection.
pub struct Mailbox {
    client: LineClient,
    conversation: String,
}

impl Mailbox {
    /// Connects to a broker that runs. `None` when there is none that serves this user before the deadline.
    pub fn open(paths: &LocalPaths, conversation: &str, deadline: Instant) -> Option<Self> {
        let hello = Hello::of_this_process(COMMAND);
        let attached = attach(paths, &hello, StartPolicy::NoStart, deadline).ok()?;
        Some(Self {
            client: LineClient::new(attached.stream),
            conversation: conversation.to_owned(),
        })
    }

    /// Tells the broker what the agent does. `None` when the broker does not take it.
    pub fn report(&mut self, activity: ReportedActivity, deadline: Instant) -> Option<()> {
        let report = ActivityReport {
            conversation: self.conversation.clone(),
            activity,
        };
        let answer = self.client.request(ACTIVITY, &json!(report), time_left(deadline));
        answer.ok().map(drop)
    }

    /// The waiting messages now. `None` when the broker does not say.
    pub fn unread(&mut self, deadline: Instant) -> Option<Mail> {
        self.query(0, deadline).ok()
    }

    /// Asks for the mail, and waits for a wake for up to `wait_seconds`.
    ///
    /// # Errors
    /// Those of [`LineClient::request`].
    pub fn query(&mut self, wait_seconds: u64, deadline: Instant) -> Result<Mail, RequestError> {
        let query = MailQuery {
            conversation: self.conversation.clone(),
            wait_seconds,
        };
        let answer = self.client.request(MAIL, &json!(query), time_left(deadline))?;
        serde_json::from_value(answer).map_err(|error| RequestError::Io(error.into()))
    }
}
