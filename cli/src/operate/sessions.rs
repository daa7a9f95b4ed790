//! `sessions`: lists the sessions of a project, or shows one.

use clap::{Args, builder::PossibleValuesParser};
use rest::sessions::Session;
use serde_json::Value;

use super::job::{Context, Job};
use super::lists::{self, LIMIT_MAX, Pages};
use super::lookup::whole_path;
use super::texts::status_style;
use crate::client::{parameter, percent_encoded, with_query};
use crate::error::CliError;
use crate::flags::{id, one_of, whole};
use crate::short::prefix;
use crate::table::Table;

const PAGE_LEN_MAX: usize = 1000;
const STATUSES: &[&str] = &["active", "stale", "disconnected", "all"];
const SORTS: &[&str] = &["connection_time", "name", "status", "queue_size", "last_heartbeat"];

/// List the sessions of the project, or show one.
#[derive(Debug, Args)]
pub struct Sessions {
    /// Id or name of one session, to show what it declares.
    #[arg(value_name = "SESSION", value_parser = id)]
    session: Option<String>,
    #[arg(long, value_name = "STATUS", help = one_of(STATUSES, "Only sessions of this state"), default_value = "active",
        value_parser = PossibleValuesParser::new(STATUSES), hide_possible_values = true, conflicts_with = "session")]
    status: String,
    /// Only sessions that declare this protocol.
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    protocol: Option<String>,
    /// Only sessions that declare this feature.
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    feature: Option<String>,
    /// Only sessions with this text in their name or id.
    #[arg(long, value_name = "TEXT", conflicts_with = "session")]
    query: Option<String>,
    #[arg(long, value_name = "BY", help = one_of(SORTS, "What they are sorted by"),
        value_parser = PossibleValuesParser::new(SORTS), hide_possible_values = true, conflicts_with = "session")]
    sort: Option<String>,
    /// Reverse the order.
    #[arg(long, conflicts_with = "session")]
    reverse: bool,
    /// The most sessions to list.
    #[arg(long, value_name = "N", default_value = "100", value_parser = whole(1..=LIMIT_MAX), conflicts_with = "session")]
    limit: u32,
}

/// The path of a session.
pub fn path_of(session: &str) -> String {
    format!("/api/v1/sessions/{}", percent_encoded(session))
}

impl Job for Sessions {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        if let Some(session) = &self.session {
            let path = whole_path(&context.client, &path_of(session))?;
            return lists::show_path(context, path, |session| {
                let facts = fields(session, |time| context.output.time(time));
                context.output.table(&Table::of_facts(facts))
            });
        }
        let filters = [
            parameter("status", Some(&self.status)),
            parameter("protocol", self.protocol.as_ref()),
            parameter("feature", self.feature.as_ref()),
            parameter("sort", self.sort.as_ref()),
            parameter("q", self.query.as_ref()),
            self.reverse.then(|| "order=desc".to_owned()),
        ];
        let path = with_query("/api/v1/sessions", filters);
        let pages = Pages::new(&context.client, path, "sessions", PAGE_LEN_MAX, self.limit as usize);
        lists::show(context, pages, "sessions", |sessions| table(context, sessions)).map(drop)
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
