//! The hooks of a client: what `setup CLIENT --hooks` writes into its file, and recognises there. Pure.

use serde_json::{Value, json};

use super::change::Change;
use crate::{
    config_entry::{
        Connection, Wanted,
        edit::{EditError, list},
        is_program, shell_word,
    },
    edited_file::Edit,
};

/// Seconds after which a client gives up a hook. Hooks other than the waiter end after two.
const TIMEOUT: u64 = 10;
/// Seconds for which Claude Code lets the waiter wait. A conversation that is silent for longer is woken at its next turn.
const WAIT_TIMEOUT: u64 = 86_400;
/// How often in a row Cursor lets a hook begin a turn.
const CURSOR_LOOPS_MAX: u64 = 5;
/// The member under which all clients list hooks.
const HOOKS: &str = "hooks";
/// The first argument of a hook.
const HOOK: &str = "hook";

/// Hooks of one event, as one item of the list of the event.
type EventItem = (&'static str, Value);

/// The text of a file without hooks.
fn blank(word: &str) -> &'static str {
    if has_version(word) {
        "{\n  \"version\": 1\n}\n"
    } else {
        "{}\n"
    }
}

/// Whether the file has a version.
fn has_version(word: &str) -> bool {
    matches!(word, "copilot" | "cursor")
}

/// Why no hook can do this.
pub fn impossible(wanted: &Wanted) -> Option<String> {
    let label = wanted.client.label;
    if !wanted.client.has_hooks() {
        return Some(format!(
            "{label} has no hooks that this command knows: leave --hooks out; docs/waking.md says how its agents learn of messages"
        ));
    }
    matches!(wanted.connection, Connection::Http { .. }).then(|| {
        "hooks speak to the broker of this user on this machine: leave --url and --key-env out, and unset \
         MCP_BROKER_URL"
            .to_owned()
    })
}

/// The hooks, by event.
pub fn items(wanted: &Wanted) -> Vec<EventItem> {
    let word = wanted.client.word;
    let group = |hooks: &[Value]| json!({"hooks": hooks});
    let hook = |task: &str| handler(wanted, task);
    match word {
        "claude" => {
            let mut wait = hook("wait");
            wait["asyncRewake"] = json!(true);
            wait["timeout"] = json!(WAIT_TIMEOUT);
            vec![
                ("SessionStart", group(&[hook("prompt"), wait.clone()])),
                ("UserPromptSubmit", group(&[hook("prompt")])),
                ("Stop", group(&[hook("stop"), wait])),
            ]
        }
        "gemini" => vec![
            ("SessionStart", group(&[hook("prompt")])),
            ("BeforeAgent", group(&[hook("prompt")])),
            ("AfterAgent", group(&[hook("stop")])),
        ],
        "copilot" => vec![
            ("sessionStart", hook("prompt")),
            ("userPromptSubmitted", hook("prompt")),
            ("agentStop", hook("stop")),
        ],
        "cursor" => vec![
            ("sessionStart", hook("prompt")),
            ("beforeSubmitPrompt", hook("prompt")),
            ("stop", hook("stop")),
        ],
        _ => vec![
            ("SessionStart", group(&[hook("prompt")])),
            ("UserPromptSubmit", group(&[hook("prompt")])),
            ("Stop", group(&[hook("stop")])),
        ],
    }
}

/// One command of the hooks.
fn handler(wanted: &Wanted, task: &str) -> Value {
    let word = wanted.client.word;
    let instance = match &wanted.connection {
        Connection::Local { instance } => instance.as_deref(),
        Connection::Http { .. } => None,
    };
    let mut args = vec![HOOK, task];
    if word != "claude" {
        args.extend(["--client", word]);
    }
    args.extend(instance.into_iter().flat_map(|name| ["--instance", name]));
    let line = || {
        let words = std::iter::once(wanted.program.as_str()).chain(args.iter().copied());
        words.map(shell_word).collect::<Vec<_>>().join(" ")
    };
    match word {
        "claude" => json!({"type": "command", "command": wanted.program, "args": args, "timeout": TIMEOUT}),
        "gemini" => json!({
            "type": "command", "name": format!("mcp-broker-{task}"), "command": line(), "timeout": TIMEOUT * 1000,
        }),
        "copilot" => json!({"type": "command", "bash": line(), "timeoutSec": TIMEOUT}),
        "cursor" if task == "stop" => json!({"command": line(), "loop_limit": CURSOR_LOOPS_MAX}),
        "cursor" => json!({"command": line()}),
        _ => json!({"type": "command", "command": line(), "timeout": TIMEOUT}),
    }
}

