//! `gateway list`, `gateway show`, `gateway tools`, and the commands that start, stop or switch a backend.

use rest::backends::{Backend, BackendTools};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use ureq::http::Method;

use super::backend::{self, OfBackend, PATH};
use crate::{
    client::ApiRequest,
    error::CliError,
    operate::{job::Context, lists},
    table::Table,
};

#[derive(Deserialize)]
struct Answer {
    backends: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Health {
    #[serde(default)]
    config_error: Option<String>,
}

/// Shows all details of a backend.
pub fn show(context: &Context, of: &OfBackend) -> Result<(), CliError> {
    lists::show_path(context, of.path(""), |backend: &Backend| {
        context.output.table(&backend::details(&context.output, backend))
    })
}

/// Lists the tools of a backend, with the names that clients see.
pub fn tools(context: &Context, of: &OfBackend) -> Result<(), CliError> {
    lists::show_path(context, of.path("/tools"), |answer: &BackendTools| {
        let mut table = Table::new(&["TOOL", "SEEN AS", "BYTES"]);
        for tool in &answer.tools {
            let name = tool.name.as_deref().unwrap_or("(not offered)");
            let name = if tool.ambiguous {
                format!("{name} (ambiguous without its prefix)")
            } else {
                name.to_owned()
            };
            table.row([tool.tool.as_str(), &name, tool.bytes.to_string().as_str()]);
        }
        context.output.table(&table)
    })
}

/// Orders something of a backend, and says what it `does` then.
pub fn order(context: &Context, of: &OfBackend, order: &str, does: &str) -> Result<(), CliError> {
    let ask = ApiRequest::new(Method::POST, of.path(&format!("/{order}")));
    let body = context.client.send(&ask)?;
    lists::show_one(context, &body, |_: &IgnoredAny| {
        format!("{} {does}; gateway list shows its state\n", of.backend)
    })
}

/// Lists the backends with their states.
pub fn list(context: &Context) -> Result<(), CliError> {
    let Answer { backends } = context.client.get(PATH)?;
    let Health { config_error } = context.client.get("/health")?;
    if let Some(error) = config_error {
        let error = common::config::one_line(&error);
        eprintln!(
            "the configuration file cannot be used, so the broker keeps the backends that it read before: {error}"
        );
    }
    let none = "no backends: add one with gateway add, or those of a client with gateway import\n";
    lists::show_all(context, &backends, none, |backends: &[Backend]| {
        context.output.table(&backend::table(&context.output, backends))
    })
}
