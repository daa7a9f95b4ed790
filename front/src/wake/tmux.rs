//! The terminal of an agent in tmux: a line is pasted into its prompt. The last resort, because the front cannot know what the
//! client does with keys: it only types into an empty prompt of a client that it knows.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{
    missed::Missed,
    program::{output_of, run},
};
use crate::identity::{CLAUDE_CODE, Identity};

/// The pause between two looks at the prompt: a user who types is seen by it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The pause between the text and Enter: clients take keys that come at once for one paste.
const BEFORE_ENTER: Duration = Duration::from_millis(200);
/// What prompts begin with.
const CLAUDE_PROMPT: char = '\u{276f}';
const CODEX_PROMPT: char = '\u{203a}';
/// What a screen shows, in lower case, while the client works or asks for a decision.
const BUSY: [&str; 6] = [
    "esc to interrupt",
    "esc to cancel",
    "enter to confirm",
    "enter to select",
    "do you want",
    "(y/n)",
];
/// Longest name of a pane, in bytes.
const PANE_LEN_MAX: usize = 128;

/// A pane of tmux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pane(String);

impl Pane {
    /// The pane with this name, as tmux takes it after `-t`.
    pub fn parse(name: &str) -> Option<Self> {
        let is_plain = !name.is_empty() && !name.starts_with('-') && !name.contains(char::is_control);
        (is_plain && name.len() <= PANE_LEN_MAX).then(|| Self(name.to_owned()))
    }

    /// Pastes a line into the prompt and presses Enter.
    ///
    /// # Errors
    /// There is no tmux, or the prompt is not known to be empty.
    pub fn write(&self, text: &str, identity: &Identity, deadline: Instant) -> Result<(), Missed> {
        let line: String = text.chars().filter(|character| !character.is_control()).collect();
        let prompt = if identity.is_product(CLAUDE_CODE) {
            CLAUDE_PROMPT
        } else {
            CODEX_PROMPT
        };
        let capture = || output_of(tmux(&["capture-pane", "-p", "-t", &self.0]), deadline);
        check(&capture()?, prompt)?;
        thread::sleep(LOOK_AGAIN);
        check(&capture()?, prompt)?;
        let buffer = format!("mcp-broker-{}", Uuid::new_v4().simple());
        run(tmux(&["load-buffer", "-b", &buffer, "-"]), &line, deadline)?;
        let paste = ["paste-buffer", "-p", "-d", "-b", &buffer, "-t", &self.0];
        run(tmux(&paste), "", deadline)?;
        thread::sleep(BEFORE_ENTER);
        run(tmux(&["send-keys", "-t", &self.0, "Enter"]), "", deadline)
    }
}

fn tmux(words: &[&str]) -> Command {
    let mut command = Command::new("tmux");
    // Without -u tmux replaces the characters of prompts where no locale is set.
    command.arg("-u").args(words);
    command
}

/// Checks that a screen shows an empty prompt that begins with this character, and no dialog.
fn check(screen: &str, prompt: char) -> Result<(), Missed> {
    let lower = screen.to_lowercase();
    if let Some(found) = BUSY.into_iter().find(|text| lower.contains(text)) {
        return Err(Missed::refused(format!("the terminal shows \"{found}\"")));
    }
    let is_border = |character: char| character.is_whitespace() || character == '\u{2502}';
    let mut prompts = screen
        .lines()
        .filter_map(|line| line.trim_matches(is_border).strip_prefix(prompt));
    match prompts.next_back() {
        None => Err(Missed::refused("the terminal shows no prompt of the client")),
        Some("") => Ok(()),
        Some(_) => Err(Missed::refused("the prompt of the client is not empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_prompt_is_typed_into() {
        for (screen, is_free) in [
            ("hello\n────\n❯\u{a0}\n────\n  ? for shortcuts\n", true),
            ("❯ first question\nanswer\n────\n❯ \n────\n", true),
            ("│ ❯   │\n", true),
            ("────\n❯ half a sen\n────\n", false),
            ("Do you want to proceed?\n❯ 1. Yes\n  2. No\n", false),
            ("✻ Thinking… (esc to interrupt)\n❯ \n", false),
            ("mara@host:~$ \n", false),
            ("", false),
        ] {
            assert_eq!(check(screen, CLAUDE_PROMPT).is_ok(), is_free, "{screen:?}");
        }
        assert!(check("› \n", CODEX_PROMPT).is_ok() && check("› \n", CLAUDE_PROMPT).is_err());
    }

    #[test]
    fn a_pane_is_no_option() {
        assert!(Pane::parse("%3").is_some() && Pane::parse("work:1.0").is_some());
        for name in ["", "-t", "a\nb", &"x".repeat(129)] {
            assert_eq!(Pane::parse(name), None, "{name:?}");
        }
    }
}
