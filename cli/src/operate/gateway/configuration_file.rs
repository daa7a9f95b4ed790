//! The configuration file of a broker, whose backends commands change: adds a table to its text, and takes one out.
//! Everything else stays as it is, comments and order too.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use actors::model::BackendName;
use serde_json::Value;

use crate::{
    agent_clients::FileFormat,
    client_file,
    edited_file::{self, Edit, PRIVATE},
    error::CliError,
};
use common::user_broker;

/// The table of the backends.
const BACKENDS: &str = "backends";
/// Why a text is left to a person.
const UNUSUAL: &str = "it is written in a way that only an editor can change safely";

/// The flag that names the file.
#[derive(Debug, clap::Args)]
pub struct To {
    /// Configuration file to write [default: the one of the broker of this user].
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
}

impl To {
    /// The file: the given one, or that of the broker of this user.
    ///
    /// # Errors
    /// [`CliError::Failed`] when no folder of the user is known.
    pub fn path(&self) -> Result<PathBuf, CliError> {
        let no_folder = || {
            let line = "neither HOME nor XDG_CONFIG_HOME names a folder: name the file with --to";
            CliError::Failed(line.to_owned())
        };
        match &self.to {
            Some(file) => Ok(std::path::absolute(file).unwrap_or_else(|_| file.clone())),
            None => user_broker::config_file_of_user().ok_or_else(no_folder),
        }
    }
}

/// Edits the file, which may be missing. A new one is readable for its user alone, because it may have secrets.
///
/// # Errors
/// It cannot be read or written, or `decide` refuses: one line for the user.
pub fn edit<T>(file: &Path, decide: impl Fn(&str) -> Result<Edit<T>, String>) -> Result<T, CliError> {
    let decided = |text: Option<&str>| {
        Ok(match decide(text.unwrap_or_default()) {
            Ok(Edit { text, result }) => Edit {
                text,
                result: Ok(result),
            },
            Err(line) => Edit {
                text: None,
                result: Err(line),
            },
        })
    };
    let edited = edited_file::edit(file, PRIVATE, true, decided);
    let edited = edited
        .map_err(|reason| unusable(file, &reason))
        .and_then(|result| result);
    edited.map_err(CliError::Failed)
}

/// What a user has to know of a broker that runs, once a file has other backends.
pub fn note_on_brokers(is_new: bool) -> &'static str {
    if is_new {
        "a broker of this user that runs already was started without this file: mcp-broker restart starts it with the file"
    } else {
        "a broker that was started with this file has it now"
    }
}

/// One line for the user about a file that cannot be used.
pub fn unusable(file: &Path, reason: &str) -> String {
    format!("{} cannot be used: {reason}", file.display())
}

/// The names of the backends of the project `default` in a text.
///
/// # Errors
/// It is not TOML.
pub fn names_in(text: &str) -> Result<BTreeSet<String>, String> {
    let parsed = client_file::parse(FileFormat::Toml, text)?;
    let backends = parsed[BACKENDS].as_object();
    Ok(backends.into_iter().flatten().map(|(name, _)| name.clone()).collect())
}

/// The text with the table of a backend that it does not have, at its end.
///
/// # Errors
/// Why the text cannot be changed.
pub fn with_table(text: &str, name: &BackendName, table: &str) -> Result<String, String> {
    let before = client_file::parse(FileFormat::Toml, text)?;
    let separator = if text.is_empty() { "" } else { "\n" };
    let new = format!("{separator}{table}");
    let new = if text.contains("\r\n") {
        new.replace('\n', "\r\n")
    } else {
        new
    };
    let new = format!("{text}{new}");
    let mut after = client_file::parse(FileFormat::Toml, &new).map_err(|_| UNUSUAL)?;
    let added = after.get_mut(BACKENDS).and_then(Value::as_object_mut);
    let is_added = added.is_some_and(|backends| backends.remove(name.as_str()).is_some());
    let is_rest_kept = is_same_without(&before, &after);
    (is_added && is_rest_kept)
        .then_some(new)
        .ok_or_else(|| UNUSUAL.to_owned())
}

/// The text without the tables of a backend; `None` if it has no such backend.
///
/// # Errors
/// Why the text cannot be changed.
pub fn without_table(text: &str, name: &str) -> Result<Option<String>, String> {
    let mut expected = client_file::parse(FileFormat::Toml, text)?;
    let backends = expected.get_mut(BACKENDS).and_then(Value::as_object_mut);
    if backends.is_none_or(|backends| backends.remove(name).is_none()) {
        return Ok(None);
    }
    let new = without_lines(text, name);
    let after = client_file::parse(FileFormat::Toml, &new).map_err(|_| UNUSUAL)?;
    if is_same_without(&after, &expected) {
        Ok(Some(new))
    } else {
        Err(UNUSUAL.to_owned())
    }
}

/// Whether two files are the same, where an empty table of backends counts as none.
fn is_same_without(one: &Value, other: &Value) -> bool {
    let filled = |file: &Value| {
        let mut file = file.clone();
        if file[BACKENDS].as_object().is_some_and(serde_json::Map::is_empty)
            && let Some(file) = file.as_object_mut()
        {
            file.remove(BACKENDS);
        }
        file
    };
    filled(one) == filled(other)
}

