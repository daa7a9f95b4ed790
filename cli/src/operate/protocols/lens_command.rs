//! `protocols lens`: tries, registers, shows and removes the lens between two versions.

use std::fmt::Write as _;

use clap::{ArgMatches, Command};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use ureq::http::Method;

use super::super::job::{Context, Job};
use super::super::lists::{parsed, show_one};
use super::between::{Between, read_schema, source};
use super::diff::operations;
use crate::client::ApiRequest;
use crate::error::CliError;
use crate::flags::{choice, given, switch, text};
use crate::output::{EXIT_CODES, json_line, print};
use crate::table::{Table, escaped};

/// The name of the command.
pub const NAME: &str = "lens";

const DIRECTIONS: &[&str] = &["both", "forward", "backward"];
const FORM: &str = "allowed: a file with a list of operations, such as [{\"op\": \"rename\", \"path\": \"/text\", \"to\": \
                    \"body\"}], or - for stdin";

const ABOUT: &str = "\
Try, register, show or remove the lens from one version of a protocol to a higher one: how a payload of FROM becomes
one of VERSION. The broker checks it against both schemas before it accepts it.

  mcp-broker protocols lens check chat 1.0.0 2.0.0 --schema chat.schema.json --lens chat.lens.json
  mcp-broker protocols lens put chat 1.0.0 2.0.0 --schema chat.schema.json --lens chat.lens.json";

/// The command with its help.
pub fn command() -> Command {
    let below = |name: &'static str, about: &'static str| {
        let command = Command::new(name)
            .about(about)
            .disable_version_flag(true)
            .after_help(EXIT_CODES);
        command.args(Between::arguments("VERSION", "The higher version"))
    };
    let given = |command: Command| {
        command.args([
            text("lens", "FILE", "File with the list of operations, or - for stdin").required(true),
            text(
                "schema",
                "FILE",
                "File with the schema of VERSION, if it is not registered, or - for stdin",
            ),
            switch("allow-loss", "Accept that the way forward loses what is declared"),
            choice("direction", "D", DIRECTIONS, "Which way messages are transformed"),
        ])
    };
    Command::new(NAME)
        .about("Try, register, show or remove the lens between two versions")
        .long_about(ABOUT)
        .disable_version_flag(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([
            given(below(
                "check",
                "Try a lens against both schemas, without registering it",
            )),
            given(below(
                "put",
                "Register a lens, and with --schema the version that it leads to",
            ))
            .arg(switch("replace", "Replace the lens that these versions have")),
            below("show", "Show the operations of a lens, and what is known about it"),
            below(
                "remove",
                "Remove a lens: what is delivered later is not transformed by it",
            ),
        ])
}

#[derive(Debug)]
enum Action {
    Check(New),
    Put(New),
    Show,
    Remove,
}

/// A lens as it is given.
#[derive(Debug)]
struct New {
    lens: String,
    schema: Option<String>,
    allows_loss: bool,
    direction: Option<String>,
    replaces: bool,
}

#[derive(Debug)]
struct OfLens {
    between: Between,
    action: Action,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    let (name, below) = matches.subcommand().unwrap_or(("show", matches));
    let new = || New {
        lens: given(below, "lens").unwrap_or_default(),
        schema: given(below, "schema"),
        allows_loss: below.get_flag("allow-loss"),
        direction: given(below, "direction"),
        replaces: name == "check" || below.get_flag("replace"),
    };
    let action = match name {
        "check" => Action::Check(new()),
        "put" => Action::Put(new()),
        "remove" => Action::Remove,
        _ => Action::Show,
    };
    Box::new(OfLens {
        between: Between::read(below),
        action,
    })
}

/// What the broker says of a lens.
#[derive(Debug, Deserialize)]
struct LensView {
    direction: String,
    forward: Option<Verdict>,
    backward: Option<Verdict>,
    revision: u64,
    #[serde(default)]
    existed: bool,
    ops: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    class: String,
    proof: String,
    may_lose: Vec<String>,
    unproved: Vec<Unproved>,
}

#[derive(Debug, Deserialize)]
struct Unproved {
    path: String,
    reason: String,
}

/// An answer that has a lens: the registration of its version, or the lens itself.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Version { lens: LensView },
    Lens(LensView),
}

impl Answer {
    fn lens(&self) -> &LensView {
        match self {
            Self::Version { lens } | Self::Lens(lens) => lens,
        }
    }
}

