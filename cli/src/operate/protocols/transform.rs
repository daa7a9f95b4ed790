//! `protocols try`: shows what a recipient of another version gets of a payload.

use std::fmt::Write as _;

use clap::{Arg, ArgMatches, Command};
use rest::protocols::TransformedPayload;
use serde_json::json;
use ureq::http::Method;

use super::super::job::{Context, Job};
use super::super::lists::show_one;
use super::super::payload::PayloadSource;
use super::between::Between;
use crate::client::{ApiRequest, percent_encoded};
use crate::error::CliError;
use crate::flags::given;
use crate::output::EXIT_CODES;
use crate::table::{Table, escaped_json};

/// The name of the command.
pub const NAME: &str = "try";

const ABOUT: &str = "\
Show what a recipient that speaks TO gets of a payload of FROM, by the registered lenses. Nothing is sent.

  mcp-broker protocols try chat 1.0.0 2.0.0 '{\"text\": \"hello\"}'";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("Show what a recipient of another version gets of a payload")
        .long_about(ABOUT)
        .disable_version_flag(true)
        .args(Between::arguments("TO", "Version of the recipient"))
        .arg(
            Arg::new("payload")
                .value_name("PAYLOAD")
                .required(true)
                .allow_hyphen_values(true)
                .help("JSON object, @FILE, or - for stdin"),
        )
        .after_help(EXIT_CODES)
}

#[derive(Debug)]
struct Try {
    between: Between,
    payload: PayloadSource,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    Box::new(Try {
        between: Between::read(matches),
        payload: PayloadSource::parse(&given(matches, "payload").unwrap_or_default()),
    })
}

impl Job for Try {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let payload = self.payload.read()?;
        let (from, to) = (json!(self.between.from), json!(self.between.to));
        let body = format!(
            r#"{{"from_version":{from},"to_version":{to},"payload":{}}}"#,
            payload.get()
        );
        let path = format!("/api/v1/protocols/{}/transform", percent_encoded(&self.between.name));
        let answer = context
            .client
            .send(&ApiRequest::new(Method::POST, path).with_text(body))?;
        show_one(context, &answer, |transformed| described(context, transformed))
    }
}

fn described(context: &Context, transformed: &TransformedPayload) -> String {
    let mut table = Table::without_headings();
    for (name, value) in [
        ("path", transformed.path.join(" to ")),
        ("class", transformed.class.clone()),
        ("lost", transformed.loss.join(", ")),
        ("made up", transformed.defaulted.join(", ")),
    ] {
        table.row([name, value.as_str()]);
    }
    let mut text = context.output.table(&table);
    let payload = serde_json::to_string_pretty(&transformed.payload).unwrap_or_default();
    let _ = writeln!(text, "\n{}", escaped_json(&payload));
    text
}
