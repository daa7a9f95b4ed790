//! `gateway calls` and `gateway cancel`.

use std::{fmt::Write as _, time::Duration};

use clap::{Arg, ArgMatches, Command};
use rest::backends::BackendCall;
use serde::Deserialize;
use serde_json::value::RawValue;
use ureq::http::Method;

use crate::{
    client::{ApiRequest, parameter, percent_encoded, with_query},
    error::CliError,
    flags::{given, id},
    operate::{
        job::{Context, Job},
        lists::parsed,
        lookup::whole_path,
    },
    output::{Output, json_line, print},
    short::prefix,
    table::{Table, escaped},
};

/// The names of the commands.
pub const CALLS: &str = "calls";
pub const CANCEL: &str = "cancel";

const PATH: &str = "/api/v1/gateway/calls";

/// `calls` with its help.
pub fn calls() -> Command {
    let backend = Arg::new("backend")
        .long("backend")
        .value_name("NAME")
        .value_parser(id)
        .help("Only the calls of this backend");
    Command::new(CALLS)
        .about("List the open calls of the backends, the oldest first")
        .arg(backend)
}

/// `cancel` with its help.
pub fn cancel() -> Command {
    let call = Arg::new("call")
        .value_name("ID")
        .required(true)
        .value_parser(id)
        .help("Id of the call, as calls shows it");
    Command::new(CANCEL)
        .about("Cancel an open call: its caller gets an error, and its backend is notified")
        .arg(call)
}

#[derive(Debug)]
struct Calls {
    path: String,
}

#[derive(Debug)]
struct Cancel {
    call: String,
}

/// Reads the arguments of `calls`.
pub fn read_calls(matches: &ArgMatches) -> Box<dyn Job> {
    let backend = given(matches, "backend");
    Box::new(Calls {
        path: with_query(PATH, [parameter("backend", backend.as_ref())]),
    })
}

/// Reads the arguments of `cancel`.
pub fn read_cancel(matches: &ArgMatches) -> Box<dyn Job> {
    Box::new(Cancel {
        call: given(matches, "call").unwrap_or_default(),
    })
}

#[derive(Deserialize)]
struct Answer {
    calls: Vec<Box<RawValue>>,
    total: usize,
    #[serde(default)]
    partial: Vec<String>,
}

impl Job for Calls {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let body = context.client.send(&ApiRequest::get(self.path.clone()))?;
        let Answer { calls, total, partial } = parsed(&body)?;
        if !partial.is_empty() {
            let silent = escaped(&partial.join(", "));
            eprintln!("these replicas did not answer, and their calls are missing: {silent}");
        }
        if context.output.json {
            let lines: String = calls.iter().map(|call| json_line(call)).collect();
            return print(&lines);
        }
        if calls.is_empty() {
            return print("no open calls\n");
        }
        let shown: Vec<BackendCall> = calls.iter().map(|call| parsed(call.get())).collect::<Result<_, _>>()?;
        let mut text = context.output.table(&table(&context.output, &shown));
        let more = total.saturating_sub(shown.len());
        if more > 0 {
            let _ = writeln!(text, "\nThere are {more} more open calls, which are younger.");
        }
        print(&text)
    }
}

fn table(output: &Output, calls: &[BackendCall]) -> Table {
    let len = output.id_len(calls.iter().map(|call| call.call_id.as_str()));
    let mut table = Table::new(&["BACKEND", "CALL", "STATE", "SECONDS", "SINCE", "CALLER", "ID"]);
    for call in calls {
        let what = call.tool.as_ref().or(call.name.as_ref()).unwrap_or(&call.method);
        let session = call.session_name.as_ref().or(call.session_id.as_ref());
        let age = format!("{:.1}", Duration::from_millis(call.age_ms).as_secs_f64());
        table.row([
            call.backend.as_str(),
            what,
            &call.state,
            &age,
            &output.age(&call.since),
            session.unwrap_or(&call.caller),
            prefix(&call.call_id, len),
        ]);
    }
    table
}

impl Job for Cancel {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let path = format!("{PATH}/{}", percent_encoded(&self.call));
        let path = whole_path(&context.client, &path)?;
        context.client.send(&ApiRequest::new(Method::DELETE, path))?;
        if context.output.json {
            return Ok(());
        }
        print("the call is ended\n")
    }
}
