//! `context`: names for brokers, with the file of the key and the project of each.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::access::BrokerUrl;
use super::call::{Call, Run, done};
use super::contexts::{Context, Contexts, OWN, is_readable_by_others, read_name};
use super::error::CliError;
use super::flags::id;
use super::output::{EXIT_CODES, json_value_line, print};
use super::table::{Table, escaped};

const ABOUT: &str = "\
Name the brokers that you use. A context is the address of a broker with its key file and project.

Commands use the current context unless --url, --context or a variable names another broker. The context local is
the broker of this user. A context has the path of the key file, never the key.

  mcp-broker context add team --url https://broker.example.com --key-file ~/.team-key --project acme
  mcp-broker context use team
  mcp-broker sessions --context team
  mcp-broker context use local";

/// Name the brokers that you use: add, use, list and remove contexts.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES)]
pub struct ContextCommand {
    #[command(subcommand)]
    task: Task,
}

/// What to do with the contexts.
#[derive(Debug, Subcommand)]
enum Task {
    /// Add a context, or change the one of this name.
    Add(Add),
    /// Use a context in all commands that name no other broker; local is the broker of this user.
    Use {
        /// Name of the context.
        #[arg(value_name = "NAME", value_parser = id)]
        name: String,
    },
    /// List the contexts; a star marks the current one.
    List {
        /// Print them as JSON, one object per line.
        #[arg(long)]
        json: bool,
    },
    /// Remove a context; its key file stays.
    Remove {
        /// Name of the context.
        #[arg(value_name = "NAME", value_parser = id)]
        name: String,
    },
}

#[derive(Debug, Args)]
struct Add {
    /// Name of the context.
    #[arg(value_name = "NAME", value_parser = read_name)]
    name: String,
    /// Address of the broker.
    #[arg(long, value_name = "URL")]
    url: String,
    /// File that holds the API key and nothing else.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The project, for a key that may act in several.
    #[arg(long, value_name = "PROJECT", value_parser = id)]
    project: Option<String>,
    /// Send the key over http:// to another machine: the network can read it.
    #[arg(long)]
    insecure: bool,
    /// Use it from now on.
    #[arg(long = "use")]
    is_used: bool,
}

impl Add {
    fn context(&self) -> Result<Context, CliError> {
        let url = BrokerUrl::parse(&self.url, "--url").map_err(CliError::Usage)?;
        let key_file = self.key_file.as_ref().map(|file| {
            let unusable = |error: std::io::Error| format!("--key-file {} cannot be used: {error}", file.display());
            file.canonicalize().map_err(unusable)
        });
        Ok(Context {
            url: url.text,
            key_file: key_file.transpose().map_err(CliError::Usage)?,
            project: self.project.clone(),
            insecure: self.insecure,
        })
    }

    /// Returns what to say once the contexts are kept.
    fn run(self, contexts: &mut Contexts) -> Result<String, CliError> {
        let context = self.context()?;
        let key_file = context.key_file.as_ref().filter(|file| is_readable_by_others(file));
        let warning = key_file.map_or_else(String::new, |file| {
            let file = escaped(&file.to_string_lossy());
            format!("\nwarning: other users of this machine may read {file}; run chmod 600")
        });
        let name = self.name;
        let is_changed = contexts.add(name.clone(), context).map_err(CliError::Failed)?;
        let verb = if is_changed { "is changed" } else { "is added" };
        Ok(if self.is_used {
            contexts.current = Some(name.clone());
            format!("the context {name} {verb} and used{warning}")
        } else {
            format!("the context {name} {verb}; mcp-broker context use {name} uses it{warning}")
        })
    }
}

impl Run for ContextCommand {
    fn run(self, _: &Call<'_>) -> Result<ExitCode, CliError> {
        let mut contexts = Contexts::read().map_err(CliError::Failed)?;
        let said = match self.task {
            Task::Add(add) => add.run(&mut contexts)?,
            Task::Use { name } if name == OWN => {
                contexts.current = None;
                "commands use the broker of this user".to_owned()
            }
            Task::Use { name } => {
                let url = escaped(&contexts.find(&name).map_err(CliError::Failed)?.url);
                contexts.current = Some(name.clone());
                format!("commands use the context {name}: {url}")
            }
            Task::Remove { name } => {
                contexts.remove(&name).map_err(CliError::Failed)?;
                format!("the context {name} is removed")
            }
            Task::List { json } => return done(list(&contexts, json)),
        };
        contexts.write().map_err(CliError::Failed)?;
        done(print(&format!("{said}\n")))
    }
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