/// Whose commands an item has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Ours,
    Others,
    Mixed,
}

fn owner(item: &Value) -> Owner {
    let is_ours = match item.get(HOOKS).and_then(Value::as_array) {
        Some(handlers) => handlers.iter().map(runs_hook).collect(),
        None => vec![runs_hook(item)],
    };
    match (is_ours.contains(&true), is_ours.contains(&false)) {
        (true, false) => Owner::Ours,
        (true, true) => Owner::Mixed,
        (false, _) => Owner::Others,
    }
}

/// Whether a handler runs a hook of this program.
fn runs_hook(handler: &Value) -> bool {
    let text = |name: &str| handler.get(name).and_then(Value::as_str);
    let Some(command) = text("command").or(text("bash")) else {
        return false;
    };
    if let Some(args) = handler.get("args").and_then(Value::as_array) {
        return is_program(command) && args.first().is_some_and(|first| first == HOOK);
    }
    let program = command.split_once(&format!(" {HOOK} ")).map(|(program, _)| program);
    program.is_some_and(|program| is_program(program.trim_matches(['\'', '"'])))
}

/// The places of our items in the list of an event.
fn places(text: &str, event: &str) -> Result<Vec<(usize, Value)>, String> {
    let items = list::items(text, &[HOOKS, event]).map_err(reason)?;
    let mut places = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        match owner(&item) {
            Owner::Ours => places.push((index, item)),
            Owner::Others => {}
            Owner::Mixed => {
                return Err(format!(
                    "its member {HOOKS}.{event} has one item with hooks of this command and others; separate them in an editor"
                ));
            }
        }
    }
    Ok(places)
}

fn reason(error: EditError) -> String {
    error.to_string()
}

/// Adds the hooks, or gives those of this command the wanted values.
pub fn addition(wanted: &Wanted, text: Option<&str>) -> Result<Edit<Change>, String> {
    let word = wanted.client.word;
    let old = text.unwrap_or_default();
    let base = if old.trim_start_matches('\u{feff}').trim().is_empty() {
        blank(word)
    } else {
        old
    };
    let mut new = base.to_owned();
    if has_version(word) {
        new = list::set_unless_there(&new, "version", &json!(1)).map_err(reason)?;
    }
    let mut change = Change::Unchanged;
    for (event, item) in items(wanted) {
        let keys = [HOOKS, event];
        let mut places = places(&new, event)?;
        while places.len() > 1 {
            let (index, _) = places.pop().unwrap_or_default();
            new = list::remove(&new, &keys, index).map_err(reason)?;
            change = Change::Updated;
        }
        match places.first() {
            None => {
                new = list::push(&new, &keys, &item).map_err(reason)?;
                if change == Change::Unchanged {
                    change = Change::Added;
                }
            }
            Some((_, there)) if *there == item => {}
            Some((index, _)) => {
                new = list::replace(&new, &keys, *index, &item).map_err(reason)?;
                change = Change::Updated;
            }
        }
    }
    Ok(Edit {
        text: (change != Change::Unchanged).then_some(new),
        result: change,
    })
}

/// Removes the hooks of this command.
pub fn removal(wanted: &Wanted, text: Option<&str>) -> Result<Edit<Change>, String> {
    let old = text.unwrap_or_default();
    let mut new = old.to_owned();
    if !old.trim_start_matches('\u{feff}').trim().is_empty() {
        // What was written last goes first.
        for (event, _) in items(wanted).into_iter().rev() {
            for (index, _) in places(&new, event)?.into_iter().rev() {
                new = list::remove(&new, &[HOOKS, event], index).map_err(reason)?;
            }
        }
    }
    let is_changed = new != old;
    Ok(Edit {
        text: is_changed.then_some(new),
        result: if is_changed { Change::Removed } else { Change::Unchanged },
    })
}

/// The text of a file that has nothing but the hooks.
pub fn text(wanted: &Wanted) -> Result<String, String> {
    Ok(addition(wanted, None)?.text.unwrap_or_default())
}

/// What the user has to do besides.
pub fn advice(wanted: &Wanted) -> &'static str {
    match wanted.client.word {
        "codex" => "Codex asks once whether it may run them: see /hooks there.\n",
        _ => "",
    }
}