impl Job for OfLens {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let shown = self.between.shown();
        match &self.action {
            Action::Check(new) => {
                let body = context.client.send(&self.registration(context, new, true)?)?;
                show_one(context, &body, |answer: &Answer| {
                    format!(
                        "{shown}: the lens holds; nothing is registered\n{}",
                        verdicts(context, answer.lens())
                    )
                })
            }
            Action::Put(new) => {
                let ask = match &new.schema {
                    Some(_) => self.registration(context, new, false)?,
                    None => ApiRequest::new(Method::PUT, self.between.lens_path()).with_body(new.arguments()?),
                };
                let body = context.client.send(&ask)?;
                show_one(context, &body, |answer: &Answer| {
                    let (lens, mut what) = (answer.lens(), "is registered".to_owned());
                    if lens.existed {
                        "was registered before".clone_into(&mut what);
                    } else if lens.revision > 1 {
                        what = format!("is registered as revision {}", lens.revision);
                    }
                    format!("{shown}: the lens {what}\n{}", verdicts(context, lens))
                })
            }
            Action::Show => self.show(context),
            Action::Remove => {
                context
                    .client
                    .send(&ApiRequest::new(Method::DELETE, self.between.lens_path()))?;
                if context.output.json {
                    return Ok(());
                }
                print(&format!("{shown}: the lens is removed\n"))
            }
        }
    }
}

impl New {
    /// The arguments of the lens, without the versions.
    fn arguments(&self) -> Result<Value, CliError> {
        let lens: Value = parsed(source(&self.lens).read_list(FORM)?.get())?;
        let mut body = json!({"lens": lens, "allow_loss": self.allows_loss, "replace_lens": self.replaces});
        if let Some(direction) = &self.direction {
            body["direction"] = json!(direction);
        }
        Ok(body)
    }
}

impl OfLens {
    /// The registration of the version with the lens: of a new version, or again of the one that there is.
    fn registration(&self, context: &Context, new: &New, dry_run: bool) -> Result<ApiRequest, CliError> {
        let mut body = new.arguments()?;
        if let Some(file) = &new.schema {
            body["schema"] = read_schema(file)?;
        } else {
            let known = context.client.send(&ApiRequest::get(self.between.version_path()))?;
            let mut known: Value = parsed(&known)?;
            for member in ["schema", "capabilities", "metadata"] {
                body[member] = known[member].take();
            }
        }
        body["name"] = json!(self.between.name);
        body["version"] = json!(self.between.to);
        body["from"] = json!(self.between.from);
        body["dry_run"] = json!(dry_run);
        Ok(ApiRequest::new(Method::POST, "/api/v1/protocols".to_owned()).with_body(body))
    }

    fn show(&self, context: &Context) -> Result<(), CliError> {
        #[derive(Deserialize)]
        struct Known {
            #[serde(default)]
            lenses: Vec<Box<RawValue>>,
        }
        #[derive(Deserialize)]
        struct From {
            from: String,
        }
        let known: Known = parsed(&context.client.send(&ApiRequest::get(self.between.version_path()))?)?;
        let wanted = self.between.from.split('+').next();
        for lens in known.lenses {
            let From { from } = parsed(lens.get())?;
            if from.split('+').next() != wanted {
                continue;
            }
            if context.output.json {
                return print(&json_line(&lens));
            }
            let lens: LensView = parsed(lens.get())?;
            let mut text = format!(
                "{}, revision {}, direction {}\n",
                self.between.shown(),
                lens.revision,
                escaped(&lens.direction)
            );
            text.push_str(&verdicts(context, &lens));
            let _ = writeln!(text, "\n{}", operations(lens.ops.as_ref().unwrap_or(&Value::Null)));
            return print(&text);
        }
        let shown = self.between.shown();
        Err(CliError::Nothing(Some(format!(
            "{shown}: no lens; mcp-broker protocols lens put registers one"
        ))))
    }
}

/// What is known about both ways.
fn verdicts(context: &Context, lens: &LensView) -> String {
    let mut table = Table::new(&["WAY", "CLASS", "PROOF", "MAY LOSE"]);
    let mut open = String::new();
    for (way, verdict) in [("forward", &lens.forward), ("backward", &lens.backward)] {
        let Some(verdict) = verdict else { continue };
        table.row([
            way,
            verdict.class.as_str(),
            verdict.proof.as_str(),
            verdict.may_lose.join(", ").as_str(),
        ]);
        for Unproved { path, reason } in &verdict.unproved {
            let _ = writeln!(
                open,
                "not proved {way}, at {}: {}",
                escaped(&format!("`{path}`")),
                escaped(reason)
            );
        }
    }
    format!("{}{open}", context.output.table(&table))
}
