//! `protocols`: lists the protocols of a project, shows one with its schema, or registers one. The folder has what is about two
//! versions: `diff`, `lens`, `try` and `usage`.

mod between;
mod diff;
mod lens_command;
mod transform;
mod usage;

use clap::{Args, Subcommand, builder::PossibleValuesParser};
use rest::protocols::Protocol;
use std::fmt::Write as _;

use super::job::{Context, Job};
use super::lists::{self, LIMIT_MAX, Pages};
use super::register::Register;
use crate::client::{parameter, percent_encoded, with_query};
use crate::error::CliError;
use crate::flags::{id, one_of, whole};
use crate::table::{Table, escaped_json};
use diff::Diff;
use lens_command::LensCommand;
use transform::Try;
use usage::Usage;

const PAGE_LEN_MAX: usize = 1000;
const CAPABILITIES: &[&str] = &["point_to_point", "broadcast", "request_response", "streaming"];

/// List the protocols of the project, show one with its schema, or register one.
#[derive(Debug, Args)]
#[command(
    after_help = "A protocol named like a command below: protocols -- NAME.",
    disable_version_flag = true,
    args_conflicts_with_subcommands = false
)]
pub struct Protocols {
    /// Only the versions of this protocol.
    #[arg(value_name = "NAME", value_parser = id)]
    name: Option<String>,
    /// Show this version with its schema.
    #[arg(value_name = "VERSION", value_parser = id, requires = "name")]
    version: Option<String>,
    /// Only versions that meet this requirement, such as ^1.2.
    #[arg(long, value_name = "REQ", conflicts_with = "version")]
    requirement: Option<String>,
    /// Only protocols that have this tag; may be repeated.
    #[arg(long, value_name = "TAG", value_delimiter = ',', conflicts_with = "version")]
    tag: Vec<String>,
    #[arg(long, value_name = "USE", help = one_of(CAPABILITIES, "Only protocols for this use"),
        value_parser = PossibleValuesParser::new(CAPABILITIES), hide_possible_values = true, conflicts_with = "version")]
    capability: Option<String>,
    /// Only protocols with this text in their name, description, author or tags.
    #[arg(long, value_name = "TEXT", conflicts_with = "version")]
    query: Option<String>,
    /// The most protocols to list.
    #[arg(long, value_name = "N", default_value = "100", value_parser = whole(1..=LIMIT_MAX), conflicts_with = "version")]
    limit: u32,
    #[command(subcommand)]
    below: Option<Below>,
}

#[derive(Debug, Subcommand)]
enum Below {
    Register(Register),
    Diff(Diff),
    Lens(LensCommand),
    Try(Try),
    Usage(Usage),
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
        match &self.below {
            Some(Below::Register(register)) => return register.run(context),
            Some(Below::Diff(diff)) => return diff.run(context),
            Some(Below::Lens(lens)) => return lens.run(context),
            Some(Below::Try(attempt)) => return attempt.run(context),
            Some(Below::Usage(usage)) => return usage.run(context),
            None => {}
        }
        if let (Some(name), Some(version)) = (&self.name, &self.version) {
            let (name, version) = (percent_encoded(name), percent_encoded(version));
            let path = format!("/api/v1/protocols/{name}/{version}");
            return lists::show_path(context, path, |protocol| details(context, protocol));
        }
        let tags = (!self.tag.is_empty()).then(|| self.tag.join(","));
        let filters = [
            parameter("name", self.name.as_ref()),
            parameter("version", self.requirement.as_ref()),
            parameter("tags", tags),
            parameter("capability", self.capability.as_ref()),
            parameter("q", self.query.as_ref()),
        ];
        let path = with_query("/api/v1/protocols", filters);
        let pages = Pages::new(&context.client, path, "protocols", PAGE_LEN_MAX, self.limit as usize);
        lists::show(context, pages, "protocols", |protocols| table(context, protocols)).map(drop)
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
    let table = Table::of_facts([
        ("name", protocol.name.clone()),
        ("version", protocol.version.clone()),
        ("use", protocol.capabilities.join(", ")),
        ("author", metadata.author.clone().unwrap_or_default()),
        ("description", metadata.description.clone().unwrap_or_default()),
        ("tags", metadata.tags.join(", ")),
        ("registered", registered(protocol, |time| context.output.time(time))),
        ("by session", protocol.registered_by.clone().unwrap_or_default()),
    ]);
    let mut text = context.output.table(&table);
    if let Some(schema) = &protocol.schema {
        let _ = writeln!(text, "\n{}", escaped_json(&format!("{schema:#}")));
    }
    text
}
