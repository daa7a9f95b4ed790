//! `protocols lens`: tries, registers, shows and removes the lens between two versions.

use std::fmt::Write as _;

use clap::{Args, Subcommand, builder::PossibleValuesParser};
use rest::protocols::{Lens, RegisteredLens, Unproved};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use ureq::http::Method;

use super::super::job::{Context, Job};
use super::super::lists::show_one;
use super::super::payload::PayloadSource;
use super::between::{Between, read_schema};
use super::diff::operations;
use crate::client::{ApiRequest, parsed};
use crate::error::CliError;
use crate::flags::one_of;
use crate::output::{EXIT_CODES, json_line, print};
use crate::table::{Table, escaped};

const DIRECTIONS: &[&str] = &["both", "forward", "backward"];
const FORM: &str = "allowed: a file with a list of operations, such as [{\"op\": \"rename\", \"path\": \"/text\", \"to\": \
                    \"body\"}], or - for stdin";

const ABOUT: &str = "\
Try, register, show or remove the lens from one version of a protocol to a higher one: how a payload of FROM becomes
one of VERSION. The broker checks it against both schemas before it accepts it.

  mcp-broker protocols lens check chat 1.0.0 2.0.0 --schema chat.schema.json --lens chat.lens.json
  mcp-broker protocols lens put chat 1.0.0 2.0.0 --schema chat.schema.json --lens chat.lens.json";

/// Try, register, show or remove the lens between two versions.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, disable_version_flag = true)]
pub struct LensCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Try a lens against both schemas, without registering it.
    Check {
        #[command(flatten)]
        of: OfLens,
        #[command(flatten)]
        new: New,
    },
    /// Register a lens, and with --schema the version that it leads to.
    Put {
        #[command(flatten)]
        of: OfLens,
        #[command(flatten)]
        new: New,
        /// Replace the lens that these versions have.
        #[arg(long)]
        replace: bool,
    },
    /// Show the operations of a lens, and what is known about it.
    Show {
        #[command(flatten)]
        of: OfLens,
    },
    /// Remove a lens: what is delivered later is not transformed by it.
    Remove {
        #[command(flatten)]
        of: OfLens,
    },
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true, after_help = EXIT_CODES,
    mut_arg("to", |to| to.value_name("VERSION").help("The higher version")))]
struct OfLens {
    #[command(flatten)]
    between: Between,
}

/// A lens as it is given.
#[derive(Debug, Args)]
struct New {
    /// File with the list of operations, or - for stdin.
    #[arg(long, value_name = "FILE")]
    lens: String,
    /// File with the schema of VERSION, if it is not registered, or - for stdin.
    #[arg(long, value_name = "FILE")]
    schema: Option<String>,
    /// Accept that the way forward loses what is declared.
    #[arg(long)]
    allow_loss: bool,
    #[arg(long, value_name = "D", help = one_of(DIRECTIONS, "Which way messages are transformed"),
        value_parser = PossibleValuesParser::new(DIRECTIONS), hide_possible_values = true)]
    direction: Option<String>,
}

/// An answer that has a lens: the registration of its version, or the lens itself.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Answer {
    Version { lens: RegisteredLens },
    Lens(RegisteredLens),
}

impl Answer {
    fn lens(&self) -> &RegisteredLens {
        match self {
            Self::Version { lens } | Self::Lens(lens) => lens,
        }
    }
}

impl Job for LensCommand {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        match &self.action {
            Action::Check { of, new } => {
                let body = context.client.send(&of.registration(context, new, true, true)?)?;
                show_one(context, &body, |answer: &Answer| {
                    format!(
                        "{}: the lens holds; nothing is registered\n{}",
                        of.between.shown(),
                        verdicts(context, &answer.lens().lens)
                    )
                })
            }
            Action::Put { of, new, replace } => of.put(context, new, *replace),
            Action::Show { of } => of.show(context),
            Action::Remove { of } => {
                context
                    .client
                    .send(&ApiRequest::new(Method::DELETE, of.between.lens_path()))?;
                if context.output.json {
                    return Ok(());
                }
                print(&format!("{}: the lens is removed\n", of.between.shown()))
            }
        }
    }
}

impl New {
    /// The arguments of the lens, without the versions.
    fn arguments(&self, replaces: bool) -> Result<Value, CliError> {
        let lens: Value = parsed(PayloadSource::of_file(&self.lens).read_list(FORM)?.get())?;
        let mut body = json!({"lens": lens, "allow_loss": self.allow_loss, "replace_lens": replaces});
        if let Some(direction) = &self.direction {
            body["direction"] = json!(direction);
        }
        Ok(body)
    }
}

impl OfLens {
    /// The registration of the version with the lens: of a new version, or again of the one that there is.
    fn registration(
        &self,
        context: &Context,
        new: &New,
        replaces: bool,
        dry_run: bool,
    ) -> Result<ApiRequest, CliError> {
        let mut body = new.arguments(replaces)?;
        if let Some(file) = &new.schema {
            body["schema"] = read_schema(file)?;
        } else {
            let mut known: Value = context.client.get(self.between.version_path())?;
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

    fn put(&self, context: &Context, new: &New, replaces: bool) -> Result<(), CliError> {
        let ask = match &new.schema {
            Some(_) => self.registration(context, new, replaces, false)?,
            None => ApiRequest::new(Method::PUT, self.between.lens_path()).with_body(new.arguments(replaces)?),
        };
        let body = context.client.send(&ask)?;
        show_one(context, &body, |answer: &Answer| {
            let RegisteredLens { lens, existed } = answer.lens();
            let what = match lens.revision {
                _ if *existed => "was registered before".to_owned(),
                0 | 1 => "is registered".to_owned(),
                revision => format!("is registered as revision {revision}"),
            };
            format!("{}: the lens {what}\n{}", self.between.shown(), verdicts(context, lens))
        })
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
        let known: Known = context.client.get(self.between.version_path())?;
        let wanted = self.between.from.split('+').next();
        for lens in known.lenses {
            let From { from } = parsed(lens.get())?;
            if from.split('+').next() != wanted {
                continue;
            }
            if context.output.json {
                return print(&json_line(&lens));
            }
            let lens: Lens = parsed(lens.get())?;
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
fn verdicts(context: &Context, lens: &Lens) -> String {
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
