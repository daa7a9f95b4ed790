//! `dead-letters`: lists messages that were given up, or sends them again.

use clap::{ArgMatches, Command};

use super::dead_letter::{self, PAGE_LEN_MAX};
use super::job::{Context, Job};
use super::lists::{self, LIMIT_MAX, Pages};
use super::lookup::whole_path;
use super::redrive;
use crate::client::with_query;
use crate::error::CliError;
use crate::flags::{given_number, limit, switch};
use crate::output::Output;
use crate::short::prefix;
use crate::table::Table;
use rest::messages::DeadLetter;

/// The name of the command.
pub const NAME: &str = "dead-letters";

/// The command with its help.
pub fn command() -> Command {
    Command::new(NAME)
        .about("List the dead letters, oldest first, or send them again")
        .args(dead_letter::filters())
        .arg(switch(
            "payload",
            "Also show the payloads, which requires the scope admin",
        ))
        .arg(limit(LIMIT_MAX, "100", "The most dead letters to list"))
        .subcommand(redrive::command())
        .args_conflicts_with_subcommands(false)
}

#[derive(Debug)]
struct DeadLetters {
    path: String,
    limit: usize,
    with_payload: bool,
}

/// Reads the arguments.
pub fn read(matches: &ArgMatches) -> Box<dyn Job> {
    if let Some((_, below)) = matches.subcommand() {
        return redrive::read(below);
    }
    let with_payload = matches.get_flag("payload");
    let include = with_payload.then(|| "include=payload".to_owned());
    Box::new(DeadLetters {
        path: with_query(&dead_letter::path(matches), [include]),
        limit: given_number(matches, "limit").unwrap_or(LIMIT_MAX) as usize,
        with_payload,
    })
}

impl Job for DeadLetters {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let pages = Pages::new(
            &context.client,
            whole_path(&context.client, &self.path)?,
            "dead_letters",
            PAGE_LEN_MAX,
            self.limit,
        );
        lists::show(context, pages, "dead letters", |letters| {
            table(&context.output, letters, self.with_payload)
        })
        .map(drop)
    }
}

fn table(output: &Output, letters: &[DeadLetter], with_payload: bool) -> Table {
    let len = output.id_len(letters.iter().map(|letter| letter.message.message_id.as_str()));
    let mut headings = vec![
        output.age_heading(),
        "REASON",
        "FROM",
        "TO",
        "PROTOCOL",
        "DELIVERIES",
        "MESSAGE",
    ];
    if with_payload {
        headings.push("PAYLOAD");
    }
    let mut table = Table::new(&headings);
    for letter in letters {
        let message = &letter.message;
        let mut cells = vec![
            output.age(&letter.at),
            letter.reason.clone(),
            message.sender().to_owned(),
            letter.recipient().to_owned(),
            message.protocol(),
            letter.deliveries.to_string(),
            prefix(&message.message_id, len).to_owned(),
        ];
        if with_payload {
            cells.push(message.payload.as_ref().map_or_else(String::new, ToString::to_string));
        }
        table.row(cells.iter().map(String::as_str));
    }
    table
}
