//! `protocols register`: registers a protocol from a file.

use clap::{Arg, ArgMatches, Command};
use rest::protocols::{Protocol, RegisteredProtocol};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use ureq::http::{Method, StatusCode};

use super::job::{Context, Job};
use super::lists::{self, parsed};
use super::payload::PayloadSource;
use crate::client::ApiRequest;
use crate::error::CliError;
use crate::flags::{given, text};
use crate::output::EXIT_CODES;
use crate::table::escaped;

/// The name of the command.
pub const NAME: &str = "register";

const FORM: &str = "allowed: an object with name, version and schema, or a JSON Schema with --name and --version";

const ABOUT: &str = "\
Register a protocol: a name, a version, and a JSON Schema for its payloads.

The file holds one JSON object with name, version and schema, and optionally capabilities and metadata; or the
schema alone, with --name and --version. A registered version does not change: what is new gets another version.

  mcp-broker protocols register chat.json
  mcp-broker protocols register --name chat --version 1.0.0 chat.schema.json";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("Register a protocol from a file")
        .long_about(ABOUT)
        .disable_version_flag(true)
        .arg(
            Arg::new("file")
                .value_name("FILE")
                .required(true)
                .help("File with the protocol as JSON, or - for stdin"),
        )
        .arg(text("name", "NAME", "Name of the protocol whose schema the file is").requires("version"))
        .arg(text("version", "VERSION", "Version of it, such as 1.0.0").requires("name"))
        .after_help(EXIT_CODES)
}

#[derive(Debug)]
struct Register {
    file: String,
    /// The name and the version of the protocol, if the file has the schema alone.
    of_schema: Option<(String, String)>,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    Box::new(Register {
        file: given(matches, "file").unwrap_or_default(),
        of_schema: given(matches, "name").zip(given(matches, "version")),
    })
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
        let source = match self.file.as_str() {
            "-" => PayloadSource::Stdin,
            file => PayloadSource::File(file.to_owned()),
        };
        let read = source.read_object(FORM)?;
        let body = if let Some((name, version)) = &self.of_schema {
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
