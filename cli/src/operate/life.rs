//! The life of one message: its envelope, and for each recipient what happened and when.

use rest::messages::{LifeChange, MessageLife, RecipientLife};
use serde_json::value::RawValue;
use std::fmt::Write as _;

use super::job::Context;
use super::lookup::whole_path;
use super::message::recipient as recipient_of;
use super::names::Names;
use super::texts::status_style;
use crate::client::{ApiRequest, parameter, parsed, percent_encoded, with_query};
use crate::error::CliError;
use crate::output::{Written, json_line, print, write};
use crate::short::exact_time;
use crate::table::{Table, escaped_json};

/// Recipients of a broadcast whose lives are shown.
const RECIPIENTS_MAX: usize = 1000;

/// Shows the life of a message.
///
/// # Errors
/// The broker refuses, or the output cannot be written.
pub fn show(context: &Context, message: &str, with_payload: bool) -> Result<(), CliError> {
    let include = with_payload.then(|| "include=payload".to_owned());
    let path = format!("/api/v1/messages/{}", percent_encoded(message));
    let path = with_query(&whole_path(&context.client, &path)?, [include]);
    let mut life: Option<MessageLife> = None;
    let mut cursor: Option<String> = None;
    loop {
        let asked = ApiRequest::get(with_query(&path, [parameter("cursor", cursor.as_ref())]));
        let body = context.client.send(&asked)?;
        let page: MessageLife = parsed(&body)?;
        cursor.clone_from(&page.next_cursor);
        if context.output.json && write(&json_line(&parsed::<Box<RawValue>>(&body)?))? == Written::Closed {
            return Ok(());
        }
        match &mut life {
            None => life = Some(page),
            Some(life) if !context.output.json => life.recipients.extend(page.recipients),
            Some(_) => {}
        }
        let is_enough = !context.output.json
            && life
                .as_ref()
                .is_some_and(|life| life.recipients.len() >= RECIPIENTS_MAX);
        if cursor.is_none() || is_enough {
            break;
        }
    }
    match life {
        Some(life) if !context.output.json => print(&text(context, &life, cursor.is_some())),
        _ => Ok(()),
    }
}

fn text(context: &Context, life: &MessageLife, has_more: bool) -> String {
    let names = Names::ask(&context.client);
    let mut text = context.output.table(&envelope(context, life, &names));
    if let Some(payload) = life.message.as_ref().and_then(|message| message.payload.as_ref()) {
        let _ = writeln!(text, "\n{}", escaped_json(&format!("{payload:#}")));
    }
    let mut table = Table::new(&["AT", "RECIPIENT", "EVENT", "DETAIL"]);
    let mut events: Vec<(&str, &RecipientLife, &LifeChange)> = Vec::new();
    for recipient in &life.recipients {
        events.extend(
            recipient
                .events
                .iter()
                .map(|change| (change.at.as_str(), recipient, change)),
        );
    }
    events.sort_by_key(|(at, _, _)| *at);
    for (at, recipient, change) in events {
        let plain = anstyle::Style::new();
        table.styled_row([
            (exact_time(at, context.output.utc).as_str(), plain),
            (recipient.label(), plain),
            (change.event.as_str(), status_style(&change.event)),
            (change.detail().as_str(), plain),
        ]);
    }
    let _ = write!(text, "\n{}", context.output.table(&table));
    if let Some(outcomes) = outcomes(life) {
        let _ = write!(text, "\n{}", context.output.table(&outcomes));
    }
    if life.incomplete {
        text.push_str(
            "\nThe history after this message is too long to be searched to its end: later events may be missing.\n",
        );
    }
    if has_more {
        text.push_str("\nThere are more recipients: --json shows all of them.\n");
    }
    text
}

/// What recipients said of the message when they acknowledged it, if any did.
fn outcomes(life: &MessageLife) -> Option<Table> {
    let mut table = Table::new(&["RECIPIENT", "OUTCOME", "NOTE"]);
    let mut has_any = false;
    for recipient in &life.recipients {
        if let Some(outcome) = &recipient.outcome {
            table.row([recipient.label(), outcome, recipient.note.as_deref().unwrap_or("-")]);
            has_any = true;
        }
    }
    has_any.then_some(table)
}

/// The envelope as names and values.
fn envelope(context: &Context, life: &MessageLife, names: &Names) -> Table {
    let mut table = Table::of_facts([("message", &life.message_id)]);
    let Some(message) = &life.message else {
        table.row(["envelope", "forgotten: only the last status of each recipient is known"]);
        for recipient in &life.recipients {
            table.row([recipient.label(), recipient.status.as_deref().unwrap_or_default()]);
        }
        return table;
    };
    let headers = &message.headers;
    let facts = [
        ("accepted", life.accepted_at.as_ref().map(|at| context.output.time(at))),
        ("from", Some(message.sender().to_owned())),
        ("to", Some(recipient_of(message, names).to_owned())),
        ("protocol", Some(message.protocol())),
        ("priority", headers.priority.clone()),
        ("ttl", headers.ttl_seconds.map(|ttl| format!("{ttl} s"))),
        ("subject", headers.subject.clone()),
        ("thread", headers.thread_id.clone()),
        ("correlation id", headers.correlation_id.clone()),
        ("reply to", headers.reply_to.clone()),
    ];
    for (name, value) in facts.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?))) {
        table.row([name, value.as_str()]);
    }
    table
}