/// The lines outside the tables of a backend. What is a header is guessed from its line alone; the caller checks the result.
fn without_lines(text: &str, name: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let headers: Vec<(usize, Vec<String>)> = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((at, header(line)?)))
        .collect();
    let is_own = |keys: &[String]| matches!(keys, [first, second, ..] if first == BACKENDS && second == name);
    let (mut kept, mut done) = (String::new(), 0);
    for (index, (start, keys)) in headers.iter().enumerate() {
        if !is_own(keys) {
            continue;
        }
        let end = match headers.get(index + 1) {
            Some((next, keys)) if is_own(keys) => *next,
            next => end_of_table(&lines, *start, next.map(|(next, _)| *next)),
        };
        // The empty line before the table belongs to it.
        let from = if *start > done && is_blank(lines[*start - 1]) {
            *start - 1
        } else {
            *start
        };
        kept.extend(lines[done..from].iter().copied());
        done = end;
    }
    kept.extend(lines[done..].iter().copied());
    kept
}

/// Where the table that begins at a line ends. Comments directly before the next header belong to the next table, and
/// those behind an empty line to no table.
fn end_of_table(lines: &[&str], start: usize, next: Option<usize>) -> usize {
    let is_comment = |line: &str| line.trim_start().starts_with('#');
    let mut end = next.unwrap_or(lines.len());
    let mut is_before_header = next.is_some();
    loop {
        let mut comments = end;
        while comments > start + 1 && is_comment(lines[comments - 1]) {
            comments -= 1;
        }
        if comments < end && (is_before_header || is_blank(lines[comments - 1])) {
            end = comments;
        }
        is_before_header = false;
        let before = end;
        while end > start + 1 && is_blank(lines[end - 1]) {
            end -= 1;
        }
        if end == before {
            return end;
        }
    }
}

fn is_blank(line: &str) -> bool {
    line.trim().is_empty()
}

/// The keys of a line that is a header.
fn header(line: &str) -> Option<Vec<String>> {
    let line = line.trim();
    if !line.starts_with('[') {
        return None;
    }
    let mut below = client_file::parse(FileFormat::Toml, line).ok()?;
    let mut keys = Vec::new();
    loop {
        if let Value::Array(tables) = below {
            below = tables.into_iter().next()?;
        }
        match below {
            Value::Object(table) if !table.is_empty() => {
                let (key, value) = table.into_iter().next()?;
                keys.push(key);
                below = value;
            }
            _ => return Some(keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "[backends.new]\ncommand = \"x\"\n";

    fn new() -> BackendName {
        BackendName::parse("new").unwrap()
    }

    #[test]
    fn a_table_is_added_at_the_end_and_taken_out_again() {
        for text in [
            "",
            "port = 1\n",
            "# mine\n\n[backends.a] # one\ncommand = 'x'\n\n# of nobody\n",
            "[projects.p.backends.new]\ncommand = 'x'\n",
            "[backends]\n",
            "a = 1\r\n[backends.b]\r\ncommand = 'x'\r\n",
        ] {
            let with = with_table(text, &new(), TABLE).unwrap();
            assert!(
                with.starts_with(text) && names_in(&with).unwrap().contains("new"),
                "{with}"
            );
            assert_eq!(with.matches('\r').count() > 0, text.contains('\r'));
            assert_eq!(without_table(&with, "new").unwrap().as_deref(), Some(text));
        }
        let open = with_table("port = 1", &new(), TABLE).unwrap();
        assert_eq!(open, format!("port = 1\n{TABLE}"));
    }

    #[test]
    fn all_tables_of_a_backend_are_taken_out_and_comments_of_others_stay() {
        let text = "\
# The ports.
port = 1

# This one goes.
[backends.a]
command = \"\"\"
[not a header\"\"\"
# unknown = 1

[backends.a.tools]
deny = [
  'x',
]

# This one stays.
[backends.b]
command = 'y'

[backends.'a'.limits]
memory = '1GiB'
# the end of a

# the end of all
";
        let expected = "\
# The ports.
port = 1

# This one goes.

# This one stays.
[backends.b]
command = 'y'

# the end of all
";
        assert_eq!(without_table(text, "a").unwrap().as_deref(), Some(expected));
        assert_eq!(without_table(text, "c").unwrap(), None);
        assert_eq!(without_table("backends = 1", "c").unwrap(), None);
    }

    #[test]
    fn what_is_written_in_another_way_is_left_to_a_person() {
        for text in [
            "backends = { a = { command = 'x' } }\n",
            "backends.a.command = 'x'\n",
            "[backends]\na.command = 'x'\n",
            "[backends]\na = { command = 'x' }\n",
            "[backends.a]\ncommand = \"\"\"\n[backends.b]\n\"\"\"\n",
        ] {
            assert_eq!(without_table(text, "a").unwrap_err(), UNUSUAL, "{text}");
        }
        let text = "backends = { a = { command = 'x' } }\n";
        assert_eq!(with_table(text, &new(), TABLE).unwrap_err(), UNUSUAL);
        for text in ["a = ", "[backends"] {
            assert!(
                with_table(text, &new(), TABLE).unwrap_err().contains("line 1"),
                "{text}"
            );
            assert!(without_table(text, "a").unwrap_err().contains("line 1"), "{text}");
        }
    }
}
