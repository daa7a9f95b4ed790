//! Tells a person outside of the screen that a question has come: by the bell and the notifications of the terminal, and by
//! a command of the system.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::model::Notice;
use super::view::name;
use crate::access::{EnvVars, variable};

/// How the terminal shows a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sequence {
    /// `iTerm2`, `WezTerm`, Ghostty, Windows Terminal.
    Osc9,
    /// foot, rxvt.
    Osc777,
    /// kitty.
    Osc99,
}

/// How notifications are shown.
#[derive(Debug, Clone, Default)]
pub struct Notifier {
    has_bell: bool,
    /// The text of a question is shown too.
    has_text: bool,
    sequence: Option<Sequence>,
    /// A program with its first arguments; title and text follow.
    command: Vec<String>,
    is_running: Arc<AtomicBool>,
}

impl Notifier {
    /// Of the settings, and of what the environment says about the terminal.
    pub fn new(has_bell: bool, command: Option<&str>, has_text: bool, env: &EnvVars) -> Self {
        let words = command.unwrap_or_default().split_whitespace();
        Self {
            has_bell,
            has_text,
            sequence: sequence(env),
            command: words.map(str::to_owned).collect(),
            is_running: Arc::default(),
        }
    }

    /// Notifies of questions that came together. Returns what the terminal is to be sent.
    pub fn notify(&self, notices: &[Notice]) -> String {
        let Some((title, text)) = self.texts(notices) else {
            return String::new();
        };
        self.run(&title, &text);
        let mut bytes = String::new();
        if self.has_bell {
            bytes.push('\u{7}');
        }
        // The texts are escaped: no character of them ends a sequence.
        let plain = |text: &str| text.replace(';', ",");
        let sequence = match self.sequence {
            Some(Sequence::Osc9) => format!("\u{1b}]9;{title}: {text}\u{7}"),
            Some(Sequence::Osc777) => format!("\u{1b}]777;notify;{};{}\u{7}", plain(&title), plain(&text)),
            Some(Sequence::Osc99) => {
                format!("\u{1b}]99;i=1:d=0;{title}\u{1b}\\\u{1b}]99;i=1:p=body;{text}\u{1b}\\")
            }
            None => String::new(),
        };
        bytes.push_str(&sequence);
        bytes
    }

    fn texts(&self, notices: &[Notice]) -> Option<(String, String)> {
        let first = notices.first()?;
        let title = match notices.len() {
            1 => match first.urgency {
                Some(urgency) => format!("mcp-broker: {} asks ({urgency})", name(&first.asker)),
                None => format!("mcp-broker: {} writes", name(&first.asker)),
            },
            count if notices.iter().all(|notice| notice.urgency.is_some()) => format!("mcp-broker: {count} questions"),
            count => format!("mcp-broker: {count} questions and messages"),
        };
        let text = if self.has_text && notices.len() == 1 {
            let what = if first.urgency.is_some() { "Question" } else { "Message" };
            format!("{what}: {}", name(&first.text))
        } else {
            "Answer in mcp-broker console".to_owned()
        };
        Some((title, text))
    }

    /// Runs the command, unless it still runs.
    fn run(&self, title: &str, text: &str) {
        let Some((program, first)) = self.command.split_first() else {
            return;
        };
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut command = Command::new(program);
        command.args(first).args([title, text]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let is_running = Arc::clone(&self.is_running);
        std::thread::spawn(move || {
            // A command that fails notifies of nothing: the question is on the screen.
            let _ = command.status();
            is_running.store(false, Ordering::Release);
        });
    }
}

fn sequence(env: &EnvVars) -> Option<Sequence> {
    let is = |name: &str, values: &[&str]| {
        let value = variable(env, name).map(|value| value.to_string_lossy().into_owned());
        value.is_some_and(|value| values.iter().any(|wanted| value.starts_with(wanted)))
    };
    if is("TERM", &["xterm-kitty"]) {
        return Some(Sequence::Osc99);
    }
    if is("TERM", &["foot", "rxvt"]) {
        return Some(Sequence::Osc777);
    }
    let has_osc_9 = is("TERM_PROGRAM", &["iTerm", "WezTerm", "ghostty"]) || variable(env, "WT_SESSION").is_some();
    has_osc_9.then_some(Sequence::Osc9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(asker: &str) -> Notice {
        Notice {
            asker: asker.to_owned(),
            urgency: Some("high"),
            text: "Drop the table?\u{7}".to_owned(),
        }
    }

    fn of(name: &str, value: &str, has_bell: bool, has_text: bool) -> Notifier {
        Notifier::new(has_bell, None, has_text, &[(name.into(), value.into())])
    }

    #[test]
    fn a_terminal_gets_what_it_understands() {
        let alice = [notice("alice")];
        let kitty = of("TERM", "xterm-kitty", false, false).notify(&alice);
        assert!(
            kitty.contains("]99;i=1:d=0;mcp-broker: alice asks (high)\u{1b}\\"),
            "{kitty:?}"
        );
        let iterm = of("TERM_PROGRAM", "iTerm.app", true, false).notify(&alice);
        assert!(iterm.starts_with("\u{7}\u{1b}]9;mcp-broker"), "{iterm:?}");
        assert_eq!(of("TERM", "xterm-256color", true, true).notify(&alice), "\u{7}");
        assert_eq!(of("TERM", "xterm-256color", false, true).notify(&alice), "");
    }

    #[test]
    fn the_text_of_a_question_is_shown_only_where_that_is_wanted_and_cannot_end_the_sequence() {
        let shown = of("TERM", "foot", false, true).notify(&[notice("a;b\u{1b}\\")]);
        assert_eq!(
            shown,
            "\u{1b}]777;notify;mcp-broker: a,b\\u{1b}\\\\ asks (high);Question: Drop the table?\\u{7}\u{7}"
        );
        let shown = of("TERM", "foot", false, false).notify(&[notice("alice")]);
        assert!(!shown.contains("Drop"), "{shown:?}");
        let shown = of("TERM", "foot", false, true).notify(&[notice("alice"), notice("bob")]);
        let message = Notice {
            urgency: None,
            ..notice("alice")
        };
        let of_message = of("TERM", "foot", false, true).notify(&[message]);
        assert!(of_message.contains("alice writes;Message: Drop"), "{of_message:?}");
        assert!(shown.contains("2 questions") && !shown.contains("Drop"), "{shown:?}");
    }
}
