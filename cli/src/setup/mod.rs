//! `setup CLIENT`: writes the entry for a broker into the configuration file of an MCP client, and takes it out again.

mod change;
mod hooks;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value};

use super::{
    access::{EnvVars, variable},
    agent_clients::AgentClient,
    call::{Call, Run, done},
    config_entry::{EntryFlags, Members, Wanted, as_written, edit, entry_text, is_front, key_advice, members},
    edited_file::{self, Edit, PUBLIC},
    error::CliError,
    output::{EXIT_CODES, json_value_line, print},
};
use change::Change;

const ABOUT: &str = "\
Connect an MCP client to the broker: write the entry into its configuration file.

The entry starts `mcp-broker connect`, which finds or starts the broker of this user. With --url it is for a shared
broker. Comments, order and everything else in the file stay as they are. An entry of the same name that
this command did not write is never changed. A second run changes nothing.

With --hooks it writes hooks instead of the entry: for claude, codex, gemini, copilot and cursor. They report waiting
messages to an agent at the start and the end of its turns; those of Claude Code also wake an idle agent.

  mcp-broker setup claude --print
  mcp-broker setup claude
  mcp-broker setup cursor --project .
  mcp-broker setup claude --hooks
  mcp-broker setup claude --remove";

/// Connect an MCP client to the broker: write the entry into its configuration file.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES)]
#[expect(clippy::struct_excessive_bools, reason = "flags of the command line")]
pub struct SetupFlags {
    #[command(flatten)]
    entry: EntryFlags,
    /// Write into the file of the project in this folder, which everyone who works on the project shares.
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Write into the file of the user, for all projects [default].
    #[arg(long, conflicts_with = "project")]
    user: bool,
    /// Write the hooks that report messages to an agent, instead of the entry.
    #[arg(long, conflicts_with_all = ["url", "key_env"])]
    hooks: bool,
    /// Print what would be changed, and change nothing.
    #[arg(long)]
    print: bool,
    /// Remove what this command has written.
    #[arg(long)]
    remove: bool,
    /// Print what was done as JSON.
    #[arg(long)]
    json: bool,
}

/// What to write into which file.
struct Setup {
    wanted: Wanted,
    file: PathBuf,
    /// The folder of the project whose file it is; None for the file of the user.
    project: Option<PathBuf>,
    what: What,
    task: Task,
    /// Change nothing.
    is_dry: bool,
    is_json: bool,
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Entry,
    Hooks,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Add,
    Remove,
}

impl Run for SetupFlags {
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        done(self.read(call.env)?.run())
    }
}

impl SetupFlags {
    fn read(self, env: &EnvVars) -> Result<Setup, CliError> {
        let is_for_project = self.project.is_some();
        let wanted = self.entry.wanted(env, is_for_project)?;
        let task = if self.remove { Task::Remove } else { Task::Add };
        let what = if self.hooks { What::Hooks } else { What::Entry };
        let reason = match what {
            What::Hooks => hooks::impossible(&wanted),
            What::Entry => {
                let reason = unwritable(&wanted, is_for_project).filter(|_| task == Task::Add);
                wanted.impossible().or(reason)
            }
        };
        if let Some(reason) = reason {
            return Err(CliError::Usage(reason));
        }
        let file = choose_file(wanted.client, what, self.project.as_deref(), env).map_err(CliError::Usage)?;
        Ok(Setup {
            wanted,
            file,
            project: self.project,
            what,
            task,
            is_dry: self.print,
            is_json: self.json,
        })
    }
}

/// The file: of several that the client reads, the first that exists.
fn choose_file(client: &AgentClient, what: What, project: Option<&Path>, env: &EnvVars) -> Result<PathBuf, String> {
    let files = match project {
        Some(project) if !project.is_dir() => {
            return Err(format!("--project {} is not a folder", project.display()));
        }
        Some(project) => {
            let project = std::path::absolute(project).unwrap_or_else(|_| project.to_owned());
            match what {
                What::Hooks => client.project_hooks(&project).into_iter().collect(),
                What::Entry => client.project_files(&project),
            }
        }
        None if what == What::Hooks => {
            let file = client.user_hooks(|name| variable(env, name).map(Into::into));
            file.into_iter().collect()
        }
        None => client.user_files(|name| variable(env, name).map(Into::into)),
    };
    let existing = files.iter().find(|file| file.symlink_metadata().is_ok());
    existing.or(files.first()).cloned().ok_or_else(|| match project {
        Some(_) => format!("{} has no file for a project: leave --project out", client.label),
        None => "HOME is not set, so the file of the user is not known: set it, or use --project DIR".to_owned(),
    })
}

