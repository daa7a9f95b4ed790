//! `inbox`: shows the waiting messages of a session, or takes them.

use actors::model::NOTE_CHARACTERS_MAX;
use clap::{Args, builder::PossibleValuesParser};
use rest::{
    messages::{Envelope, ListedMessage},
    sessions::Session,
};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use std::fmt::Write as _;

use super::job::{Context, Job};
use super::lists::Pages;
use super::lookup::whole_path;
use super::message::{PAGE_LEN_MAX, table};
use super::names::Names;
use super::sessions::path_of;
use super::tools;
use crate::client::{parameter, parsed, with_query};
use crate::error::CliError;
use crate::flags::{id, one_of, whole};
use crate::output::{Written, json_line, write};
use crate::short::counted;

/// The most messages that are taken or shown at once.
const MESSAGES_MAX: u32 = 1000;

/// The most messages that one call of the broker acknowledges with an outcome.
const CONCLUDED_MAX: usize = 100;

const OUTCOMES: &[&str] = &["done", "blocked", "rejected"];

const ABOUT: &str = "\
Show the messages that wait for a session, oldest first. Looking at a message does not deliver it.

With --take the command acts as the session: it registers its name, receives the messages, prints them with
their payloads, and acknowledges them once they are printed. The session must belong to the key. An agent
that is connected under this name would lose its connection, so --take refuses an active session without --force.

The senders can read --outcome and --note, for instance with mcp-broker messages MESSAGE_ID. A message with the
outcome rejected becomes a dead letter.";

/// Show the messages that wait for a session, or take them.
#[derive(Debug, Args)]
#[command(long_about = ABOUT)]
pub struct Inbox {
    /// Name or id of the session.
    #[arg(value_name = "NAME", value_parser = id)]
    session: String,
    /// Receive and acknowledge the messages as the session.
    #[arg(long, visible_alias = "ack")]
    take: bool,
    /// Take them although the session is active.
    #[arg(long, requires = "take")]
    force: bool,
    #[arg(long, value_name = "OUTCOME", help = one_of(OUTCOMES, "How the work on the messages that are taken ended"),
        value_parser = PossibleValuesParser::new(OUTCOMES), hide_possible_values = true, requires = "take")]
    outcome: Option<String>,
    /// What the sender should know about the outcome, at most 1000 characters.
    #[arg(long, value_name = "TEXT", value_parser = note, requires = "outcome")]
    note: Option<String>,
    /// Also show the payloads, which requires the scope admin.
    #[arg(long, conflicts_with = "take")]
    payload: bool,
    /// The most messages.
    #[arg(long, value_name = "N", default_value = "100", value_parser = whole(1..=MESSAGES_MAX))]
    limit: u32,
}

/// Refuses a note that the broker would refuse only when the messages are received.
fn note(text: &str) -> Result<String, String> {
    if text.chars().count() > NOTE_CHARACTERS_MAX {
        return Err(format!("at most {NOTE_CHARACTERS_MAX} characters"));
    }
    Ok(text.to_owned())
}

/// The result of `receive_messages`.
#[derive(Deserialize)]
struct Received {
    messages: Vec<Box<RawValue>>,
    remaining: u64,
}

#[derive(Deserialize)]
struct Registered {
    session_id: String,
}

impl Job for Inbox {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let path = whole_path(&context.client, &path_of(&self.session))?;
        let session: Session = context.client.get(path)?;
        if self.take {
            self.take(context, &session)
        } else {
            self.peek(context, &session)
        }
    }
}

