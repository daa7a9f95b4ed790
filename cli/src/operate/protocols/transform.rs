//! `protocols try`: shows what a recipient of another version gets of a payload.

use std::fmt::Write as _;

use clap::Args;
use rest::protocols::TransformedPayload;
use serde_json::json;
use ureq::http::Method;

use super::super::job::{Context, Job};
use super::super::lists::show_one;
use super::super::payload::PayloadSource;
use crate::client::{ApiRequest, percent_encoded};
use crate::error::CliError;
use crate::flags::id;
use crate::output::EXIT_CODES;
use crate::table::{Table, escaped_json};

const ABOUT: &str = "\
Show what a recipient that speaks TO gets of a payload of FROM, by the registered lenses. Nothing is sent.

  mcp-broker protocols try chat 1.0.0 2.0.0 '{\"text\": \"hello\"}'";

/// Show what a recipient of another version gets of a payload.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, disable_version_flag = true, after_help = EXIT_CODES)]
pub struct Try {
    /// Name of the protocol.
    #[arg(value_name = "NAME", value_parser = id)]
    name: String,
    /// Version of the payloads.
    #[arg(value_name = "FROM", value_parser = id)]
    from: String,
    /// Version of the recipient.
    #[arg(value_name = "TO", value_parser = id)]
    to: String,
    /// JSON object, @FILE, or - for stdin.
    #[arg(value_name = "PAYLOAD", allow_hyphen_values = true)]
    payload: PayloadSource,
}

impl Job for Try {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let payload = self.payload.read()?;
        let (from, to) = (json!(self.from), json!(self.to));
        let body = format!(
            r#"{{"from_version":{from},"to_version":{to},"payload":{}}}"#,
            payload.get()
        );
        let path = format!("/api/v1/protocols/{}/transform", percent_encoded(&self.name));
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
