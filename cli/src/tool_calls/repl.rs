//! `repl`: a prompt that calls tools of a broker, or the same for lines from a pipe.

use std::fmt::Write;
use std::fs;
use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use serde_json::Value;
use serde_json::value::RawValue;

use super::arguments;
use super::caller::{Caller, Target, Tool};
use super::complete::{COMMANDS, candidates};
use crate::error::CliError;
use crate::flags::CALL_TIMEOUT;
use crate::output::{Written, json_line, write};
use crate::table::{Table, escaped, escaped_json};
use common::exit;
use common::user_broker::{LocalPaths, RequestError};

/// The file of the earlier lines, in the state folder of the broker.
const HISTORY_FILE: &str = "repl-history";
/// Most lines that are kept.
const HISTORY_LEN_MAX: usize = 1000;
/// The longest line, in bytes.
const LINE_LEN_MAX: usize = 4 << 20;
/// The form of the lines, for the help.
const FORM: &str = "\
TOOL {\"key\": \"value\"}     call a tool with its arguments as one JSON object
TOOL key=value ...        the same; a value is text, a number, true, false, null or JSON, and
                          quotes hold text together: subject=\"two words\" payload={\"a\": 1}
                          dots make objects: payload.text=hi
| who | `TOOL` | `{...}` | a row of a table in Markdown calls its tool
# ...                     a comment
";

/// Runs lines until the user or the pipe ends. The exit code says whether all lines of a pipe succeeded.
///
/// # Errors
/// The broker does not run.
pub fn run(target: Target) -> Result<ExitCode, CliError> {
    let stdin = std::io::stdin();
    let is_terminal = stdin.is_terminal();
    let prompt = Prompt {
        caller: Some(Caller::connect(&target)?),
        is_terminal,
        session: None,
        calls: 0,
        since: Instant::now(),
        target,
    };
    if is_terminal {
        prompt.run_on_terminal()?;
        return Ok(ExitCode::SUCCESS);
    }
    let all_done = prompt.run_on_pipe(&mut stdin.lock())?;
    Ok(ExitCode::from(if all_done { 0 } else { exit::FAILED }))
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Done,
    Failed,
    Exit,
}

struct Prompt {
    target: Target,
    /// `None` after the broker has closed the connection.
    caller: Option<Caller>,
    is_terminal: bool,
    /// What the last `register_session` of this connection returned.
    session: Option<Value>,
    calls: u64,
    since: Instant,
}

impl Prompt {
    fn run_on_pipe(mut self, input: &mut impl BufRead) -> Result<bool, CliError> {
        let mut history = Vec::new();
        let mut all_done = true;
        loop {
            let mut line = String::new();
            let read = input.by_ref().take(LINE_LEN_MAX as u64 + 1).read_line(&mut line);
            match read {
                Ok(0) => return Ok(all_done),
                Ok(_) if line.len() > LINE_LEN_MAX => {
                    return Err(CliError::Failed(format!(
                        "a line has more than {} MiB",
                        LINE_LEN_MAX >> 20
                    )));
                }
                Ok(_) => {}
                Err(error) => return Err(CliError::Failed(format!("stdin cannot be read: {error}"))),
            }
            if history.len() < HISTORY_LEN_MAX {
                history.push(line.trim().to_owned());
            }
            match self.run_line(line.trim(), &history)? {
                Outcome::Done => {}
                Outcome::Failed if self.caller.is_none() => return Err(self.target.not_running()),
                Outcome::Failed => all_done = false,
                Outcome::Exit => return Ok(all_done),
            }
        }
    }

