//! What the commands about two versions of a protocol have in common: their arguments, and the versions as the broker has them.

use clap::{Arg, Args};
use lens::{Direction, Edge, Lens, Plan};
use semver::Version;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

use super::super::job::Context;
use super::super::lists::Pages;
use super::super::payload::PayloadSource;
use crate::client::{parameter, parsed, percent_encoded, with_query};
use crate::error::CliError;
use crate::flags::id;
use crate::table::escaped;

/// The most versions of a protocol that are read.
const VERSIONS_MAX: usize = 10_000;
const PAGE_LEN: usize = 100;

/// A protocol and two of its versions.
#[derive(Debug, Clone, Args)]
pub struct Between {
    /// Name of the protocol.
    #[arg(value_name = "NAME", value_parser = id)]
    pub name: String,
    /// Version of the payloads.
    #[arg(value_name = "FROM", value_parser = id)]
    pub from: String,
    // Each command says what it is.
    #[arg(value_parser = id)]
    pub to: String,
}

/// Gives the second version the name and the help that it has in a command.
pub fn of_second(arg: Arg, name: &'static str, help: &'static str) -> Arg {
    if arg.get_id() == "to" {
        arg.value_name(name).help(help)
    } else {
        arg
    }
}

impl Between {
    /// The path of the second version.
    pub fn version_path(&self) -> String {
        format!(
            "/api/v1/protocols/{}/{}",
            percent_encoded(&self.name),
            percent_encoded(&self.to)
        )
    }

    /// The path of the lens between them.
    pub fn lens_path(&self) -> String {
        format!("{}/lenses/{}", self.version_path(), percent_encoded(&self.from))
    }

    /// The three, as a line shows them.
    pub fn shown(&self) -> String {
        format!(
            "{} {} to {}",
            escaped(&self.name),
            escaped(&self.from),
            escaped(&self.to)
        )
    }
}

/// Reads the schema of a version that is not registered.
///
/// # Errors
/// Those of [`PayloadSource::read`].
pub fn read_schema(file: &str) -> Result<Value, CliError> {
    let text = PayloadSource::of_file(file).read_object("allowed: a file with a JSON Schema, or - for stdin")?;
    Ok(parsed(text.get())?)
}

/// A registered version.
#[derive(Debug, Deserialize)]
pub struct Registered {
    pub version: Version,
    pub schema: Value,
    #[serde(default)]
    lenses: Vec<RegisteredLens>,
}

/// A lens to a version.
#[derive(Debug, Deserialize)]
struct RegisteredLens {
    from: Version,
    direction: Direction,
    ops: Value,
}

/// The versions of a protocol with their schemas and lenses.
///
/// # Errors
/// The broker refused the request, or its answer has another form.
pub fn registered(context: &Context, name: &str) -> Result<Vec<Registered>, CliError> {
    let filters = [parameter("name", Some(name)), parameter("include_schema", Some("true"))];
    let path = with_query("/api/v1/protocols", filters);
    Ok(Pages::new(&context.client, path, "protocols", PAGE_LEN, VERSIONS_MAX).all()?)
}

/// The version of this text among them.
///
/// # Errors
/// [`CliError::Failed`] if it is not registered.
pub fn version<'v>(versions: &'v [Registered], name: &str, text: &str) -> Result<&'v Registered, CliError> {
    let wanted = Version::parse(text).ok();
    let is_it = |known: &&Registered| {
        wanted
            .as_ref()
            .is_some_and(|wanted| known.version.cmp_precedence(wanted).is_eq())
    };
    versions.iter().find(is_it).ok_or_else(|| {
        let (name, text) = (escaped(name), escaped(text));
        CliError::Failed(format!(
            "{name} {text} is not registered; mcp-broker protocols {name} lists the versions, --schema FILE takes the schema of \
             one that is not registered"
        ))
    })
}

/// The path of registered lenses between two versions.
pub fn path(versions: &[Registered], from: &Version, to: &Version) -> Option<Plan> {
    let schema_of = |version: &Version| {
        let is_it = |known: &&Registered| known.version.cmp_precedence(version).is_eq();
        versions.iter().find(is_it).map(|known| &known.schema)
    };
    let mut edges = Vec::new();
    for target in versions {
        for lens in &target.lenses {
            let compiled = schema_of(&lens.from).and_then(|source| {
                let operations = Lens::parse(&lens.ops).ok()?;
                operations.compile(source, &target.schema, lens.direction).ok()
            });
            edges.extend(compiled.map(|compiled| Edge {
                from: lens.from.clone(),
                to: target.version.clone(),
                direction: lens.direction,
                compiled: Arc::new(compiled),
            }));
        }
    }
    Plan::find(&edges, from, std::slice::from_ref(to))
}
