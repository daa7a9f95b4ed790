//! `protocols register`: registers a protocol from a file.

use clap::Args;
use rest::protocols::{Protocol, RegisteredProtocol};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use ureq::http::{Method, StatusCode};

use super::job::{Context, Job};
use super::lists;
use super::payload::PayloadSource;
use crate::client::{ApiRequest, parsed};
use crate::error::CliError;
use crate::output::EXIT_CODES;
use crate::table::escaped;

const FORM: &str = "allowed: an object with name, version and schema, or a JSON Schema with --name and --version";

const ABOUT: &str = "\
Register a protocol: a name, a version, and a JSON Schema for its payloads.

The file holds one JSON object with name, version and schema, and optionally capabilities and metadata; or the
schema alone, with --name and --version. A registered version does not change: what is new gets another version.

  mcp-broker protocols register chat.json
  mcp-broker protocols register --name chat --version 1.0.0 chat.schema.json";

/// Register a protocol from a file.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, disable_version_flag = true, after_help = EXIT_CODES)]
pub struct Register {
    /// File with the protocol as JSON, or - for stdin.
    #[arg(value_name = "FILE")]
    file: String,
    /// Name of the protocol whose schema the file is.
    #[arg(long, value_name = "NAME", requires = "version")]
    name: Option<String>,
    /// Version of it, such as 1.0.0.
    #[arg(long, value_name = "VERSION", requires = "name")]
    version: Option<String>,
}

/// What decides whether a file is a definition.
#[derive(Deserialize)]
struct Definition {
    name: Option<IgnoredAny>,
    version: Option<IgnoredAny>,
    schema: Option<IgnoredAny>,
}

impl Job for Register {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let read = PayloadSource::of_file(&self.file).read_object(FORM)?;
        let body = if let (Some(name), Some(version)) = (&self.name, &self.version) {
            let (name, version) = (json!(name), json!(version));
            format!(r#"{{"name":{name},"version":{version},"schema":{}}}"#, read.get())
        } else {
            let of: Definition = parsed(read.get())?;
            if of.name.is_none() || of.version.is_none() || of.schema.is_none() {
                let file = escaped(&self.file);
                return Err(CliError::Usage(format!(
                    "{file} is no definition of a protocol; {FORM}"
                )));
            }
            read.get().to_owned()
        };
        let ask = ApiRequest::new(Method::POST, "/api/v1/protocols".to_owned()).with_text(body);
        let answer = context.client.respond(&ask)?;
        let verb = match answer.status() {
            StatusCode::CREATED => "is registered",
            _ => "was registered before, with the same schema",
        };
        lists::show_one(context, answer.body(), |registered: &RegisteredProtocol| {
            let Protocol { name, version, .. } = &registered.protocol;
            format!("{} {} {verb}\n", escaped(name), escaped(version))
        })
    }
}
