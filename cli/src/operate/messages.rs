//! `messages`: lists what was said, shows the life of one message, or exports the history.

use std::path::PathBuf;
use std::time::Duration;

use actors::clock::{now, rfc3339_text};
use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Command};

use super::export::Export;
use super::job::{Context, Job};
use super::life::Life;
use super::lists::{self, LIMIT_MAX, Pages};
use super::lookup::whole_path;
use super::message::{PAGE_LEN_MAX, table};
use super::names::Names;
use crate::client::{parameter, with_query};
use crate::error::CliError;
use crate::flags::{choice, given, given_number, id, limit, switch, text};
use common::config::{Rule, Span};

/// The name of the command.
pub const NAME: &str = "messages";

const PRIORITIES: &[&str] = &["low", "normal", "high", "urgent"];
const STATUSES: &[&str] = &["queued", "delivered", "acknowledged", "expired", "dead_lettered"];

const ABOUT: &str = "\
List messages, newest first, show the life of one, or export the history.

The broker remembers messages for the time of its setting message_history. A key of scope member sees the
messages that its own sessions sent or got.";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("List messages, newest first, show the life of one, or export the history")
        .long_about(ABOUT)
        .arg(
            Arg::new("message")
                .value_name("MESSAGE_ID")
                .value_parser(id)
                .help("Show what happened to this message, and when"),
        )
        .arg(text("session", "SESSION", "Only messages that this session sent or got").conflicts_with("message"))
        .arg(
            choice(
                "status",
                "STATUS",
                STATUSES,
                "Only messages with this status for a recipient",
            )
            .conflicts_with("message"),
        )
        .arg(text("thread", "ID", "Only messages of this thread: with this thread_id, or this message id").conflicts_with("message"))
        .arg(text("correlation-id", "ID", "Only messages with this correlation id").conflicts_with("message"))
        .arg(
            text(
                "since",
                "TIME",
                "Only messages accepted at this time or later: 2026-01-31T12:00:00Z,\nor how long ago: 10m, 24h",
            )
            .conflicts_with("message")
            .value_parser(time),
        )
        .arg(
            text("until", "TIME", "Only messages accepted before this time, given as for --since")
                .conflicts_with("message")
                .value_parser(time),
        )
        .arg(text("protocol", "NAME", "Only messages of this protocol").conflicts_with("message"))
        .arg(choice("priority", "PRIORITY", PRIORITIES, "Only messages of this urgency").conflicts_with("message"))
        .arg(
            text("query", "TEXT", "Only messages with this text in their subject, in the names of their\nsessions or of their protocol, or in their correlation id")
                .conflicts_with("message"),
        )
        .arg(switch(
            "payload",
            "Also show the payloads, which requires the scope admin",
        ))
        .arg(limit(LIMIT_MAX, "100", "The most messages to list").conflicts_with_all(["message", "export"]))
        .arg(
            Arg::new("export")
                .long("export")
                .value_name("FILE")
                .value_parser(ValueParser::path_buf())
                .conflicts_with("message")
                .help("Write all of them into a new file, as JSON, one message per line"),
        )
        .arg(switch("force", "Replace the file of --export if it exists").requires("export"))
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

#[derive(Debug)]
struct Messages {
    path: String,
    limit: usize,
    with_payload: bool,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    let with_payload = matches.get_flag("payload");
    if let Some(message) = given(matches, "message") {
        return Box::new(Life { message, with_payload });
    }
    let file = matches.get_one::<PathBuf>("export");
    let include = match (with_payload, file) {
        (true, _) => Some("payload"),
        (false, None) => Some("excerpt"),
        // A file has texts only where they were asked for.
        (false, Some(_)) => None,
    };
    let filters = [
        parameter("session", given(matches, "session")),
        parameter("status", given(matches, "status")),
        parameter("thread_id", given(matches, "thread")),
        parameter("correlation_id", given(matches, "correlation-id")),
        parameter("since", given(matches, "since")),
        parameter("until", given(matches, "until")),
        parameter("protocol", given(matches, "protocol")),
        parameter("priority", given(matches, "priority")),
        parameter("q", given(matches, "query")),
        include.map(|what| format!("include={what}")),
    ];
    let path = with_query("/api/v1/messages", filters);
    if let Some(file) = file {
        return Box::new(Export {
            path,
            file: file.clone(),
            replace: matches.get_flag("force"),
        });
    }
    Box::new(Messages {
        path,
        limit: given_number(matches, "limit").unwrap_or(LIMIT_MAX) as usize,
        with_payload,
    })
}

impl Job for Messages {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let path = whole_path(&context.client, &self.path)?;
        let pages = Pages::new(&context.client, path, "messages", PAGE_LEN_MAX, self.limit);
        lists::show(context, pages, "messages", |messages| {
            table(
                &context.output,
                messages,
                &Names::ask(&context.client),
                self.with_payload,
            )
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
