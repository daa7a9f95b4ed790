//! `gateway logs`: what a backend has written to stderr.

use std::{fmt::Write as _, thread::sleep, time::Duration};

use rest::backends::BackendLines;

use super::backend::OfBackend;
use crate::{
    client::with_query,
    error::CliError,
    operate::job::Context,
    output::{Written, json_value_line, write},
    table::escaped,
};

/// The pause between two looks for new lines.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Shows the last lines that a backend has written to stderr, and new ones as they come.
pub fn show(context: &Context, of: &OfBackend, follows: bool) -> Result<(), CliError> {
    let mut next = 0;
    loop {
        let path = with_query(&of.path("/log"), [Some(format!("from={next}"))]);
        let answer: BackendLines = context.client.get(path)?;
        next = answer.next;
        let mut text = String::new();
        for line in &answer.lines {
            if context.output.json {
                text.push_str(&json_value_line(&serde_json::json!(line)));
            } else {
                let _ = writeln!(text, "{} {}", context.output.time(&line.at), escaped(&line.text));
            }
        }
        if write(&text)? == Written::Closed || !follows {
            return Ok(());
        }
        sleep(LOOK_INTERVAL);
    }
}