    fn run_on_terminal(mut self) -> Result<(), CliError> {
        let mut editor = Self::editor()?;
        let file = self.history_file();
        if let Some(file) = &file {
            let _ = editor.load_history(file);
        }
        let prompt = format!("{}> ", self.target);
        loop {
            let tools = self.caller.as_ref().map(|caller| caller.tools().to_vec());
            if let Some(helper) = editor.helper_mut() {
                helper.tools = tools.unwrap_or_default();
            }
            let line = match editor.readline(&prompt) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => return Err(CliError::Failed(format!("the terminal cannot be read: {error}"))),
            };
            let line = line.trim();
            if !line.is_empty() {
                let _ = editor.add_history_entry(line);
                if let Some(file) = &file {
                    // The library keeps the file at mode 0600.
                    let _ = editor.save_history(file);
                }
            }
            let earlier: Vec<String> = editor.history().iter().cloned().collect();
            if self.run_line(line, &earlier)? == Outcome::Exit {
                return Ok(());
            }
        }
    }

    fn editor() -> Result<Editor<Tools, FileHistory>, CliError> {
        let failed = |error: ReadlineError| CliError::Failed(format!("the terminal cannot be used: {error}"));
        let config = Config::builder()
            .max_history_size(HISTORY_LEN_MAX)
            .map_err(failed)?
            .completion_type(CompletionType::List)
            .build();
        let mut editor = Editor::with_config(config).map_err(failed)?;
        editor.set_helper(Some(Tools { tools: Vec::new() }));
        Ok(editor)
    }

    /// The file of the earlier lines. Without its folder there is no history.
    fn history_file(&self) -> Option<PathBuf> {
        let paths = LocalPaths::look_up(&self.target.instance()).ok()?;
        let folder = paths.state_folder();
        fs::create_dir_all(folder).ok()?;
        Some(folder.join(HISTORY_FILE))
    }

    /// Runs a line and prints its answer.
    fn run_line(&mut self, line: &str, earlier: &[String]) -> Result<Outcome, CliError> {
        let unquoted = from_table(line);
        let line = unquoted.as_deref().unwrap_or(line);
        let words = match arguments::words(line) {
            Ok(words) if line.starts_with('#') || words.is_empty() => return Ok(Outcome::Done),
            Ok(words) => words,
            Err(_) if line.starts_with('#') => return Ok(Outcome::Done),
            Err(reason) => return Ok(complain(&reason)),
        };
        let text = match (words[0].as_str(), words.get(1)) {
            ("exit" | "quit", None) => return Ok(Outcome::Exit),
            ("help", None) => help_text(),
            ("help", Some(name)) => match self.connected().map(|caller| caller.tool(name).map(tool_text)) {
                Ok(Ok(text)) => text,
                Ok(Err(reason)) => return Ok(complain(&reason)),
                Err(error) => return self.lost(error),
            },
            // `tools/list` is the name of the same in MCP.
            ("tools" | "tools/list", None) => match self.connected() {
                Ok(caller) => tools_text(caller.tools()),
                Err(error) => return self.lost(error),
            },
            ("history", None) => earlier.iter().map(|line| escaped(line) + "\n").collect(),
            ("session", None) => self.session_text(),
            (tool, _) => return self.call(tool, &words[1..]),
        };
        show(&text)
    }

    fn call(&mut self, name: &str, words: &[String]) -> Result<Outcome, CliError> {
        let caller = match self.connected() {
            Ok(caller) => caller,
            Err(error) => return self.lost(error),
        };
        let arguments = match arguments::object(words, caller.schema_of(name)) {
            Ok(arguments) => arguments,
            Err(reason) => return Ok(complain(&reason)),
        };
        let called = caller.call(name, arguments, CALL_TIMEOUT);
        let called = called.map_err(|error| {
            let is_lost = matches!(&error, RequestError::Io(error) if error.kind() != std::io::ErrorKind::TimedOut);
            (caller.failure(name, &error), is_lost)
        });
        self.calls += 1;
        let answer = match called {
            Ok(answer) => answer,
            Err((failure, is_lost)) => {
                if is_lost {
                    self.caller = None;
                    self.session = None;
                }
                return Ok(match failure {
                    CliError::Usage(line) => complain(&format!("{line}; help lists what can be written")),
                    CliError::Failed(line) => complain(&line),
                    _ => Outcome::Failed,
                });
            }
        };
        if name == "register_session" && !answer.is_error {
            self.session = serde_json::from_str(answer.value.get()).ok();
        }
        let indented = |value: &RawValue| {
            let value: Value = serde_json::from_str(value.get()).unwrap_or_default();
            format!("{}\n", escaped_json(&format!("{value:#}")))
        };
        let text = if self.is_terminal {
            indented(&answer.value)
        } else {
            json_line(&answer.value)
        };
        let shown = show(&text)?;
        Ok(if answer.is_error && shown == Outcome::Done {
            Outcome::Failed
        } else {
            shown
        })
    }

    /// The connection; a new one where the broker has closed the last one.
    fn connected(&mut self) -> Result<&mut Caller, CliError> {
        if self.caller.is_none() && self.is_terminal {
            self.caller = Some(Caller::connect(&self.target)?);
            eprintln!("connected again, without a session: register_session makes one");
        }
        self.caller.as_mut().ok_or_else(|| self.target.not_running())
    }

    fn lost(&self, error: CliError) -> Result<Outcome, CliError> {
        match error {
            CliError::NotRunning(line) | CliError::Failed(line) if self.is_terminal => Ok(complain(&line)),
            error => Err(error),
        }
    }

    fn session_text(&self) -> String {
        let mut table = Table::without_headings();
        table.row(["broker", &self.target.to_string()]);
        match &self.caller {
            Some(caller) => caller
                .about
                .iter()
                .for_each(|(name, value)| table.row([*name, value.as_str()])),
            None => table.row(["connection", "closed"]),
        }
        let of_session = |member: &str| self.session.as_ref()?[member].as_str().map(str::to_owned);
        let session = match (of_session("name"), of_session("session_id")) {
            (Some(name), Some(id)) => format!("{name} ({id})"),
            (_, Some(id)) => id,
            _ => "none; register_session makes one".to_owned(),
        };
        table.row(["session", &session]);
        let seconds = self.since.elapsed().as_secs();
        table.row(["calls", &format!("{} in {seconds} s", self.calls)]);
        table.render(None, false).0
    }
}

