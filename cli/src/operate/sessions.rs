//! `sessions`: lists the sessions of a project, or shows one.

use clap::{Arg, ArgMatches, Command};
use rest::sessions::Session;
use serde_json::Value;

use super::job::{Context, Job};
use super::lists::{self, LIMIT_MAX, Pages};
use super::lookup::whole_path;
use super::texts::status_style;
use crate::client::{ApiRequest, parameter, percent_encoded, with_query};
use crate::error::CliError;
use crate::flags::{choice, given, given_number, id, limit, switch, text};
use crate::short::prefix;
use crate::table::Table;

/// The name of the command.
pub const NAME: &str = "sessions";

const PAGE_LEN_MAX: usize = 1000;
const STATUSES: &[&str] = &["active", "stale", "disconnected", "all"];
const SORTS: &[&str] = &["connection_time", "name", "status", "queue_size", "last_heartbeat"];

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("List the sessions of the project, or show one")
        .arg(
            Arg::new("session")
                .value_name("SESSION")
                .value_parser(id)
                .help("Id or name of one session, to show what it declares"),
        )
        .arg(
            choice("status", "STATUS", STATUSES, "Only sessions of this state")
                .default_value("active")
                .hide_default_value(false)
                .conflicts_with("session"),
        )
        .arg(text("protocol", "NAME", "Only sessions that declare this protocol").conflicts_with("session"))
        .arg(text("feature", "NAME", "Only sessions that declare this feature").conflicts_with("session"))
        .arg(text("query", "TEXT", "Only sessions with this text in their name or id").conflicts_with("session"))
        .arg(choice("sort", "BY", SORTS, "What they are sorted by").conflicts_with("session"))
        .arg(switch("reverse", "Reverse the order").conflicts_with("session"))
        .arg(limit(LIMIT_MAX, "100", "The most sessions to list").conflicts_with("session"))
}

#[derive(Debug)]
enum Sessions {
    List { path: String, limit: usize },
    One(String),
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    if let Some(session) = given(matches, "session") {
        return Box::new(Sessions::One(session));
    }
    let filters = ["status", "protocol", "feature", "sort"].map(|name| parameter(name, given(matches, name)));
    let others = [
        parameter("q", given(matches, "query")),
        matches.get_flag("reverse").then(|| "order=desc".to_owned()),
    ];
    Box::new(Sessions::List {
        path: with_query("/api/v1/sessions", filters.into_iter().chain(others)),
        limit: given_number(matches, "limit").unwrap_or(LIMIT_MAX) as usize,
    })
}

/// The path of a session.
pub fn path_of(session: &str) -> String {
    format!("/api/v1/sessions/{}", percent_encoded(session))
}

impl Job for Sessions {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List { path, limit } => {
                let pages = Pages::new(&context.client, path.clone(), "sessions", PAGE_LEN_MAX, *limit);
                lists::show(context, pages, "sessions", |sessions| table(context, sessions)).map(drop)
            }
            Self::One(session) => {
                let path = whole_path(&context.client, &path_of(session))?;
                let body = context.client.send(&ApiRequest::get(path))?;
                lists::show_one(context, &body, |session| {
                    context.output.table(&details(context, session))
                })
            }
        }
    }
}

fn table(context: &Context, sessions: &[Session]) -> Table {
    let output = &context.output;
    let len = output.id_len(sessions.iter().map(|session| session.session_id.as_str()));
    let mut table = Table::new(&["NAME", "STATUS", "QUEUE", "LAST SEEN", "CONNECTED", "SESSION"]);
    for session in sessions {
        let plain = anstyle::Style::new();
        table.styled_row([
            (session.name.as_deref().unwrap_or_default(), plain),
            (session.status.as_str(), status_style(&session.status)),
            (session.queue_size.to_string().as_str(), plain),
            (output.age(&session.last_heartbeat).as_str(), plain),
            (output.age(&session.connection_time).as_str(), plain),
            (prefix(&session.session_id, len), plain),
        ]);
    }
    table
}

fn details(context: &Context, session: &Session) -> Table {
    let mut table = Table::without_headings();
    for (name, value) in fields(session, |time| context.output.time(time)) {
        table.row([name, value.as_str()]);
    }
    table
}

/// What is shown of one session, with names. `time` is how its times are shown.
pub fn fields(session: &Session, time: impl Fn(&str) -> String) -> Vec<(&'static str, String)> {
    let capabilities = session.capabilities.as_ref();
    let protocols = capabilities.map_or_else(Vec::new, |capabilities| {
        let protocols = capabilities.supported_protocols.iter();
        protocols
            .map(|(name, versions)| format!("{name} {}", versions.join(", ")))
            .collect()
    });
    let features = capabilities.map_or_else(String::new, |capabilities| capabilities.supported_features.join(", "));
    let metadata = session.metadata.as_ref().filter(|metadata| !metadata.is_empty());
    let metadata = metadata.map_or_else(String::new, |metadata| Value::Object(metadata.clone()).to_string());
    let mut details = vec![
        ("name", session.name.clone().unwrap_or_default()),
        ("session", session.session_id.clone()),
        ("status", session.status.clone()),
        ("queue", session.queue_size.to_string()),
        ("last seen", time(&session.last_heartbeat)),
        ("connected", time(&session.connection_time)),
        ("protocols", protocols.join("; ")),
        ("features", features),
        ("metadata", metadata),
    ];
    if !session.activity.is_empty() {
        let ways = session
            .wakes_by
            .as_ref()
            .map_or_else(String::new, |ways| ways.join(", "));
        details.splice(4..4, [("activity", session.activity.clone()), ("wakes by", ways)]);
    }
    details
}
