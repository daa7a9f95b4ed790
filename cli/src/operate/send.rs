//! `send`: sends a message to one session or to all.

use std::time::Duration;

use clap::{Arg, ArgGroup, ArgMatches, Command};
use rest::messages::Sent;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::desk::user_name;
use super::job::{Context, Job};
use super::lists;
use super::lookup::{Kind, whole_id};
use super::payload::PayloadSource;
use super::texts::status_style;
use crate::client::ApiRequest;
use crate::error::CliError;
use crate::flags::{choice, duration, given, given_number, number, switch, text};
use crate::short::counted;
use crate::table::Table;

/// The name of the command.
pub const NAME: &str = "send";

const PRIORITIES: &[&str] = &["low", "normal", "high", "urgent"];
const STATUSES: &[&str] = &["delivered", "acknowledged"];
/// The longest wait of the broker.
const WAIT_SECONDS_MAX: u64 = 110;
const WAIT_SECONDS: u64 = 30;

const ABOUT: &str = "\
Send a message to one session, present or absent, or to all that speak its protocol.

The message is a text, unless --protocol names a registered protocol: then its payload must fit the schema of the
protocol. The sender is a session that belongs to the key; a new name is registered.";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("Send a message to one session, or to all")
        .long_about(ABOUT)
        .disable_version_flag(true)
        .arg(
            text(
                "from",
                "NAME",
                "Name of the session that sends, or the id that its registration returned\n[default: the name of your user]",
            ),
        )
        .arg(text("to", "SESSION", "Name or id of the recipient, or NAME@PROJECT"))
        .arg(switch("keep", "Keep it if no session has the name of the recipient yet").conflicts_with("broadcast"))
        .arg(switch(
            "broadcast",
            "Send to all other sessions that speak the protocol",
        ))
        .group(ArgGroup::new("recipients").args(["to", "broadcast"]).required(true))
        .arg(text("protocol", "NAME", "Name of the protocol\n[default: text, which every session speaks]").requires("version"))
        .arg(text("version", "VERSION", "Version of the protocol, such as 1.0.0").requires("protocol"))
        .arg(
            Arg::new("payload")
                .value_name("TEXT")
                .required(true)
                .help("The text, or a JSON object; @FILE holds one of them, - reads it from stdin"),
        )
        .arg(choice("priority", "PRIORITY", PRIORITIES, "Urgency"))
        .arg(number("ttl", 1, "Seconds after which it expires"))
        .arg(text(
            "thread",
            "ID",
            "Thread of the message\n[default: it begins a thread of its own]",
        ))
        .arg(text("subject", "TEXT", "What it is about, at most 200 characters"))
        .arg(text("correlation-id", "ID", "Ties an answer to its question"))
        .arg(text("reply-to", "SESSION", "Where to answer"))
        .arg(text(
            "idempotency-key",
            "KEY",
            "A repeat with this key within 24 h sends nothing and gets the first answer",
        ))
        .arg(
            choice(
                "wait",
                "STATUS",
                STATUSES,
                "Wait until the message has this status\n[without a value: acknowledged]",
            )
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("acknowledged")
            .conflicts_with("broadcast"),
        )
        .arg(
            duration(
                "timeout",
                0..=WAIT_SECONDS_MAX,
                "Longest wait, at most 110s\n[default: 30s]",
            )
            .requires("wait"),
        )
        .after_help("Exit code 3: the message was accepted, and did not reach the status of --wait within --timeout.")
}

