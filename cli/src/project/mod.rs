//! `project`: sends one request to a broker and shows the response to a person or a script.
//!
//! `request` has the arguments and turns them into a request, `views` turns the response into text. Only [`run`] does I/O.

mod request;
mod views;

use serde::de::IgnoredAny;
use ureq::http::Method;

pub use request::{ProjectCommand, command, read};

use super::client;
use super::error::CliError;
use super::output::print;
use super::question::confirm;
use super::table::escaped_json;
use super::usage_errors::redact_keys;

/// Sends the request of a command and prints the response.
///
/// # Errors
/// [`CliError::Usage`] when the confirmation cannot be asked, [`CliError::Failed`] when it is denied or the request
/// fails.
pub fn run(command: &ProjectCommand) -> Result<(), CliError> {
    if let Some(question) = &command.question {
        confirm(question)?;
    }
    let access = command.access.clone().or_broker_of_user().map_err(CliError::Failed)?;
    let body = client::send(&access, &command.request);
    let body = body.map_err(|line| CliError::Failed(redact_keys(&line)))?;
    if command.json {
        return print_json(command, &body);
    }
    match command.view.text(&body) {
        Ok(text) => print(&text),
        Err(error) => Err(report_unreadable(command, &body, &error)),
    }
}

/// Prints the response as the broker wrote it: a script may use fields that this client does not know.
fn print_json(command: &ProjectCommand, body: &str) -> Result<(), CliError> {
    let body = if body.is_empty() {
        command.view.empty_json()
    } else {
        body
    };
    serde_json::from_str::<IgnoredAny>(body).map_err(|error| not_understood(&error))?;
    print(&format!("{}\n", escaped_json(body.trim())))
}

/// The change is done, and the response may hold a key that is not shown again: it is printed as it is.
fn report_unreadable(command: &ProjectCommand, body: &str, error: &serde_json::Error) -> CliError {
    let printed = match command.request.method {
        Method::GET => Ok(()),
        _ => print_json(command, body),
    };
    printed.err().unwrap_or_else(|| not_understood(error))
}

/// Says where the response is unexpected, without quoting it: it may hold a key.
fn not_understood(error: &serde_json::Error) -> CliError {
    let (line, column) = (error.line(), error.column());
    CliError::Failed(format!(
        "the broker took the request, and its answer has an unknown form (line {line}, column {column}); \
         is it a broker of this version? see --url"
    ))
}
