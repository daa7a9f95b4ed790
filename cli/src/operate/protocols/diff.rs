//! `protocols diff`: what two versions of a protocol differ in, and a lens to begin with. The schemas are compared here.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use clap::Args;
use lens::{Class, Description, diff};
use semver::Version;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::job::{Context, Job};
use super::between::{Between, path, read_schema, registered, version};
use crate::error::CliError;
use crate::output::{json_value_line, print};
use crate::short::counted;
use crate::table::{Table, escaped, escaped_json};

/// The exit code where a payload of the first version does not fit the second as it is.
const DIFFERS: u8 = 3;
/// How long schemas are compared: what is not compared by then is left out.
const COMPARE_MAX: Duration = Duration::from_secs(10);

const ABOUT: &str = "\
Show what changed from one version of a protocol to another, by place in the payload, and suggest a lens: the
operations by which a payload of FROM becomes one of TO. Check what the lens makes up and drops before you register it.

  mcp-broker protocols diff chat 1.0.0 2.0.0
  mcp-broker protocols diff chat 1.0.0 2.0.0 --schema chat.schema.json    # 2.0.0 is not registered yet";

const EXIT_CODES: &str = "Exit code 3: a payload of FROM does not fit TO as it is.";

/// Show what changed between two versions, and suggest a lens.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, disable_version_flag = true,
    after_help = format!("{}\n{EXIT_CODES}", crate::output::EXIT_CODES),
    mut_arg("to", |to| to.value_name("TO").help("Version to compare with")))]
pub struct Diff {
    #[command(flatten)]
    between: Between,
    /// File with the schema of TO, if it is not registered, or - for stdin.
    #[arg(long, value_name = "FILE")]
    schema: Option<String>,
}

/// What registered lenses do between the two versions; None for a way without any.
#[derive(Debug, Serialize)]
struct ByLens {
    forward: Option<Description>,
    backward: Option<Description>,
}

impl Job for Diff {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let Between { name, from, to } = &self.between;
        let versions = registered(context, name)?;
        let old = version(&versions, name, from)?;
        let given = self.schema.as_deref().map(read_schema).transpose()?;
        let (new, by_lens) = if let Some(schema) = &given {
            (schema, None)
        } else {
            let new = version(&versions, name, to)?;
            let way = |from: &Version, to: &Version| path(&versions, from, to).map(|path| path.describe());
            let (forward, backward) = (way(&old.version, &new.version), way(&new.version, &old.version));
            let by_lens = (forward.is_some() || backward.is_some()).then_some(ByLens { forward, backward });
            (&new.schema, by_lens)
        };
        let begun = Instant::now();
        let found = diff(&old.schema, new, &|| begun.elapsed() > COMPARE_MAX);
        if context.output.json {
            let mut shown = json!(found);
            shown["by_lens"] = json!(by_lens);
            print(&json_value_line(&shown))?;
        } else {
            print(&self.described(context, &found, by_lens.as_ref()))?;
        }
        if found.compatible {
            return Ok(());
        }
        let line = format!(
            "payloads of {} {} do not fit {} as they are",
            escaped(name),
            escaped(from),
            escaped(to)
        );
        Err(CliError::NotReady(line, DIFFERS))
    }
}

impl Diff {
    fn described(&self, context: &Context, found: &lens::Diff, by_lens: Option<&ByLens>) -> String {
        let mut text = String::new();
        if found.changes.is_empty() {
            let _ = writeln!(text, "{}: no change of a place", self.between.shown());
        } else {
            let mut table = Table::new(&["PLACE", "CHANGE"]);
            for change in &found.changes {
                table.row([change.path.to_string().as_str(), change.change.as_str()]);
            }
            text = context.output.table(&table);
        }
        if let Some(ByLens { forward, backward }) = by_lens {
            let _ = writeln!(text);
            for (way, found) in [("forward", forward), ("backward", backward)] {
                let _ = writeln!(text, "registered lenses {way}: {}", shown_way(found.as_ref()));
            }
        }
        if !found.suggested_lens.is_empty() {
            let _ = writeln!(
                text,
                "\na lens to begin with:\n{}",
                operations(&json!(found.suggested_lens))
            );
        }
        text
    }
}

fn shown_way(way: Option<&Description>) -> String {
    let Some(way) = way else { return "none".to_owned() };
    let class = match way.class {
        Class::Exact => "exact",
        Class::Defaulted => "defaulted",
        Class::Lossy => "lossy",
    };
    let steps = counted(way.steps as u64, "step");
    let lost: Vec<_> = way.may_lose.iter().map(ToString::to_string).collect();
    if lost.is_empty() {
        format!("{class}, {steps}")
    } else {
        format!("{class}, {steps}, may lose {}", escaped(&lost.join(", ")))
    }
}

/// Operations as a file has them: one in each line.
pub fn operations(list: &Value) -> String {
    let lines = list.as_array().into_iter().flatten();
    let lines: Vec<_> = lines
        .map(|operation| format!("  {}", escaped_json(&operation.to_string())))
        .collect();
    if lines.is_empty() {
        return "[]".to_owned();
    }
    format!("[\n{}\n]", lines.join(",\n"))
}
