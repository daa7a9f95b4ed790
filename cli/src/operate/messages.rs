//! `messages`: lists what was said, shows the life of one message, or exports the history.

use std::path::PathBuf;
use std::time::Duration;

use actors::clock::{now, rfc3339_text};
use clap::{Args, builder::PossibleValuesParser};

use super::export::export;
use super::job::{Context, Job};
use super::life;
use super::lists::{self, LIMIT_MAX, Pages};
use super::lookup::whole_path;
use super::message::{PAGE_LEN_MAX, table};
use super::names::Names;
use crate::client::{parameter, with_query};
use crate::error::CliError;
use crate::flags::{id, one_of, whole};
use common::config::{Rule, Span};

const PRIORITIES: &[&str] = &["low", "normal", "high", "urgent"];
const STATUSES: &[&str] = &["queued", "delivered", "acknowledged", "expired", "dead_lettered"];

const ABOUT: &str = "\
List messages, newest first, show the life of one, or export the history.

The broker remembers messages for the time of its setting message_history. A key of scope member sees the
messages that its own sessions sent or got.";

/// List messages, newest first, show the life of one, or export the history.
#[derive(Debug, Args)]
#[command(long_about = ABOUT)]
pub struct Messages {
    /// Show what happened to this message, and when.
    #[arg(value_name = "MESSAGE_ID", value_parser = id)]
    message: Option<String>,
    /// Only messages that this session sent or got.
    #[arg(long, value_name = "SESSION", conflicts_with = "message")]
    session: Option<String>,
    #[arg(long, value_name = "STATUS", help = one_of(STATUSES, "Only messages with this status for a recipient"),
        value_parser = PossibleValuesParser::new(STATUSES), hide_possible_values = true, conflicts_with = "message")]
    status: Option<String>,
    #[arg(
        long,
        value_name = "ID",
        help = "Only messages of this thread: with this thread_id, or this message id",
        conflicts_with = "message"
    )]
    thread: Option<String>,
    /// Only messages with this correlation id.
    #[arg(long, value_name = "ID", conflicts_with = "message")]
    correlation_id: Option<String>,
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "message",
        help = "Only messages accepted at this time or later: 2026-01-31T12:00:00Z,\nor how long ago: 10m, 24h")]
    since: Option<String>,
    /// Only messages accepted before this time, given as for --since.
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "message")]
    until: Option<String>,
    /// Only messages of this protocol.
    #[arg(long, value_name = "NAME", conflicts_with = "message")]
    protocol: Option<String>,
    #[arg(long, value_name = "PRIORITY", help = one_of(PRIORITIES, "Only messages of this urgency"),
        value_parser = PossibleValuesParser::new(PRIORITIES), hide_possible_values = true, conflicts_with = "message")]
    priority: Option<String>,
    #[arg(
        long,
        value_name = "TEXT",
        conflicts_with = "message",
        help = "Only messages with this text in their subject, \
        in the names of their\nsessions or of their protocol, or in their correlation id"
    )]
    query: Option<String>,
    /// Also show the payloads, which requires the scope admin.
    #[arg(long)]
    payload: bool,
    /// The most messages to list.
    #[arg(long, value_name = "N", default_value = "100", value_parser = whole(1..=LIMIT_MAX),
        conflicts_with_all = ["message", "export"])]
    limit: u32,
    /// Write all of them into a new file, as JSON, one message per line.
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    export: Option<PathBuf>,
    /// Replace the file of --export if it exists.
    #[arg(long, requires = "export")]
    force: bool,
}

const AGO_DAYS_MAX: u64 = 36_500;

/// A time as the broker wants it: given as such, or as a duration before now.
fn time(text: &str) -> Result<String, String> {
    let ago = Span(Duration::ZERO..=Duration::from_secs(AGO_DAYS_MAX * 24 * 3600)).parse(text);
    match ago {
        Ok(ago) => {
            let ago_ms = u64::try_from(ago.as_millis()).unwrap_or(u64::MAX);
            Ok(rfc3339_text(now().unix_ms.saturating_sub(ago_ms)))
        }
        Err(_) if text.contains('T') => Ok(text.to_owned()),
        Err(_) => Err("a time such as 2026-01-31T12:00:00Z, or how long ago, such as 10m or 24h".to_owned()),
    }
}

impl Job for Messages {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        if let Some(message) = &self.message {
            return life::show(context, message, self.payload);
        }
        let include = match (self.payload, &self.export) {
            (true, _) => Some("payload"),
            (false, None) => Some("excerpt"),
            (false, Some(_)) => None,
        };
        let filters = [
            parameter("session", self.session.as_ref()),
            parameter("status", self.status.as_ref()),
            parameter("thread_id", self.thread.as_ref()),
            parameter("correlation_id", self.correlation_id.as_ref()),
            parameter("since", self.since.as_ref()),
            parameter("until", self.until.as_ref()),
            parameter("protocol", self.protocol.as_ref()),
            parameter("priority", self.priority.as_ref()),
            parameter("q", self.query.as_ref()),
            include.map(|what| format!("include={what}")),
        ];
        let path = with_query("/api/v1/messages", filters);
        if let Some(file) = &self.export {
            return export(context, &path, file, self.force);
        }
        let path = whole_path(&context.client, &path)?;
        let pages = Pages::new(&context.client, path, "messages", PAGE_LEN_MAX, self.limit as usize);
        lists::show(context, pages, "messages", |messages| {
            table(&context.output, messages, &Names::ask(&context.client), self.payload)
        })
        .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_given_as_such_or_as_how_long_ago() {
        assert_eq!(time("2026-01-31T12:00:00Z").unwrap(), "2026-01-31T12:00:00Z");
        let ago = |text: &str| time(text).unwrap();
        assert!(ago("10m") < ago("0s") && ago("24h") < ago("10m"), "{}", ago("24h"));
        for wrong in ["", "yesterday", "-1s", "12:00"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