#[derive(Debug)]
struct Send {
    /// The body without the payload.
    envelope: Map<String, Value>,
    /// The payload may be a plain text.
    is_text: bool,
    payload: PayloadSource,
    wait: Option<(String, u64)>,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    let mut headers = Map::new();
    for (flag, header) in [
        ("priority", "priority"),
        ("thread", "thread_id"),
        ("subject", "subject"),
        ("correlation-id", "correlation_id"),
        ("reply-to", "reply_to"),
        ("idempotency-key", "idempotency_key"),
    ] {
        if let Some(value) = given(matches, flag) {
            headers.insert(header.to_owned(), value.into());
        }
    }
    if let Some(ttl) = given_number(matches, "ttl") {
        headers.insert("ttl_seconds".to_owned(), ttl.into());
    }
    let mut envelope = Map::new();
    for (flag, member) in [
        ("from", "from"),
        ("to", "recipient_id"),
        ("protocol", "protocol_name"),
        ("version", "protocol_version"),
    ] {
        if let Some(value) = given(matches, flag) {
            envelope.insert(member.to_owned(), value.into());
        }
    }
    if matches.get_flag("keep") {
        envelope.insert("if_unknown".to_owned(), "keep".into());
    }
    if !headers.is_empty() {
        envelope.insert("headers".to_owned(), headers.into());
    }
    let timeout = matches.get_one::<u64>("timeout").copied().unwrap_or(WAIT_SECONDS);
    let wait = given(matches, "wait").map(|status| (status, timeout));
    if let Some((status, timeout)) = &wait {
        envelope.insert("wait_for".to_owned(), status.as_str().into());
        envelope.insert("timeout_seconds".to_owned(), (*timeout).into());
    }
    let is_text = !envelope.contains_key("protocol_name");
    envelope.entry("from").or_insert_with(|| user_name().into());
    Box::new(Send {
        envelope,
        is_text,
        payload: PayloadSource::parse(&given(matches, "payload").unwrap_or_default()),
        wait,
    })
}

impl Job for Send {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let payload = if self.is_text {
            self.payload.read_text()?
        } else {
            self.payload.read()?
        };
        let mut envelope = self.envelope.clone();
        if let Some(Value::String(to)) = envelope.get_mut("recipient_id") {
            *to = whole_id(&context.client, Kind::Session, to)?;
        }
        let envelope = json!(envelope).to_string();
        let body = format!("{},\"payload\":{}}}", &envelope[..envelope.len() - 1], payload.get());
        let wait = self.wait.as_ref().map_or(0, |(_, seconds)| *seconds);
        let ask = ApiRequest::new(Method::POST, "/api/v1/messages".to_owned())
            .with_text(body)
            .with_wait(Duration::from_secs(wait));
        let answer = context.client.send(&ask).map_err(|mut error| {
            if error.has_code("session_not_found") && self.envelope.contains_key("recipient_id") {
                error.line += "; --keep keeps a message for one that is still to come";
            }
            error
        })?;
        lists::show_one(context, &answer, |sent| context.output.table(&table(sent)))?;
        let sent: Sent = lists::parsed(&answer)?;
        self.check_wait(&sent)
    }
}

impl Send {
    /// Whether the message has the status that was waited for, or one behind it.
    fn check_wait(&self, sent: &Sent) -> Result<(), CliError> {
        let (Some((wanted, seconds)), Some(status)) = (&self.wait, &sent.status) else {
            return Ok(());
        };
        let is_reached = match status.as_str() {
            "acknowledged" => true,
            "delivered" => wanted == "delivered",
            "queued" => false,
            _ => {
                let line = format!("the message will not be {wanted}: it is {status}; see mcp-broker dead-letters");
                return Err(CliError::Failed(line));
            }
        };
        if is_reached {
            return Ok(());
        }
        Err(CliError::TimedOut(format!(
            "the message is accepted, and not {wanted} after {seconds} s; see mcp-broker messages {}",
            sent.message_id
        )))
    }
}

fn table(sent: &Sent) -> Table {
    let mut table = Table::without_headings();
    table.row(["message", sent.message_id.as_str()]);
    if let Some(status) = &sent.status {
        let plain = anstyle::Style::new();
        table.styled_row([("status", plain), (status.as_str(), status_style(status))]);
    }
    for (name, value) in [("outcome", &sent.outcome), ("note", &sent.note)] {
        if let Some(value) = value {
            table.row([name, value.as_str()]);
        }
    }
    if let Some(waiting) = sent.queue_size {
        table.row(["waiting there", counted(waiting, "message").as_str()]);
    }
    if let Some(recipients) = sent.recipients {
        table.row(["recipients", recipients.to_string().as_str()]);
        for (name, count) in [
            ("delivered", sent.delivered),
            ("queued", sent.queued),
            ("failed", sent.failed),
        ] {
            table.row([name, count.unwrap_or_default().to_string().as_str()]);
        }
    }
    for transform in sent.transform.iter().chain(sent.transforms.iter().flatten()) {
        let details = transform.details().join(", ");
        if !details.is_empty() {
            table.row(["lenses", details.as_str()]);
        }
    }
    table
}
