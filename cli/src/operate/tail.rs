//! `tail`: prints events as they happen.

use clap::{ArgMatches, Command};
use serde_json::{Value, json};

use super::event_line;
use super::events::{EventStream, Frame};
use super::job::{Context, Job};
use super::names::Names;
use crate::error::CliError;
use crate::flags::{given, given_number, many, number, text};
use crate::output::{Written, is_closed, json_value_line, write};

/// The name of the command.
pub const NAME: &str = "tail";

const ABOUT: &str = "\
Print events as they happen: sessions, protocols, messages without their payloads, dead letters, actors, and with
a key of scope admin the audit.

When the connection is lost, the command connects again and continues after the last event. A line with the topic
gap reports missing events. The command ends with Ctrl-C, when its reader closes the pipe, or with --limit.";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("Print events as they happen")
        .long_about(ABOUT)
        .arg(many(
            "topics",
            "TOPIC",
            "Only these: session, protocol, message, dead_letter, actor, audit",
        ))
        .arg(text(
            "after",
            "EVENT_ID",
            "Begin after this event, if the broker still has it",
        ))
        .arg(number("limit", 1, "End after this many events"))
}

#[derive(Debug)]
struct Tail {
    topics: Option<String>,
    after: Option<String>,
    limit: Option<u32>,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    let topics: Option<Vec<String>> = matches.get_many("topics").map(|topics| topics.cloned().collect());
    Box::new(Tail {
        topics: topics.map(|topics| topics.join(",")),
        after: given(matches, "after"),
        limit: given_number(matches, "limit"),
    })
}

impl Job for Tail {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let mut stream = EventStream::new(&context.client, self.topics.as_deref(), self.after.clone());
        // A broker that is not there at the start is a mistake of the command line; later it is an outage.
        stream.connect()?;
        let mut names = if context.output.json {
            Names::default()
        } else {
            Names::ask(&context.client)
        };
        follow(context, stream, self.limit, |topic, data| {
            Some(event_line::line(topic, data, &mut names, context.output.utc))
        })
    }
}

/// Prints the events of a stream, each as JSON or as the line that `line` makes of it, until the reader of stdout is gone
/// or `limit` events are printed. An event without a line is left out.
///
/// # Errors
/// The broker refuses, or the output cannot be written.
pub fn follow(
    context: &Context,
    mut stream: EventStream,
    limit: Option<u32>,
    mut line: impl FnMut(&str, &Value) -> Option<String>,
) -> Result<(), CliError> {
    let mut left = limit;
    while left != Some(0) {
        let failures = stream.failures();
        match stream.next() {
            Ok(frame) => {
                if failures > 1 {
                    eprintln!("connected again");
                }
                let Frame::Event { topic, id, data } = frame else {
                    if is_closed() {
                        return Ok(());
                    }
                    continue;
                };
                let data: Value = serde_json::from_str(&data).unwrap_or(Value::String(data));
                let Some(line) = line(&topic, &data) else { continue };
                let line = if context.output.json {
                    json_value_line(&json!({"topic": topic, "id": id, "data": data}))
                } else {
                    line + "\n"
                };
                if write(&line)? == Written::Closed {
                    return Ok(());
                }
                left = left.map(|left| left - 1);
            }
            Err(error) if error.code.is_some() && !error.is_passing() => return Err(error.into()),
            Err(error) if failures == 1 => eprintln!("{}; connecting again", error.line),
            Err(_) => {}
        }
    }
    Ok(())
}
