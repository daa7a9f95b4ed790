//! `dead-letters redrive`: sends one, some or all matching dead letters again.

use std::collections::HashSet;

use clap::{Arg, ArgGroup, Args};
use rest::messages::{DeadLetter, Redriven};
use serde_json::json;
use ureq::http::Method;

use super::dead_letter::{Filters, PAGE_LEN_MAX};
use super::job::{Context, Job};
use super::lists::Pages;
use super::lookup::{Kind, whole_id, whole_path};
use super::progress;
use crate::client::{ApiRequest, parsed};
use crate::error::CliError;
use crate::flags::id;
use crate::output::{EXIT_CODES, json_value_line, print};
use crate::question::confirm;
use crate::short::{counted, first_of};

/// Messages of one request: it is answered soon, and the progress is seen.
const BATCH_LEN: usize = 500;
/// The most messages of one run, which are kept in memory: 64 MB of ids.
const MESSAGES_MAX: usize = 1_000_000;
/// Failures that are named in the summary.
const FAILURES_SHOWN: usize = 10;

const ABOUT: &str = "\
Send dead letters again: those that are named, or with --all those that match.

A message that is dead for several recipients is sent again to all of them. What cannot be sent again, because
its recipient is gone or its inbox is full, stays a dead letter, and the exit code is 1; --to names another recipient.";

/// Send dead letters again.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES, mut_args(select_with_all),
    group(ArgGroup::new("which").args(["messages", "all"]).required(true)))]
pub struct Redrive {
    /// The dead letters to send again.
    #[arg(value_name = "MESSAGE_ID", value_parser = id, num_args = 1)]
    messages: Vec<String>,
    /// Send all dead letters again that match.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filters: Filters,
    /// Send them to this session, and not to their recipients.
    #[arg(long, value_name = "SESSION")]
    to: Option<String>,
    /// Do not ask for confirmation; required with --all without a terminal.
    #[arg(long, requires = "all")]
    yes: bool,
}

fn select_with_all(arg: Arg) -> Arg {
    if ["reason", "session", "protocol"].contains(&arg.get_id().as_str()) {
        arg.requires("all")
    } else {
        arg
    }
}

impl Job for Redrive {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let messages = if self.all {
            let messages = matching(context, &self.filters.path())?;
            if !messages.is_empty() && !self.yes {
                let count = counted(messages.len() as u64, "dead letter");
                confirm(&format!("Send {count} again?"))?;
            }
            messages
        } else {
            let whole = |message: &String| whole_id(&context.client, Kind::DeadLetter, message);
            self.messages.iter().map(whole).collect::<Result<_, _>>()?
        };
        let done = self.redrive(context, &messages)?;
        if context.output.json {
            print(&json_value_line(&json!(done)))?;
        } else {
            print(&format!("sent {} again\n", counted(done.redriven, "dead letter")))?;
        }
        match complaint(&done) {
            None => Ok(()),
            Some(line) => Err(CliError::Failed(line)),
        }
    }
}

/// The ids of the dead letters of a list, each once. They are read before the first is sent again, so that a message that
/// dies again is not sent twice.
fn matching(context: &Context, path: &str) -> Result<Vec<String>, CliError> {
    let mut pages = Pages::new(
        &context.client,
        whole_path(&context.client, path)?,
        "dead_letters",
        PAGE_LEN_MAX,
        MESSAGES_MAX,
    );
    let bar = progress::count();
    let (mut messages, mut seen) = (Vec::new(), HashSet::new());
    while let Some(page) = progress::persistently(&bar, || pages.next_page())? {
        for letter in &page {
            let letter: DeadLetter = parsed(letter.get())?;
            if seen.insert(letter.message.message_id.clone()) {
                messages.push(letter.message.message_id);
            }
        }
        bar.set_position(messages.len() as u64);
    }
    bar.finish_and_clear();
    Ok(messages)
}

impl Redrive {
    fn redrive(&self, context: &Context, messages: &[String]) -> Result<Redriven, CliError> {
        let recipient = self.to.as_ref();
        let recipient = recipient
            .map(|to| whole_id(&context.client, Kind::Session, to))
            .transpose()?;
        let bar = progress::bar(messages.len() as u64);
        let mut done = Redriven::default();
        for batch in messages.chunks(BATCH_LEN) {
            let mut body = json!({"message_ids": batch});
            if let Some(recipient) = &recipient {
                body["recipient_id"] = recipient.as_str().into();
            }
            let ask = ApiRequest::new(Method::POST, "/api/v1/dead-letters/redrive".to_owned()).with_body(body);
            let answer = progress::persistently(&bar, || context.client.send(&ask)).map_err(|error| {
                let sent = counted(done.redriven, "dead letter");
                bar.abandon();
                CliError::Failed(format!("{}; {sent} had been sent again before", error.line))
            })?;
            let batch_done: Redriven = parsed(&answer)?;
            done.redriven += batch_done.redriven;
            done.unknown.extend(batch_done.unknown);
            done.failures.extend(batch_done.failures);
            bar.inc(batch.len() as u64);
        }
        bar.finish_and_clear();
        Ok(done)
    }
}

/// What was not sent again, as one line.
fn complaint(done: &Redriven) -> Option<String> {
    let mut parts = Vec::new();
    if !done.unknown.is_empty() {
        let ids = first_of(&done.unknown, FAILURES_SHOWN);
        let noun = if done.unknown.len() == 1 { "letter" } else { "letters" };
        parts.push(format!("no dead {noun} {ids}: mcp-broker dead-letters lists them"));
    }
    if !done.failures.is_empty() {
        let failures: Vec<String> = done
            .failures
            .iter()
            .map(|failure| format!("{} ({})", failure.message_id, failure.code))
            .collect();
        let ids = first_of(&failures, FAILURES_SHOWN);
        parts.push(format!(
            "{} not sent again: {ids}; --to names another recipient",
            are(failures.len())
        ));
    }
    (!parts.is_empty()).then(|| common::config::one_line(&parts.join("; ")))
}

fn are(count: usize) -> String {
    if count == 1 {
        "1 is".to_owned()
    } else {
        format!("{count} are")
    }
}

#[cfg(test)]
mod tests {
    use rest::messages::RedriveFailure;

    use super::*;

    #[test]
    fn what_was_not_sent_again_is_one_line() {
        assert_eq!(complaint(&Redriven::default()), None);
        let done = Redriven {
            redriven: 1,
            unknown: vec!["a\nb".to_owned()],
            failures: (0..12)
                .map(|at| RedriveFailure {
                    message_id: at.to_string(),
                    code: "queue_full".to_owned(),
                })
                .collect(),
        };
        let line = complaint(&done).unwrap();
        assert!(
            line.starts_with("no dead letter a b: mcp-broker dead-letters lists them; "),
            "{line}"
        );
        assert!(
            line.contains("12 are not sent again: 0 (queue_full), ") && line.contains(" and 2 more"),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
    }
}