impl Inbox {
    /// Shows the messages of the history that are queued for the session.
    fn peek(&self, context: &Context, session: &Session) -> Result<(), CliError> {
        let filters = [
            parameter("session", Some(&session.session_id)),
            parameter("status", Some("queued")),
            Some(format!("include={}", if self.payload { "payload" } else { "excerpt" })),
        ];
        let path = with_query("/api/v1/messages", filters);
        let mut pages = Pages::new(&context.client, path, "messages", PAGE_LEN_MAX, usize::MAX);
        let mut waiting: Vec<(ListedMessage, Box<RawValue>)> = Vec::new();
        // The history is read from its end, so that all that wait are looked for, and the oldest of them are shown.
        let wanted = usize::try_from(session.queue_size).unwrap_or(usize::MAX);
        while waiting.len() < wanted
            && let Some(page) = pages.next_page()?
        {
            for item in page {
                let message: ListedMessage = parsed(item.get())?;
                if is_for(&message, &session.session_id) {
                    waiting.push((message, item));
                }
            }
        }
        waiting.reverse();
        let found = waiting.len() as u64;
        waiting.truncate(self.limit as usize);
        if context.output.json {
            let lines: String = waiting.iter().map(|(_, item)| json_line(item)).collect();
            write(&lines)?;
            return Ok(());
        }
        let shown: Vec<ListedMessage> = waiting.into_iter().map(|(message, _)| message).collect();
        let mut text = match session.queue_size {
            0 => "no messages wait\n".to_owned(),
            _ if shown.is_empty() => String::new(),
            _ => context.output.table(&table(
                &context.output,
                &shown,
                &Names::ask(&context.client),
                self.payload,
            )),
        };
        let older = session.queue_size.saturating_sub(found);
        if older > 0 {
            let count = counted(older, "message");
            let _ = writeln!(
                text,
                "{count} more, older than the history of the broker or not yours to see"
            );
        }
        if found > u64::from(self.limit) {
            let _ = writeln!(text, "\nThere are more messages: --limit shows up to {MESSAGES_MAX}.");
        }
        write(&text).map(|_| ())
    }

    /// Receives the messages as the session. They are acknowledged once they are printed.
    fn take(&self, context: &Context, session: &Session) -> Result<(), CliError> {
        let Some(name) = &session.name else {
            let line = "a session without a name belongs to the connection that made it: its messages cannot be taken";
            return Err(CliError::Failed(line.to_owned()));
        };
        if session.status != "disconnected" && !self.force {
            return Err(CliError::Failed(format!(
                "{} is {}: taking its messages would end the connection of its agent, and nothing was taken; --force \
                 takes them",
                crate::table::escaped(name),
                session.status
            )));
        }
        let client = &context.client;
        let registered = tools::call(client, "register_session", &json!({"name": name}))?;
        let Registered { session_id } = parsed(registered.get())?;
        let taken = self.receive(context, &session_id);
        let left = tools::call(client, "disconnect_session", &json!({"session_id": session_id}));
        taken.and(left.map(|_| ()).map_err(CliError::from))
    }

    fn receive(&self, context: &Context, session_id: &str) -> Result<(), CliError> {
        let client = &context.client;
        let mut left = self.limit as usize;
        let mut count = 0;
        let remaining = loop {
            let most = self.outcome.as_ref().map_or(left, |_| left.min(CONCLUDED_MAX));
            let arguments = json!({"session_id": session_id, "limit": most, "acknowledge": "manual"});
            let received: Received = parsed(tools::call(client, "receive_messages", &arguments)?.get())?;
            if received.messages.is_empty() {
                break received.remaining;
            }
            if print_taken(context, &received.messages)? == Written::Closed {
                return Ok(());
            }
            let mut ids = Vec::new();
            for message in &received.messages {
                let message: Envelope = parsed(message.get())?;
                ids.push(message.message_id);
            }
            let mut arguments = json!({"session_id": session_id, "message_ids": ids});
            for (member, value) in [("outcome", &self.outcome), ("note", &self.note)] {
                if let Some(value) = value {
                    arguments[member] = value.as_str().into();
                }
            }
            tools::call(client, "acknowledge_messages", &arguments)?;
            count += ids.len();
            left -= ids.len().min(left);
            if left == 0 {
                break received.remaining;
            }
        };
        if context.output.json {
            return Ok(());
        }
        let text = match (count, remaining) {
            (0, _) => "no messages wait\n".to_owned(),
            (_, 0) => String::new(),
            (_, more) => format!(
                "\n{} more: --limit takes up to {MESSAGES_MAX}\n",
                counted(more, "message")
            ),
        };
        write(&text).map(|_| ())
    }
}

fn print_taken(context: &Context, messages: &[Box<RawValue>]) -> Result<Written, CliError> {
    if context.output.json {
        let lines: String = messages.iter().map(|message| json_line(message)).collect();
        return write(&lines);
    }
    let mut read: Vec<ListedMessage> = Vec::new();
    for message in messages {
        let mut message: ListedMessage = parsed(message.get())?;
        // Received messages have no receipts next to them; they are delivered by being here.
        message.status = Some("delivered".to_owned());
        read.push(message);
    }
    write(
        &context
            .output
            .table(&table(&context.output, &read, &Names::ask(&context.client), true)),
    )
}

/// Whether the session is a recipient: a message that it sent is listed with its own messages too.
fn is_for(message: &Envelope, session: &str) -> bool {
    match &message.recipient_id {
        Some(recipient) => recipient == session,
        None => message.sender_id != session,
    }
}
