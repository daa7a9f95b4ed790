//! `project`: sends one request to a broker and shows the response to a person or a script.
//!
//! `request` has the arguments and turns them into a request, `views` turns the response into text. Only [`Project::run`] does I/O.

mod request;
mod views;

use std::process::ExitCode;

use serde::de::IgnoredAny;
use ureq::http::Method;

pub use request::Project;
use request::ProjectCommand;

use super::call::{Call, Run, done};
use super::client;
use super::error::CliError;
use super::output::print;
use super::question::confirm;
use super::table::escaped_json;
use super::usage_errors::{redact_keys, refused};

impl Run for Project {
    /// Sends the request of a command and prints the response.
    fn run(self, call: &Call<'_>) -> Result<ExitCode, CliError> {
        let command = self.read(call.env).map_err(refused)?;
        if let Some(question) = &command.question {
            confirm(question)?;
        }
        let access = command.access.clone().or_broker_of_user().map_err(CliError::Failed)?;
        let body = client::send(&access, &command.request);
        let body = body.map_err(|line| CliError::Failed(redact_keys(&line)))?;
        if command.json {
            return done(print_json(&command, &body));
        }
        match (command.view)(&body) {
            Ok(text) => done(print(&text)),
            Err(error) => Err(report_unreadable(&command, &body, &error)),
        }
    }
}

/// Prints the response as the broker wrote it: a script may use fields that this client does not know.
fn print_json(command: &ProjectCommand, body: &str) -> Result<(), CliError> {
    // A script always reads an object.
    let body = match command.request.method {
        _ if !body.is_empty() => body,
        Method::DELETE => r#"{"deleted":true}"#,
        _ => "{}",
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
