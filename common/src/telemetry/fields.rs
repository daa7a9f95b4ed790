//! The names in the log. They are stable: a name keeps its meaning, and a new one gets a line here. A test compares the
//! list with all events in the sources and with docs/logs.md.

/// The id of the trace that an event belongs to.
pub const TRACE_ID: &str = "trace_id";
/// The id of the span within its trace.
pub const SPAN_ID: &str = "span_id";

/// The members that events of every kind have, and what they mean.
pub const COMMON: &[(&str, &str)] = &[
    ("timestamp", "when it happened: RFC 3339, UTC"),
    ("level", "`ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`"),
    ("target", "the module that logs; `audit` for the audit"),
    ("message", "what happened; the text may change between versions"),
    (
        TRACE_ID,
        "the trace that the event belongs to, 32 hexadecimal digits; absent outside of a trace",
    ),
    (SPAN_ID, "the span in that trace, 16 hexadecimal digits"),
    ("span", "at level debug: method, path and status of the HTTP request"),
    (
        "spans",
        "at level debug: `span` with those around it, from the outermost",
    ),
];

/// The fields of single events, and what they mean.
pub const FIELDS: &[(&str, &str)] = &[
    ("action", "what was done or refused, such as `key.rotate`"),
    (
        "actor",
        "who did it: the id of a key or the subject of a token, never the secret",
    ),
    ("address", "the address of the peer"),
    ("allowed", "what a setting allows"),
    ("ambiguous", "how many names keep the name of their backend"),
    ("backend", "the name of a backend of the gateway"),
    ("block", "the number of a block of the event log"),
    ("bytes_max", "a bound, in bytes"),
    ("capacity", "messages that an inbox holds at most"),
    ("changed", "whether a new configuration has other backends"),
    ("child", "the actor that ended"),
    ("client", "the client's name, as it says itself"),
    ("client_version", "the client's version, as it says itself"),
    ("closed", "HTTP sessions that were closed"),
    ("code", "the code of an error, as callers get it"),
    ("connections", "open connections"),
    ("connections_max", "the setting of that name"),
    ("dead", "messages that became dead letters"),
    ("detail", "the reason why a client did not take a wake"),
    (
        "dropped",
        "what was given up: dead letters, results of idempotency keys, or spans",
    ),
    ("error", "why it failed"),
    ("file", "a file that a setting names"),
    ("folder", "a folder of the storage on disk"),
    ("from", "the lower version of a lens"),
    ("has_upgrade", "whether a newer version of the broker waits to start"),
    ("http_status", "the status of the answer to a request"),
    ("idle_shutdown", "the setting of that name"),
    ("is_kept", "whether the storage has taken the lists of a backend"),
    ("keys", "keys of the issuer that are known"),
    ("kind", "the kind of an actor, such as `session`"),
    (
        "left_out",
        "refusals since the last recorded one that were only counted",
    ),
    ("limit", "a bound that was reached, in the unit of the message"),
    ("lost", "records of the event log that were not stored"),
    ("max", "a bound, in the unit of the message"),
    ("message_id", "the id of a message"),
    ("messages", "the number of messages concerned"),
    ("method", "the method of a request"),
    ("name", "the name of a session, a protocol or an actor"),
    ("names", "the first names concerned: ids of projects, names of tools"),
    ("on", "what an action concerns: a key's id, a project, a tool"),
    ("outcome", "`done` or `refused`"),
    ("path", "the path of a request"),
    ("pause", "time until the next attempt"),
    ("place", "file and line of a panic"),
    ("project", "the id of a project"),
    ("projects", "the number of projects concerned"),
    ("queue_len", "messages that wait in an inbox"),
    ("queue_len_max", "spans that wait for the exporter at most"),
    ("reason", "why, in words"),
    ("replica", "the address or the id of another replica"),
    ("restarts", "restarts of an actor within a minute"),
    ("resumed", "whether the session existed before"),
    ("rung", "the way in which an agent was to be woken"),
    ("session", "the id of a session"),
    ("state", "the state of a backend, such as `ready`"),
    ("status", "the presence of a session"),
    ("task", "a background task"),
    ("to", "the higher version of a lens"),
    ("total", "how many were given up since the start"),
    ("uid", "the user id of a local process"),
    ("variable", "an environment variable"),
    ("version", "the version of a protocol"),
    (
        "webhook",
        "the target that receives questions: the host of a webhook, or ntfy",
    ),
];

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fmt::Write as _,
        fs,
        path::{Path, PathBuf},
    };

    use super::*;

    fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                into.push(path);
            }
        }
    }

    /// The top-level parts of the arguments of a macro, from behind its opening parenthesis.
    fn arguments(text: &str) -> Vec<String> {
        let (mut parts, mut depth, mut in_string) = (vec![String::new()], 0, false);
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' if in_string => drop(chars.next()),
                '"' => in_string = !in_string,
                _ if in_string => {}
                ')' if depth == 0 => break,
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' => depth -= 1,
                ',' if depth == 0 => {
                    parts.push(String::new());
                    continue;
                }
                _ => {}
            }
            parts.last_mut().unwrap().push(c);
        }
        parts
    }

    fn field_of(argument: &str) -> Option<&str> {
        let argument = argument.trim();
        if argument.is_empty() || argument.starts_with('"') || argument.starts_with("target:") {
            return None;
        }
        Some(argument.split(" =").next()?.trim_start_matches(['%', '?']))
    }

    fn fields_in(source: &str) -> BTreeSet<String> {
        let code = source.split("#[cfg(test)]").next().unwrap();
        let macros = ["trace", "debug", "info", "warn", "error"].map(|level| format!("tracing::{level}!("));
        let calls = macros.iter().flat_map(|name| code.split(name.as_str()).skip(1));
        let arguments: Vec<_> = calls.flat_map(arguments).collect();
        arguments
            .iter()
            .filter_map(|argument| field_of(argument))
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn the_fields_of_an_event_are_found() {
        let source = "tracing::warn!(%error, a = b(1, \"x,\"), target: \"t\", c.d = ?e, \"text, {x}\");";
        assert_eq!(fields_in(source).into_iter().collect::<Vec<_>>(), ["a", "c.d", "error"]);
    }

    #[test]
    fn every_field_of_the_log_is_in_the_list() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut files = Vec::new();
        for package in ["", "actors", "api", "cli", "common", "front", "storage"] {
            sources(&root.join(package).join("src"), &mut files);
        }
        let mut used = BTreeSet::new();
        for file in files {
            used.append(&mut fields_in(&fs::read_to_string(file).unwrap()));
        }
        let listed: BTreeSet<_> = FIELDS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(used, listed, "FIELDS differs from the events of the sources");
        let is_common = |name: &&(&str, &str)| COMMON.iter().any(|(common, _)| *common == name.0);
        assert_eq!(
            FIELDS.iter().find(is_common),
            None,
            "a field would hide a member that all events have"
        );
    }

    #[test]
    fn the_list_is_in_the_documentation() {
        let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/logs.md")).unwrap();
        for (title, list) in [("member", COMMON), ("field", FIELDS)] {
            let mut table = format!("| {title} | meaning |\n|---|---|\n");
            for (name, meaning) in list {
                let _ = writeln!(table, "| `{name}` | {meaning} |");
            }
            assert!(page.contains(&table), "docs/logs.md needs this table:\n{table}");
        }
    }
}