/// A row of a table in Markdown, as guides have them: what its backquotes hold is the line. A row without any is none.
fn from_table(line: &str) -> Option<String> {
    line.starts_with('|').then(|| {
        let quoted = line.split('`').skip(1).step_by(2);
        quoted.collect::<Vec<_>>().join(" ")
    })
}

/// Says on stderr why a line was not carried out.
fn complain(reason: &str) -> Outcome {
    common::telemetry::print_error(false, &escaped(reason));
    Outcome::Failed
}

fn show(text: &str) -> Result<Outcome, CliError> {
    Ok(match write(text)? {
        Written::Done => Outcome::Done,
        Written::Closed => Outcome::Exit,
    })
}

fn help_text() -> String {
    let mut text = String::new();
    for (command, about) in COMMANDS {
        let _ = writeln!(text, "{command:<26}{about}");
    }
    text + FORM
}

fn tools_text(tools: &[Tool]) -> String {
    let mut table = Table::new(&["TOOL", "WHAT IT DOES"]);
    for tool in tools {
        let first = tool.description.split_inclusive(". ").next().unwrap_or_default();
        table.row([tool.name.as_str(), first.trim()]);
    }
    table.render(crate::output::terminal_width(), false).0
}

/// A tool and its arguments.
fn tool_text(tool: &Tool) -> String {
    let mut text = format!("{}: {}\n", escaped(&tool.name), escaped(&tool.description));
    let required: Vec<&str> = tool.input_schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut table = Table::new(&["ARGUMENT", "TYPE", "NEEDED", "MEANING"]);
    for (key, schema) in tool.input_schema["properties"].as_object().into_iter().flatten() {
        let kind = schema["type"].as_str().unwrap_or("any");
        let needed = if required.contains(&key.as_str()) { "yes" } else { "" };
        table.row([
            key.as_str(),
            kind,
            needed,
            schema["description"].as_str().unwrap_or_default(),
        ]);
    }
    text.push_str(&table.render(crate::output::terminal_width(), false).0);
    text
}

/// Completes words of a line with what the broker has.
struct Tools {
    tools: Vec<Tool>,
}

impl Completer for Tools {
    type Candidate = String;

    fn complete(&self, line: &str, place: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(candidates(line.get(..place).unwrap_or_default(), &self.tools))
    }
}

impl Hinter for Tools {
    type Hint = String;
}

impl Highlighter for Tools {}

impl Validator for Tools {}

impl Helper for Tools {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_table_is_the_line_that_its_backquotes_hold() {
        assert_eq!(
            from_table(r#"| alice | `register_session` | `{"name": "alice"}` |"#).unwrap(),
            r#"register_session {"name": "alice"}"#
        );
        assert_eq!(from_table("| who | tool | arguments |").unwrap(), "");
        assert_eq!(from_table("|---|---|---|").unwrap(), "");
        assert_eq!(from_table(r#"send_message {"text": "a | `b`"}"#), None);
    }
}
