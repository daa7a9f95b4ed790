//! `project`: one request to a broker, shown to a person or handed to a script.
//!
//! `words` says what may be written, `order` makes the request of it without asking anybody, `views` turns the answer
//! (`answers`) into text. Only [`run`] talks.

mod args;
mod request;
mod responses;
mod views;

use std::io::{BufRead, IsTerminal, Write};

use serde::de::IgnoredAny;
use ureq::http::Method;

pub use args::{command, first_broker_flag, flags};
pub use request::{ProjectCommand, read};

use super::table::escaped_json;
use super::usage_errors::redact_keys;
use super::{CliError, client, print};

/// Does what was ordered and prints what came of it.
pub fn run(order: &ProjectCommand) -> Result<(), CliError> {
    if let Some(question) = &order.question {
        confirm(question)?;
    }
    let body = client::send(&order.access, &order.request);
    let body = body.map_err(|line| CliError::Failed(redact_keys(&line)))?;
    if order.json {
        return print_json(order, &body);
    }
    match order.view.text(&body) {
        Ok(text) => print(&text),
        Err(error) => Err(report_unreadable(order, &body, &error)),
    }
}

/// The answer as the broker wrote it: a script may want what this client does not know of.
fn print_json(order: &ProjectCommand, body: &str) -> Result<(), CliError> {
    let body = if body.is_empty() { order.view.empty_json() } else { body };
    serde_json::from_str::<IgnoredAny>(body).map_err(|error| not_understood(&error))?;
    print(&format!("{}\n", escaped_json(body.trim())))
}

/// What was changed stays changed, and the answer may hold a key that nobody shows again: it is printed as it is.
fn report_unreadable(order: &ProjectCommand, body: &str, error: &serde_json::Error) -> CliError {
    let printed = match order.request.method {
        Method::GET => Ok(()),
        _ => print_json(order, body),
    };
    printed.err().unwrap_or_else(|| not_understood(error))
}

/// Tells where the answer is not as expected and nothing of what it says, which may be a key.
fn not_understood(error: &serde_json::Error) -> CliError {
    let (line, column) = (error.line(), error.column());
    CliError::Failed(format!(
        "the broker took the request, and its answer is not understood (line {line}, column {column}); \
         is it a broker of this version? see --url"
    ))
}

/// Asks on the terminal, and nowhere else: a script has to say what it wants.
fn confirm(question: &str) -> Result<(), CliError> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(CliError::Usage(format!(
            "{question} There is no terminal to ask on; --yes does it without asking"
        )));
    }
    if answers_yes(question, &mut stdin.lock(), &mut std::io::stderr()) {
        Ok(())
    } else {
        Err(CliError::Failed("nothing was done: the answer was not yes".to_owned()))
    }
}

fn answers_yes(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> bool {
    let mut answer = String::new();
    let asked = write!(output, "{question} [y/N] ").and_then(|()| output.flush());
    let read = asked.and_then(|()| input.read_line(&mut answer));
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        for (answer, yes) in [
            ("y\n", true),
            ("YES\r\n", true),
            ("\n", false),
            ("", false),
            ("yeah\n", false),
        ] {
            let mut asked = Vec::new();
            assert_eq!(
                answers_yes("Delete it?", &mut answer.as_bytes(), &mut asked),
                yes,
                "{answer:?}"
            );
            assert_eq!(asked, b"Delete it? [y/N] ");
        }
    }
}
