//! Turns responses into text for a person.

use std::fmt::Write;

use rest::projects::{
    AuditLine, AuditPage, ChangedProject, Counts, CreatedKey, CreatedProject, GrantRevoked, Granted, Key, Keys,
    NewApiKey, Permission, Project, ProjectInfo, Projects, RevokedKeys, RotatedKeys,
};
use serde::de::DeserializeOwned;

use crate::table::{Table, escaped};

/// Turns a response into text that ends with a line break. An error says that the response has another form.
pub type View = Box<dyn Fn(&str) -> serde_json::Result<String>>;

/// Shows a response of some type.
pub fn view<T: DeserializeOwned>(text: impl Fn(&T) -> String + 'static) -> View {
    Box::new(move |body| serde_json::from_str(body).map(|answer| text(&answer)))
}

/// The keys with the advice to keep them.
fn new_keys(keys: &[NewApiKey]) -> String {
    let mut table = Table::new(&["KEY ID", "API KEY"]);
    for key in keys {
        table.row([key.key_id.as_str(), key.api_key.0.as_str()]);
    }
    let keep = match keys.len() {
        1 => "Keep this key now: it is not shown again.",
        _ => "Keep these keys now: they are not shown again.",
    };
    format!("{table}\n{keep}\n")
}

/// A project that was made, with its first keys.
pub fn created(answer: &CreatedProject) -> String {
    format!("{}\n{}", project(&answer.project), new_keys(&answer.api_keys))
}

/// A project as it is after a change.
pub fn changed(answer: &ChangedProject) -> String {
    project(&answer.project).to_string()
}

/// A project that is gone.
pub fn deleted(id: &str) -> String {
    format!("deleted the project {}\n", escaped(id))
}

/// A line for each project.
pub fn projects(answer: &Projects) -> String {
    if answer.projects.is_empty() {
        return "no projects\n".to_owned();
    }
    let mut table = Table::new(&[
        "ID",
        "NAME",
        "ACTIVE",
        "CROSS-PROJECT",
        "DISCOVERABLE",
        "TAGS",
        "CREATED",
    ]);
    for project in &answer.projects {
        table.row([
            project.project_id.as_str(),
            project.name.as_str(),
            yes_or_no(project.active),
            yes_or_no(project.config.allow_cross_project),
            yes_or_no(project.config.discoverable),
            project.tags.join(", ").as_str(),
            project.created_at.as_str(),
        ]);
    }
    let more = answer.next_cursor.as_ref().map_or_else(String::new, |last| {
        format!("\nThere are more projects: --after {last} shows them.\n")
    });
    format!("{table}{more}")
}

fn project(project: &Project) -> Table {
    let config = &project.config;
    let limits = config.limits.clone().unwrap_or_default();
    Table::of_facts([
        ("id", project.project_id.clone()),
        ("name", project.name.clone()),
        ("description", project.description.clone().unwrap_or_default()),
        ("tags", project.tags.join(", ")),
        ("active", yes_or_no(project.active).to_owned()),
        ("created", project.created_at.clone()),
        ("cross-project", yes_or_no(config.allow_cross_project).to_owned()),
        ("discoverable", yes_or_no(config.discoverable).to_owned()),
        ("max sessions", or_default(limits.max_sessions)),
        ("max protocols", or_default(limits.max_protocols)),
        ("queue capacity", or_default(limits.queue_capacity)),
        ("rate limit", per_minute(limits.rate_limit)),
    ])
}

/// One project, with what it holds if that is known.
pub fn shown(answer: &ProjectInfo) -> String {
    let mut text = project(&answer.project).to_string();
    if let Some(counts) = &answer.counts {
        let _ = write!(text, "\n{}", counted(counts));
    }
    match answer.permissions.as_deref() {
        None => {}
        Some([]) => text.push_str("\nmay send to no other project\n"),
        Some(permissions) => {
            let _ = write!(text, "\n{}", allowed(permissions));
        }
    }
    text
}

fn counted(counts: &Counts) -> Table {
    let mut table = Table::without_headings();
    let sessions = format!("{} ({} active)", counts.sessions, counts.active_sessions);
    table.row(["sessions", sessions.as_str()]);
    table.row(["protocols", counts.protocols.to_string().as_str()]);
    table.row(["dead letters", counts.dead_letters.to_string().as_str()]);
    table.row(["keys", counts.keys.to_string().as_str()]);
    table
}

fn allowed(permissions: &[Permission]) -> Table {
    let mut table = Table::new(&["MAY SEND TO", "PROTOCOLS", "RATE", "GRANTED"]);
    for permission in permissions {
        let protocols = match permission.allowed_protocols.as_slice() {
            [] => "all".to_owned(),
            protocols => protocols.join(", "),
        };
        table.row([
            permission.target_project_id.as_str(),
            protocols.as_str(),
            per_minute(permission.message_rate_limit).as_str(),
            permission.granted_at.as_str(),
        ]);
    }
    table
}

