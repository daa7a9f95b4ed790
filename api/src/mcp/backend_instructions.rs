//! The instructions of backends, for a client that may use them: what they have said in their last handshake.

use std::borrow::Cow;

use actors::{gateway::Offered, model::Scope};

use super::client::Exposure;
use crate::auth::Identity;

/// Bytes of the instructions of one backend, and of all together.
const ONE_LEN_MAX: usize = 2 * 1024;
const ALL_LEN_MAX: usize = 8 * 1024;
/// Ends a text that was cut.
const ELLIPSIS: &str = "…";
/// Fewer bytes than these say nothing.
const ONE_LEN_MIN: usize = 64;

/// The instructions of the backends that a client is shown: those of a single one as they are, those of several each under
/// the name of its backend. Empty if there are none, or if the client may use no backend.
pub fn of_shown(identity: &Identity, exposure: &Exposure) -> String {
    let gateway = identity.project.gateway();
    let Some(gateway) = gateway.filter(|_| exposure.has_backends() && identity.check_scope(Scope::Member).is_ok())
    else {
        return String::new();
    };
    let offered = gateway.shared().offered();
    if let Some(at) = exposure.only_backend(&offered) {
        return of_one(&offered, at).map_or_else(String::new, |text| cut(&text, ALL_LEN_MAX));
    }
    let names = offered.backends.iter().map(|backend| backend.name.as_str());
    together(
        (0..)
            .zip(names)
            .filter_map(|(at, name)| Some((name, of_one(&offered, at)?))),
    )
}

fn of_one(offered: &Offered, at: usize) -> Option<String> {
    let view = offered.backends.get(at)?.view();
    let is_shown = view.config.shows_instructions && !view.config.is_disabled;
    let text = view.server.as_ref()?.instructions.as_ref().filter(|_| is_shown)?;
    Some(plain(text).trim().to_owned()).filter(|text| !text.is_empty())
}

/// The text with line breaks of one kind, and without other characters that are not shown: they hide from a person what a
/// model reads.
fn plain(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let shown = text.chars().filter_map(|c| match c {
        '\n' | '\t' => Some(c),
        '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some('\n'),
        // Formatting: zero width, directions, tags.
        '\u{ad}'
        | '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}' => None,
        '\u{e0000}'..='\u{e007f}' => None,
        c => (!c.is_control()).then_some(c),
    });
    shown.collect()
}

/// The text without headings that end the part of its backend: those of the first level, as the names of backends are. Both
/// ways of Markdown to write one count.
fn without_titles(text: &str) -> String {
    let (mut lines, mut was_text) = (Vec::new(), false);
    for line in text.lines() {
        let begins = line.trim_start();
        let is_title = begins.starts_with('#') && !begins.starts_with("##");
        let is_underline = was_text && !begins.is_empty() && begins.trim_end().bytes().all(|byte| byte == b'=');
        was_text = !begins.is_empty();
        lines.push(match line {
            _ if is_title => Cow::Owned(format!("#{begins}")),
            _ if is_underline => Cow::Owned(line.replace('=', "-")),
            line => Cow::Borrowed(line),
        });
    }
    lines.join("\n")
}

fn together<'a>(all: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut text = String::new();
    for (name, instructions) in all {
        let instructions = without_titles(&instructions);
        let title = format!("{}# {name}\n\n", if text.is_empty() { "" } else { "\n\n" });
        let left = ALL_LEN_MAX.saturating_sub(text.len() + title.len());
        if left < ONE_LEN_MIN.min(instructions.len()) {
            break;
        }
        text.push_str(&title);
        text.push_str(&cut(&instructions, left.min(ONE_LEN_MAX)));
    }
    text
}

/// The beginning of a text, of at most this many bytes.
fn cut(text: &str, len_max: usize) -> String {
    if text.len() <= len_max {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(len_max.saturating_sub(ELLIPSIS.len()));
    format!("{}{ELLIPSIS}", text.get(..end).unwrap_or_default())
}

/// The instructions of the broker, and then those of its backends.
pub fn after_own(own: &str, of_backends: &str) -> String {
    if of_backends.is_empty() {
        return own.to_owned();
    }
    format!("{}\n\n{of_backends}", own.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_are_not_shown_are_left_out() {
        let text = "a\r\nb\u{1b}[2J\u{0}\tc\u{200b}\u{202e}d\u{2028}# e\u{e0041}\u{7f}\u{9b}";
        assert_eq!(plain(text), "a\nb[2J\tcd\n# e");
    }

    #[test]
    fn no_heading_of_a_backend_looks_like_the_name_of_another() {
        let text = "Use it.\n\n# mcp-broker\n  # b\n## kept\n#tag\n\nBroker\n===  \n=\n\n===\na = b";
        let all = [("a", text.to_owned()), ("b", "Use b.".to_owned())];
        assert_eq!(
            together(all.into_iter()),
            "# a\n\nUse it.\n\n## mcp-broker\n## b\n## kept\n##tag\n\nBroker\n---  \n-\n\n===\na = b\n\n# b\n\nUse b."
        );
    }

    #[test]
    fn each_is_under_its_name_and_cut_on_a_character() {
        let all = [("a", "Use a.".to_owned()), ("b", "ü".repeat(2_000))];
        let text = together(all.into_iter());
        let (a, b) = text.split_once("\n\n# b\n\n").unwrap();
        assert_eq!(a, "# a\n\nUse a.");
        assert!(b.len() <= ONE_LEN_MAX && b.len() > ONE_LEN_MAX - 5, "{}", b.len());
        assert_eq!(b.trim_start_matches('ü'), ELLIPSIS);
    }

    #[test]
    fn all_together_are_bounded_and_the_last_one_is_cut() {
        let names: Vec<String> = (10..30).map(|at| format!("backend-{at}")).collect();
        let all = names.iter().map(|name| (name.as_str(), "x".repeat(3_000)));
        let text = together(all);
        assert!(
            text.len() <= ALL_LEN_MAX && text.len() > ALL_LEN_MAX - 200,
            "{}",
            text.len()
        );
        assert_eq!(text.matches(ELLIPSIS).count(), 4);
        assert!(text.ends_with(ELLIPSIS));
        let short = together([("a", "x".repeat(8_150)), ("b", "b".to_owned())].into_iter());
        assert_eq!(short.lines().last(), Some("b"), "a short one fits");
    }
}
