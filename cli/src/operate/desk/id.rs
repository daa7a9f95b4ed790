//! The question that a command is about.

use clap::{Arg, ArgMatches};

use crate::client::percent_encoded;
use crate::flags::{given, id};

/// The required argument `ID`: a question.
pub fn question_id() -> Arg {
    Arg::new("id")
        .value_name("ID")
        .required(true)
        .value_parser(id)
        .help("Id of the question, which desk list shows")
}

/// The path of the question that the arguments name.
pub fn question_path(matches: &ArgMatches) -> String {
    let id = given(matches, "id").unwrap_or_default();
    format!("/api/v1/questions/{}", percent_encoded(&id))
}
