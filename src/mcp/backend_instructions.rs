//! The instructions of backends, for a client that may use them: what they have said in their last handshake.

use actors::{gateway::Offered, model::Scope};

use super::exposure::Exposure;
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
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

fn together<'a>(all: impl Iterator<Item = (&'a str, String)>) -> String {
    let mut text = String::new();
    for (name, instructions) in all {
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
