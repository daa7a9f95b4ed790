//! `gateway calls` and `gateway cancel`.

use std::{fmt::Write as _, time::Duration};

use rest::backends::BackendCall;
use serde::Deserialize;
use serde_json::value::RawValue;
use ureq::http::Method;

use crate::{
    client::{ApiRequest, parameter, percent_encoded, with_query},
    error::CliError,
    operate::{job::Context, lists, lookup::whole_path},
    output::{Output, print},
    short::prefix,
    table::{Table, escaped},
};

const PATH: &str = "/api/v1/gateway/calls";

#[derive(Deserialize)]
struct Answer {
    calls: Vec<Box<RawValue>>,
    total: usize,
    #[serde(default)]
    partial: Vec<String>,
}

/// Lists the open calls, of one backend or of all.
pub fn list(context: &Context, backend: Option<&String>) -> Result<(), CliError> {
    let path = with_query(PATH, [parameter("backend", backend)]);
    let Answer { calls, total, partial } = context.client.get(path)?;
    if !partial.is_empty() {
        let silent = escaped(&partial.join(", "));
        eprintln!("these replicas did not answer, and their calls are missing: {silent}");
    }
    lists::show_all(context, &calls, "no open calls\n", |calls: &[BackendCall]| {
        let mut text = context.output.table(&table(&context.output, calls));
        let more = total.saturating_sub(calls.len());
        if more > 0 {
            let _ = writeln!(text, "\nThere are {more} more open calls, which are younger.");
        }
        text
    })
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

/// Ends an open call.
pub fn cancel(context: &Context, call: &str) -> Result<(), CliError> {
    let path = format!("{PATH}/{}", percent_encoded(call));
    let path = whole_path(&context.client, &path)?;
    context.client.send(&ApiRequest::new(Method::DELETE, path))?;
    if context.output.json {
        return Ok(());
    }
    print("the call is ended\n")
}
