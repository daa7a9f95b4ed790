//! `tail`: prints events as they happen.

use clap::Args;
use serde_json::{Value, json};

use super::event_line;
use super::events::{EventStream, Frame};
use super::job::{Context, Job};
use super::names::Names;
use crate::error::CliError;
use crate::flags::whole;
use crate::output::{Written, is_closed, json_value_line, write};

const ABOUT: &str = "\
Print events as they happen: sessions, protocols, messages without their payloads, dead letters, actors, and with
a key of scope admin the audit.

When the connection is lost, the command connects again and continues after the last event. A line with the topic
gap reports missing events. The command ends with Ctrl-C, when its reader closes the pipe, or with --limit.";

/// Print events as they happen.
#[derive(Debug, Args)]
#[command(long_about = ABOUT)]
pub struct Tail {
    #[arg(
        long,
        value_name = "TOPIC",
        value_delimiter = ',',
        help = "Only these: session, protocol, message, dead_letter, actor, audit"
    )]
    topics: Vec<String>,
    /// Begin after this event, if the broker still has it.
    #[arg(long, value_name = "EVENT_ID")]
    after: Option<String>,
    /// End after this many events.
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    limit: Option<u32>,
}

impl Job for Tail {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let topics = (!self.topics.is_empty()).then(|| self.topics.join(","));
        let mut stream = EventStream::new(&context.client, topics.as_deref(), self.after.clone());
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