/// A line for each key, without its secret.
pub fn keys(answer: &Keys) -> String {
    if answer.keys.is_empty() {
        return "no keys\n".to_owned();
    }
    let mut table = Table::new(&[
        "KEY ID",
        "LABEL",
        "SCOPE",
        "PERSON",
        "STATUS",
        "CREATED",
        "EXPIRES",
        "LAST USED",
    ]);
    for key in &answer.keys {
        table.row([
            key.key_id.as_str(),
            or_empty(key.label.as_ref()),
            key.scope.as_str(),
            person(key).as_str(),
            key.status.as_str(),
            key.created_at.as_str(),
            key.expires_at.as_deref().unwrap_or("never"),
            key.last_used_at.as_deref().unwrap_or("never"),
        ]);
    }
    table.to_string()
}

/// The person who holds a key, with their roles: `mara (dba, oncall)`.
fn person(key: &Key) -> String {
    let name = key.human.clone().unwrap_or_default();
    match key.roles.as_deref().unwrap_or_default() {
        [] => name,
        roles => format!("{name} ({})", roles.join(", ")),
    }
}

/// A new key, with its secret.
pub fn key_created(answer: &CreatedKey) -> String {
    let key = &answer.key;
    let mut table = Table::without_headings();
    table.row(["key id", key.key_id.as_str()]);
    table.row(["label", or_empty(key.label.as_ref())]);
    table.row(["scope", key.scope.as_str()]);
    if key.human.is_some() {
        table.row(["person", person(key).as_str()]);
    }
    if let Some(tools) = &key.tools {
        table.row(["tools", tools.as_str()]);
    }
    table.row(["expires", key.expires_at.as_deref().unwrap_or("never")]);
    table.row(["api key", answer.api_key.0.as_str()]);
    format!("{table}\nKeep this key now: it is not shown again.\n")
}

/// The keys that no longer work.
pub fn revoked(answer: &RevokedKeys) -> String {
    let ended = &answer.revoked;
    if ended.is_empty() {
        return "no key was revoked\n".to_owned();
    }
    let mut table = Table::new(&["REVOKED", "AT"]);
    for key in ended {
        table.row([key.key_id.as_str(), key.at.as_str()]);
    }
    table.to_string()
}

/// The new keys, and how long the old ones still work.
pub fn rotated(answer: &RotatedKeys) -> String {
    let mut text = new_keys(&answer.api_keys);
    if !answer.revoked.is_empty() {
        let mut table = Table::new(&["OLD KEY", "GOOD UNTIL"]);
        for key in &answer.revoked {
            table.row([key.key_id.as_str(), key.at.as_str()]);
        }
        let _ = write!(text, "\n{table}");
    }
    text
}

/// That a project may send to another one.
pub fn granted(id: &str, target: &str, answer: &Granted) -> String {
    let terms = allowed(std::slice::from_ref(&answer.permission));
    let mut text = format!("{} may send to {}\n\n{terms}", escaped(id), escaped(target));
    for warning in &answer.warnings {
        let _ = write!(text, "\nwarning: {}\n", escaped(warning));
    }
    text
}

/// That a project may no longer send to another one.
pub fn grant_taken(id: &str, target: &str, answer: &GrantRevoked) -> String {
    let (id, target) = (escaped(id), escaped(target));
    if answer.revoked {
        format!("{id} may no longer send to {target}\n")
    } else {
        format!("{id} had no grant to send to {target}\n")
    }
}

/// A line for each entry of the audit.
pub fn audit(answer: &AuditPage) -> String {
    if answer.entries.is_empty() {
        return "no entries\n".to_owned();
    }
    let mut table = Table::new(&["AT", "ACTOR", "FROM", "ACTION", "PROJECT", "TARGET", "OUTCOME"]);
    for entry in &answer.entries {
        table.row([
            entry.at.as_str(),
            entry.actor.as_str(),
            or_empty(entry.address.as_ref()),
            entry.action.as_str(),
            or_empty(entry.project.as_ref()),
            or_empty(entry.target.as_ref()),
            outcome(entry).as_str(),
        ]);
    }
    let more = match answer.next_cursor {
        Some(_) => "\nThere are older entries: --limit shows more.\n",
        None => "",
    };
    format!("{table}{more}")
}

fn outcome(entry: &AuditLine) -> String {
    match &entry.code {
        Some(code) => format!("{} ({code})", entry.outcome),
        None => entry.outcome.clone(),
    }
}

fn yes_or_no(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn or_default(limit: Option<usize>) -> String {
    limit.map_or_else(|| "default".to_owned(), |limit| limit.to_string())
}

fn or_empty(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}

fn per_minute(rate: u32) -> String {
    match rate {
        0 => "no limit".to_owned(),
        rate => format!("{rate} per minute"),
    }
}