/// Why this command does not write such an entry, although `config` prints it.
fn unwritable(wanted: &Wanted, is_for_project: bool) -> Option<String> {
    wanted.key_env()?;
    match wanted.client.word {
        "claude" if !is_for_project => {
            Some("Claude Code replaces variables only in the file of a project: add --project DIR".to_owned())
        }
        "vscode" => Some(
            "VS Code asks for a key with an input, which this command does not write: mcp-broker config vscode \
             --key-env prints it"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Adds the entry, or gives an entry of this command the wanted values.
fn addition(wanted: &Wanted, text: Option<&str>) -> Result<Edit<Change>, String> {
    let (client, name, members) = (wanted.client, wanted.name.as_str(), members(wanted));
    let text = text.unwrap_or_else(|| edit::blank(client));
    let reason = |error: edit::EditError| error.to_string();
    let (new, result) = match edit::entry(client, text, name).map_err(reason)? {
        None => (Some(edit::insert(client, text, name, &members)), Change::Added),
        Some(entry) if has_all(&entry, &members) => (None, Change::Unchanged),
        Some(entry) if is_front(&entry) => (Some(edit::update(client, text, name, &members)), Change::Updated),
        Some(_) => return Err(foreign(name)),
    };
    let text = new.transpose().map_err(reason)?;
    Ok(Edit { text, result })
}

/// Removes the entry if it is as this command writes it.
fn removal(wanted: &Wanted, text: Option<&str>) -> Result<Edit<Change>, String> {
    let (client, name) = (wanted.client, wanted.name.as_str());
    let reason = |error: edit::EditError| error.to_string();
    let unchanged = Edit {
        text: None,
        result: Change::Unchanged,
    };
    let Some(text) = text else { return Ok(unchanged) };
    let Some(entry) = edit::entry(client, text, name).map_err(reason)? else {
        return Ok(unchanged);
    };
    let Some(written) = as_written(wanted, &entry) else {
        return Err(format!(
            "its entry {name} is not as this command writes it; remove it in an editor{}",
            if entry.get("url").is_some() {
                ", or repeat this with its --url"
            } else {
                ""
            }
        ));
    };
    let text = edit::remove(client, text, name, &written).map_err(reason)?;
    Ok(Edit {
        text: Some(text),
        result: Change::Removed,
    })
}

fn has_all(entry: &Value, members: &Members) -> bool {
    members.iter().all(|(key, value)| entry.get(*key) == Some(value))
}

fn foreign(name: &str) -> String {
    format!("it has an entry {name} that this command did not write; choose another --name, or remove the entry there")
}

impl Setup {
    /// Changes the file, or says what would be changed.
    fn run(&self) -> Result<(), CliError> {
        let decide = |text: Option<&str>| match (self.task, self.what) {
            (Task::Remove, What::Hooks) => hooks::removal(&self.wanted, text),
            (Task::Add, What::Hooks) => hooks::addition(&self.wanted, text),
            (Task::Remove, What::Entry) => removal(&self.wanted, text),
            (Task::Add, What::Entry) => addition(&self.wanted, text),
        };
        let mut folders = self.project.iter();
        let checked = folders.try_for_each(|project| edited_file::check_within(project, &self.file));
        let change = checked.and_then(|()| edited_file::edit(&self.file, PUBLIC, !self.is_dry, decide));
        let change = change.map_err(|reason| {
            let (label, file) = (self.wanted.client.label, self.file.display());
            CliError::Failed(format!("{label}: {file} was not changed: {reason}"))
        })?;
        print(&if self.is_json {
            json_value_line(&self.as_json(change))
        } else {
            self.as_text(change)?
        })
    }

    fn as_json(&self, change: Change) -> Value {
        let file = self.file.to_string_lossy();
        let mut done = serde_json::json!({
            "client": self.wanted.client.word, "file": file, "change": change,
            "written": !self.is_dry && change != Change::Unchanged,
        });
        let object = |members: Members| -> Map<String, Value> {
            let owned = |(key, value): (&str, Value)| (key.to_owned(), value);
            members.into_iter().map(owned).collect()
        };
        if self.what == What::Hooks {
            done["hooks"] = Value::Object(object(hooks::items(&self.wanted)));
        } else {
            done["name"] = Value::from(self.wanted.name.as_str());
            done["entry"] = Value::Object(object(members(&self.wanted)));
        }
        done
    }

    fn as_text(&self, change: Change) -> Result<String, CliError> {
        let Self { wanted, file, .. } = self;
        let (label, file) = (wanted.client.label, file.display());
        let (what, are, were) = if self.what == What::Hooks {
            ("the hooks of this command".to_owned(), "are", "were")
        } else {
            (format!("the entry {}", wanted.name), "is", "was")
        };
        let done = match (change, self.task) {
            (Change::Unchanged, Task::Remove) if self.what == What::Hooks => {
                return Ok(format!("{label}: {file} has no hooks of this command.\n"));
            }
            (Change::Unchanged, Task::Remove) => {
                return Ok(format!("{label}: {file} has no entry {}.\n", wanted.name));
            }
            (Change::Unchanged, Task::Add) => return Ok(format!("{label}: {what} {are} already in {file}.\n")),
            (Change::Added, _) => "added to",
            (Change::Updated, _) => "updated in",
            (Change::Removed, _) => "removed from",
        };
        if self.is_dry {
            let would = format!("{label}: {what} would be {done} {file}.\n");
            if change == Change::Removed {
                return Ok(would);
            }
            return Ok(format!("{would}\n{}", self.alone()?));
        }
        let (it, uses) = if self.what == What::Hooks {
            ("them", "runs")
        } else {
            ("it", "uses")
        };
        let next = match (change, self.project.is_some()) {
            (Change::Removed, _) => return Ok(format!("{label}: {what} {were} {done} {file}.\n")),
            (_, true) => format!("{label} {uses} {it} in this project when it starts next.\n"),
            (_, false) => format!("{label} {uses} {it} when it starts next.\n"),
        };
        Ok(format!(
            "{label}: {what} {were} {done} {file}.\n{next}{}",
            self.advice()
        ))
    }

    /// The text of a file that has nothing else.
    fn alone(&self) -> Result<String, CliError> {
        if self.what == What::Hooks {
            return hooks::text(&self.wanted).map_err(CliError::Failed);
        }
        entry_text(&self.wanted).map_err(|error| CliError::Failed(error.to_string()))
    }

    /// What the user has to do besides.
    fn advice(&self) -> String {
        if self.what == What::Hooks {
            return hooks::advice(&self.wanted).to_owned();
        }
        match self.wanted.key_env() {
            Some(_) => key_advice(&self.wanted),
            None => String::new(),
        }
    }
}
