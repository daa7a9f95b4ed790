//! `protocols try`: shows what a recipient of another version gets of a payload.

use std::fmt::Write as _;

use clap::Args;
use rest::protocols::TransformedPayload;
use serde_json::json;
use ureq::http::Method;

use super::super::job::{Context, Job};
use super::super::lists::show_one;
use super::super::payload::PayloadSource;
use super::between::{Between, of_second};
use crate::client::{ApiRequest, percent_encoded};
use crate::error::CliError;
use crate::output::EXIT_CODES;
use crate::table::{Table, escaped_json};

const ABOUT: &str = "\
Show what a recipient that speaks TO gets of a payload of FROM, by the registered lenses. Nothing is sent.

  mcp-broker protocols try chat 1.0.0 2.0.0 '{\"text\": \"hello\"}'";

/// Show what a recipient of another version gets of a payload.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, disable_version_flag = true, after_help = EXIT_CODES,
    mut_args(|arg| of_second(arg, "TO", "Version of the recipient")))]
pub struct Try {
    #[command(flatten)]
    between: Between,
    /// JSON object, @FILE, or - for stdin.
    #[arg(value_name = "PAYLOAD", allow_hyphen_values = true)]
    payload: PayloadSource,
}

impl Job for Try {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let payload = self.payload.read()?;
        let Between { name, from, to } = &self.between;
        let (from, to) = (json!(from), json!(to));
        let body = format!(
            r#"{{"from_version":{from},"to_version":{to},"payload":{}}}"#,
            payload.get()
        );
        let path = format!("/api/v1/protocols/{}/transform", percent_encoded(name));
        let answer = context
            .client
            .send(&ApiRequest::new(Method::POST, path).with_text(body))?;
        show_one(context, &answer, |transformed| described(context, transformed))
    }
}

fn described(context: &Context, transformed: &TransformedPayload) -> String {
    let table = Table::of_facts([
        ("path", transformed.path.join(" to ")),
        ("class", transformed.class.clone()),
        ("lost", transformed.loss.join(", ")),
        ("made up", transformed.defaulted.join(", ")),
    ]);
    let mut text = context.output.table(&table);
    let _ = writeln!(text, "\n{}", escaped_json(&format!("{:#}", transformed.payload)));
    text
}
