//! `protocols usage`: who speaks which version of a protocol, and in which versions messages were sent.

use std::fmt::Write as _;

use clap::Args;
use rest::protocols::{LensUsage, ProtocolUsage};

use super::super::job::{Context, Job};
use super::super::lists::show_path;
use crate::client::{parameter, percent_encoded, with_query};
use crate::error::CliError;
use crate::flags::id;
use crate::output::EXIT_CODES;
use crate::table::Table;

const ABOUT: &str = "\
Show who speaks which version of a protocol, and in which versions messages were sent. ACTIVE: sessions that declare the
version and are not disconnected. KEPT: disconnected ones that keep their name. ONLY: those of both whose highest version
it is. A version that none of them needs, and in which nothing was sent, is no longer spoken.

  mcp-broker protocols usage chat --window 7d";

/// Show who speaks which version of a protocol.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, disable_version_flag = true, after_help = EXIT_CODES)]
pub struct Usage {
    /// Name of the protocol.
    #[arg(value_name = "NAME", value_parser = id)]
    name: String,
    /// Count messages of this time until now, from 10s to 30d [default: 24h].
    #[arg(long, value_name = "TIME")]
    window: Option<String>,
}

impl Job for Usage {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let path = format!("/api/v1/protocols/{}", percent_encoded(&self.name));
        let path = with_query(&path, [parameter("window", self.window.as_ref())]);
        show_path(context, path, |usage| described(context, usage))
    }
}

fn described(context: &Context, usage: &ProtocolUsage) -> String {
    let mut table = Table::new(&[
        "VERSION",
        "ACTIVE",
        "KEPT",
        "ONLY",
        "SENT",
        "AS SENT",
        "TRANSFORMED",
        "LENSES",
        "STATE",
    ]);
    for (at, version) in usage.versions.iter().enumerate() {
        let numbers = [
            version.sessions.active as u64,
            version.sessions.kept as u64,
            version.sessions.only as u64,
            version.sent,
            version.delivered.as_sent,
            version.delivered.transformed,
        ]
        .map(|number| number.to_string());
        let lenses: Vec<_> = version.lenses.iter().map(shown_lens).collect();
        let lenses = lenses.join(", ");
        let state = match (version.retirable, at + 1 == usage.versions.len()) {
            (true, false) => "no longer spoken",
            (true, true) => "not spoken",
            (false, _) => "",
        };
        let row = std::iter::once(version.version.as_str()).chain(numbers.iter().map(String::as_str));
        table.row(row.chain([lenses.as_str(), state]));
    }
    let mut text = context.output.table(&table);
    if !usage.complete {
        let since = context.output.time(&usage.since);
        let _ = writeln!(text, "\nNot all is counted: messages since {since} only.");
    }
    text
}

/// The version that a lens leads from, with its classes.
fn shown_lens(lens: &LensUsage) -> String {
    let class = |class: &Option<String>| class.clone().unwrap_or_else(|| "none".to_owned());
    let (forward, backward) = (class(&lens.forward), class(&lens.backward));
    if forward == backward {
        format!("{} ({forward})", lens.from)
    } else {
        format!("{} ({forward}, back {backward})", lens.from)
    }
}
