//! `dead-letters`: lists messages that were given up, or sends them again.

use clap::{Args, Subcommand};

use super::dead_letter::{Filters, PAGE_LEN_MAX};
use super::job::{Context, Job};
use super::lists::{self, LIMIT_MAX, Pages};
use super::lookup::whole_path;
use super::redrive::Redrive;
use crate::client::with_query;
use crate::error::CliError;
use crate::flags::whole;
use crate::output::Output;
use crate::short::prefix;
use crate::table::Table;
use rest::messages::DeadLetter;

/// List the dead letters, oldest first, or send them again.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = false)]
pub struct DeadLetters {
    #[command(flatten)]
    filters: Filters,
    /// Also show the payloads, which requires the scope admin.
    #[arg(long)]
    payload: bool,
    /// The most dead letters to list.
    #[arg(long, value_name = "N", default_value = "100", value_parser = whole(1..=LIMIT_MAX))]
    limit: u32,
    #[command(subcommand)]
    below: Option<Below>,
}

#[derive(Debug, Subcommand)]
enum Below {
    Redrive(Redrive),
}

impl Job for DeadLetters {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        if let Some(Below::Redrive(redrive)) = &self.below {
            return redrive.run(context);
        }
        let include = self.payload.then(|| "include=payload".to_owned());
        let path = whole_path(&context.client, &with_query(&self.filters.path(), [include]))?;
        let pages = Pages::new(&context.client, path, "dead_letters", PAGE_LEN_MAX, self.limit as usize);
        lists::show(context, pages, "dead letters", |letters| {
            table(&context.output, letters, self.payload)
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
