//! `send`: sends a message to one session or to all.

use std::time::Duration;

use clap::{ArgGroup, Args, builder::PossibleValuesParser};
use rest::messages::Sent;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::desk::user_name;
use super::job::{Context, Job};
use super::lists;
use super::lookup::{Kind, whole_id};
use super::payload::PayloadSource;
use super::texts::status_style;
use crate::client::{ApiRequest, parsed};
use crate::error::CliError;
use crate::flags::{one_of, seconds, whole};
use crate::short::counted;
use crate::table::Table;

const PRIORITIES: &[&str] = &["low", "normal", "high", "urgent"];
const STATUSES: &[&str] = &["delivered", "acknowledged"];
/// The longest wait of the broker.
const WAIT_SECONDS_MAX: u64 = 110;
const WAIT_SECONDS: u64 = 30;

const ABOUT: &str = "\
Send a message to one session, present or absent, or to all that speak its protocol.

The message is a text, unless --protocol names a registered protocol: then its payload must fit the schema of the
protocol. The sender is a session that belongs to the key; a new name is registered.";

/// Send a message to one session, or to all.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, disable_version_flag = true,
    group(ArgGroup::new("recipients").args(["to", "broadcast"]).required(true)),
    after_help = "Exit code 3: the message was accepted, and did not reach the status of --wait within --timeout.")]
pub struct Send {
    #[arg(
        long,
        value_name = "NAME",
        help = "Name of the session that sends, or the id that its registration \
        returned\n[default: the name of your user]"
    )]
    from: Option<String>,
    /// Name or id of the recipient, or NAME@PROJECT.
    #[arg(long, value_name = "SESSION")]
    to: Option<String>,
    /// Keep it if no session has the name of the recipient yet.
    #[arg(long, conflicts_with = "broadcast")]
    keep: bool,
    /// Send to all other sessions that speak the protocol.
    #[arg(long)]
    broadcast: bool,
    #[arg(
        long,
        value_name = "NAME",
        requires = "version",
        help = "Name of the protocol\n[default: text, which every session speaks]"
    )]
    protocol: Option<String>,
    /// Version of the protocol, such as 1.0.0.
    #[arg(long, value_name = "VERSION", requires = "protocol")]
    version: Option<String>,
    /// The text, or a JSON object; @FILE holds one of them, - reads it from stdin.
    #[arg(value_name = "TEXT")]
    payload: PayloadSource,
    #[arg(long, value_name = "PRIORITY", help = one_of(PRIORITIES, "Urgency"),
        value_parser = PossibleValuesParser::new(PRIORITIES), hide_possible_values = true)]
    priority: Option<String>,
    /// Seconds after which it expires.
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    ttl: Option<u32>,
    #[arg(
        long,
        value_name = "ID",
        help = "Thread of the message\n[default: it begins a thread of its own]"
    )]
    thread: Option<String>,
    /// What it is about, at most 200 characters.
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Ties an answer to its question.
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Where to answer.
    #[arg(long, value_name = "SESSION")]
    reply_to: Option<String>,
    /// A repeat with this key within 24 h sends nothing and gets the first answer.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[arg(long, value_name = "STATUS", value_parser = PossibleValuesParser::new(STATUSES), hide_possible_values = true,
        help = one_of(STATUSES, "Wait until the message has this status\n[without a value: acknowledged]"),
        num_args = 0..=1, require_equals = true, default_missing_value = "acknowledged", conflicts_with = "broadcast")]
    wait: Option<String>,
    #[arg(long, value_name = "TIME", value_parser = seconds(0..=WAIT_SECONDS_MAX), requires = "wait",
        help = "Longest wait, at most 110s\n[default: 30s]")]
    timeout: Option<u64>,
}

impl Job for Send {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let payload = match &self.protocol {
            Some(_) => self.payload.read()?,
            None => self.payload.read_text()?,
        };
        // The payload follows as it was written: parsed and written again, its numbers could change.
        let envelope = self.envelope(context)?.to_string();
        let body = format!("{},\"payload\":{}}}", &envelope[..envelope.len() - 1], payload.get());
        let wait = self.wait.as_ref().map_or(0, |_| self.wait_seconds());
        let ask = ApiRequest::new(Method::POST, "/api/v1/messages".to_owned())
            .with_text(body)
            .with_wait(Duration::from_secs(wait));
        let answer = context.client.send(&ask).map_err(|mut error| {
            if error.has_code("session_not_found") && self.to.is_some() {
                error.line += "; --keep keeps a message for one that is still to come";
            }
            error
        })?;
        lists::show_one(context, &answer, |sent| context.output.table(&table(sent)))?;
        let sent: Sent = parsed(&answer)?;
        self.check_wait(&sent)
    }
}

impl Send {
    /// The message without its payload.
    fn envelope(&self, context: &Context) -> Result<Value, CliError> {
        let to = self.to.as_ref();
        let to = to.map(|to| whole_id(&context.client, Kind::Session, to)).transpose()?;
        let headers = given([
            ("priority", json!(self.priority)),
            ("thread_id", json!(self.thread)),
            ("subject", json!(self.subject)),
            ("correlation_id", json!(self.correlation_id)),
            ("reply_to", json!(self.reply_to)),
            ("idempotency_key", json!(self.idempotency_key)),
            ("ttl_seconds", json!(self.ttl)),
        ]);
        Ok(Value::Object(given([
            ("from", json!(self.from.clone().unwrap_or_else(user_name))),
            ("recipient_id", json!(to)),
            ("protocol_name", json!(self.protocol)),
            ("protocol_version", json!(self.version)),
            ("if_unknown", json!(self.keep.then_some("keep"))),
            ("headers", json!(Some(headers).filter(|headers| !headers.is_empty()))),
            ("wait_for", json!(self.wait)),
            (
                "timeout_seconds",
                json!(self.wait.as_ref().map(|_| self.wait_seconds())),
            ),
        ])))
    }

    fn wait_seconds(&self) -> u64 {
        self.timeout.unwrap_or(WAIT_SECONDS)
    }

    /// Whether the message has the status that was waited for, or one behind it.
    fn check_wait(&self, sent: &Sent) -> Result<(), CliError> {
        let (Some(wanted), Some(status)) = (&self.wait, &sent.status) else {
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
            "the message is accepted, and not {wanted} after {} s; see mcp-broker messages {}",
            self.wait_seconds(),
            sent.message_id
        )))
    }
}

/// The members that have a value.
fn given(members: impl IntoIterator<Item = (&'static str, Value)>) -> Map<String, Value> {
    let members = members.into_iter().filter(|(_, value)| !value.is_null());
    members.map(|(name, value)| (name.to_owned(), value)).collect()
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
