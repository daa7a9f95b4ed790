//! `gateway tools`: the tools of a backend with the names that clients see.

use clap::{ArgMatches, Command};
use rest::backends::BackendTools;

use super::backend::{self, backend_name};
use crate::{
    client::ApiRequest,
    error::CliError,
    operate::{
        job::{Context, Job},
        lists,
    },
    table::Table,
};

/// The name of the command.
pub const NAME: &str = "tools";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("List the tools of a backend, with the names that clients see")
        .arg(backend_name())
}

#[derive(Debug)]
struct Tools {
    path: String,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    let name = matches.get_one::<String>("backend").cloned().unwrap_or_default();
    Box::new(Tools {
        path: format!("{}/tools", backend::path_of(&name)),
    })
}

impl Job for Tools {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let body = context.client.send(&ApiRequest::get(self.path.clone()))?;
        lists::show_one(context, &body, |answer: &BackendTools| {
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
}
