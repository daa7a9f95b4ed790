//! `context`: names for brokers, with the file of the key and the project of each.

use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Command};
use serde_json::json;

use super::access::BrokerUrl;
use super::contexts::{Context, Contexts, OWN, is_readable_by_others, read_name};
use super::error::CliError;
use super::flags::{given, id, switch, text};
use super::output::{EXIT_CODES, json_value_line, print};
use super::table::{Table, escaped};

/// The name of the command.
pub const NAME: &str = "context";

const ABOUT: &str = "\
Name the brokers that you use. A context is the address of a broker with its key file and project.

Commands use the current context unless --url, --context or a variable names another broker. The context local is
the broker of this user. A context has the path of the key file, never the key.

  mcp-broker context add team --url https://broker.example.com --key-file ~/.team-key --project acme
  mcp-broker context use team
  mcp-broker sessions --context team
  mcp-broker context use local";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("Name the brokers that you use: add, use, list and remove contexts")
        .long_about(ABOUT)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(add())
        .subcommand(
            Command::new("use")
                .about("Use a context in all commands that name no other broker; local is the broker of this user")
                .arg(name().value_parser(id)),
        )
        .subcommand(
            Command::new("list")
                .about("List the contexts; a star marks the current one")
                .arg(switch("json", "Print them as JSON, one object per line")),
        )
        .subcommand(
            Command::new("remove")
                .about("Remove a context; its key file stays")
                .arg(name().value_parser(id)),
        )
        .after_help(EXIT_CODES)
}

fn add() -> Command {
    Command::new("add")
        .about("Add a context, or change the one of this name")
        .arg(name().value_parser(read_name))
        .arg(text("url", "URL", "Address of the broker").required(true))
        .arg(
            Arg::new("key-file")
                .long("key-file")
                .value_name("FILE")
                .value_parser(ValueParser::path_buf())
                .help("File that holds the API key and nothing else"),
        )
        .arg(text("project", "PROJECT", "The project, for a key that may act in several").value_parser(id))
        .arg(switch(
            "insecure",
            "Send the key over http:// to another machine: the network can read it",
        ))
        .arg(switch("use", "Use it from now on"))
}

fn name() -> Arg {
    Arg::new("name")
        .value_name("NAME")
        .required(true)
        .help("Name of the context")
}

/// What to do with the contexts.
#[derive(Debug)]
pub enum ContextCommand {
    Add {
        name: String,
        context: Context,
        is_used: bool,
    },
    Use(String),
    List {
        is_json: bool,
    },
    Remove(String),
}

/// Reads the arguments.
///
/// # Errors
/// [`CliError::Usage`] when the address or the key file cannot be used.
pub fn read(matches: &ArgMatches) -> Result<ContextCommand, CliError> {
    let Some((word, below)) = matches.subcommand() else {
        return Err(CliError::Usage("no command after context".to_owned()));
    };
    let name = |below: &ArgMatches| given(below, "name").unwrap_or_default();
    Ok(match word {
        "add" => ContextCommand::Add {
            name: name(below),
            context: read_context(below).map_err(CliError::Usage)?,
            is_used: below.get_flag("use"),
        },
        "use" => ContextCommand::Use(name(below)),
        "remove" => ContextCommand::Remove(name(below)),
        _ => ContextCommand::List {
            is_json: below.get_flag("json"),
        },
    })
}

fn read_context(matches: &ArgMatches) -> Result<Context, String> {
    let url = BrokerUrl::parse(&given(matches, "url").unwrap_or_default(), "--url")?;
    let key_file = matches.get_one::<PathBuf>("key-file").map(|file| {
        // Commands are run in any folder.
        let unusable = |error: std::io::Error| format!("--key-file {} cannot be used: {error}", file.display());
        file.canonicalize().map_err(unusable)
    });
    Ok(Context {
        url: url.text,
        key_file: key_file.transpose()?,
        project: given(matches, "project"),
        insecure: matches.get_flag("insecure"),
    })
}

/// Changes or shows the contexts.
///
/// # Errors
/// [`CliError::Failed`]: the file cannot be used, or there is no such context.
pub fn run(command: ContextCommand) -> Result<(), CliError> {
    let mut contexts = Contexts::read().map_err(CliError::Failed)?;
    match change(&mut contexts, command).map_err(CliError::Failed)? {
        Some(said) => {
            contexts.write().map_err(CliError::Failed)?;
            print(&format!("{said}\n"))
        }
        None => Ok(()),
    }
}

/// Carries a command out, and returns what to say once the contexts are kept. `None` if nothing has changed.
fn change(contexts: &mut Contexts, command: ContextCommand) -> Result<Option<String>, String> {
    Ok(Some(match command {
        ContextCommand::Add { name, context, is_used } => {
            let key_file = context.key_file.as_ref().filter(|file| is_readable_by_others(file));
            let warning = key_file.map_or_else(String::new, |file| {
                let file = escaped(&file.to_string_lossy());
                format!("\nwarning: other users of this machine may read {file}; run chmod 600")
            });
            let verb = if contexts.add(name.clone(), context)? {
                "is changed"
            } else {
                "is added"
            };
            if is_used {
                contexts.current = Some(name.clone());
                format!("the context {name} {verb} and used{warning}")
            } else {
                format!("the context {name} {verb}; mcp-broker context use {name} uses it{warning}")
            }
        }
        ContextCommand::Use(name) if name == OWN => {
            contexts.current = None;
            "commands use the broker of this user".to_owned()
        }
        ContextCommand::Use(name) => {
            let url = escaped(&contexts.find(&name)?.url);
            contexts.current = Some(name.clone());
            format!("commands use the context {name}: {url}")
        }
        ContextCommand::Remove(name) => {
            contexts.remove(&name)?;
            format!("the context {name} is removed")
        }
        ContextCommand::List { is_json } => {
            list(contexts, is_json).map_err(|error| match error {
                CliError::Failed(line) => line,
                other => format!("{other:?}"),
            })?;
            return Ok(None);
        }
    }))
}

fn list(contexts: &Contexts, is_json: bool) -> Result<(), CliError> {
    let current = contexts.current.as_deref();
    if is_json {
        let line = |(name, context): (&str, &Context)| {
            let mut object = json!(context);
            object["name"] = name.into();
            object["current"] = (current == Some(name)).into();
            json_value_line(&object)
        };
        return print(&contexts.all().map(line).collect::<String>());
    }
    let mut table = Table::new(&["", "NAME", "URL", "PROJECT", "KEY FILE"]);
    let star = |is_current| if is_current { "*" } else { " " };
    table.row([star(current.is_none()), OWN, "the broker of this user", "", ""]);
    for (name, context) in contexts.all() {
        let file = context
            .key_file
            .as_ref()
            .map(|file| file.to_string_lossy().into_owned());
        table.row([
            star(current == Some(name)),
            name,
            &context.url,
            context.project.as_deref().unwrap_or_default(),
            &file.unwrap_or_default(),
        ]);
    }
    print(&table.to_string())
}
