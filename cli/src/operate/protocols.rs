//! `protocols`: lists the protocols of a project, shows one with its schema, or registers one. The folder has what is about two
//! versions: `diff`, `lens`, `try` and `usage`.

mod between;
mod diff;
mod lens_command;
mod transform;
mod usage;

use clap::{Arg, ArgMatches, Command};
use rest::protocols::Protocol;
use std::fmt::Write as _;

use super::job::{Context, Job};
use super::lists::{self, LIMIT_MAX, Pages};
use super::register;
use crate::client::{ApiRequest, parameter, percent_encoded, with_query};
use crate::error::CliError;
use crate::flags::{choice, given, given_number, id, limit, many, text};
use crate::table::{Table, escaped_json};

/// The name of the command.
pub const NAME: &str = "protocols";

const PAGE_LEN_MAX: usize = 1000;
const CAPABILITIES: &[&str] = &["point_to_point", "broadcast", "request_response", "streaming"];

/// The command with its help.
pub fn command() -> Command {
    let positional = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).value_name(value).value_parser(id).help(help)
    };
    Command::new(NAME)
        .about("List the protocols of the project, show one with its schema, or register one")
        .after_help("A protocol named like a command below: protocols -- NAME.")
        .arg(positional("name", "NAME", "Only the versions of this protocol"))
        .arg(positional("version", "VERSION", "Show this version with its schema").requires("name"))
        .arg(
            text(
                "requirement",
                "REQ",
                "Only versions that meet this requirement, such as ^1.2",
            )
            .conflicts_with("version"),
        )
        .arg(many("tag", "TAG", "Only protocols that have this tag; may be repeated").conflicts_with("version"))
        .arg(choice("capability", "USE", CAPABILITIES, "Only protocols for this use").conflicts_with("version"))
        .arg(
            text(
                "query",
                "TEXT",
                "Only protocols with this text in their name, description, author or tags",
            )
            .conflicts_with("version"),
        )
        .arg(limit(LIMIT_MAX, "100", "The most protocols to list").conflicts_with("version"))
        .subcommands([
            register::command(),
            diff::command(),
            lens_command::command(),
            transform::command(),
            usage::command(),
        ])
        .args_conflicts_with_subcommands(false)
        .disable_version_flag(true)
}

#[derive(Debug)]
enum Protocols {
    List { path: String, limit: usize },
    One { path: String },
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    match matches.subcommand() {
        Some((diff::NAME, below)) => return diff::read(below),
        Some((lens_command::NAME, below)) => return lens_command::read(below),
        Some((transform::NAME, below)) => return transform::read(below),
        Some((usage::NAME, below)) => return usage::read(below),
        Some((_, below)) => return register::read(below),
        None => {}
    }
    let name = given(matches, "name");
    if let (Some(name), Some(version)) = (&name, given(matches, "version")) {
        let path = format!(
            "/api/v1/protocols/{}/{}",
            percent_encoded(name),
            percent_encoded(&version)
        );
        return Box::new(Protocols::One { path });
    }
    let tags: Option<Vec<String>> = matches.get_many::<String>("tag").map(|tags| tags.cloned().collect());
    let filters = [
        parameter("name", name),
        parameter("version", given(matches, "requirement")),
        parameter("tags", tags.map(|tags| tags.join(","))),
        parameter("capability", given(matches, "capability")),
        parameter("q", given(matches, "query")),
    ];
    Box::new(Protocols::List {
        path: with_query("/api/v1/protocols", filters),
        limit: given_number(matches, "limit").unwrap_or(LIMIT_MAX) as usize,
    })
}

/// When a protocol was registered. A protocol of the broker itself has the time 0.
fn registered(protocol: &Protocol, time: impl Fn(&str) -> String) -> String {
    if protocol.registered_at.starts_with("1970-01-01T00:00:00") {
        "built in".to_owned()
    } else {
        time(&protocol.registered_at)
    }
}

impl Job for Protocols {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        match self {
            Self::List { path, limit } => {
                let pages = Pages::new(&context.client, path.clone(), "protocols", PAGE_LEN_MAX, *limit);
                lists::show(context, pages, "protocols", |protocols| table(context, protocols)).map(drop)
            }
            Self::One { path } => {
                let body = context.client.send(&ApiRequest::get(path.clone()))?;
                lists::show_one(context, &body, |protocol| details(context, protocol))
            }
        }
    }
}

fn table(context: &Context, protocols: &[Protocol]) -> Table {
    let mut table = Table::new(&["NAME", "VERSION", "USE", "TAGS", "REGISTERED", "DESCRIPTION"]);
    for protocol in protocols {
        table.row([
            protocol.name.as_str(),
            protocol.version.as_str(),
            protocol.capabilities.join(", ").as_str(),
            protocol.metadata.tags.join(", ").as_str(),
            registered(protocol, |time| context.output.age(time)).as_str(),
            protocol.metadata.description.as_deref().unwrap_or_default(),
        ]);
    }
    table
}

fn details(context: &Context, protocol: &Protocol) -> String {
    let metadata = &protocol.metadata;
    let mut table = Table::without_headings();
    for (name, value) in [
        ("name", protocol.name.clone()),
        ("version", protocol.version.clone()),
        ("use", protocol.capabilities.join(", ")),
        ("author", metadata.author.clone().unwrap_or_default()),
        ("description", metadata.description.clone().unwrap_or_default()),
        ("tags", metadata.tags.join(", ")),
        ("registered", registered(protocol, |time| context.output.time(time))),
        ("by session", protocol.registered_by.clone().unwrap_or_default()),
    ] {
        table.row([name, value.as_str()]);
    }
    let mut text = context.output.table(&table);
    if let Some(schema) = &protocol.schema {
        let schema = serde_json::to_string_pretty(schema).unwrap_or_default();
        let _ = writeln!(text, "\n{}", escaped_json(&schema));
    }
    text
}
