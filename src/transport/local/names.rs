//! Which name an agent gets that asks for one by itself. Pure.

use actors::model::SessionName;

/// The name where the wish cannot be used.
const FALLBACK: &str = "agent";
/// Characters of a wish that are kept, so that a number fits behind them.
const CHARS_MAX: usize = 120;

/// The first of `wish`, `wish-2`, `wish-3` and so on that is free. Gives up when none of `tries_max` is.
pub fn choose(wish: &str, tries_max: usize, is_free: impl Fn(&str) -> bool) -> Option<String> {
    let wish = usable(wish);
    (1..=tries_max)
        .map(|number| match number {
            1 => wish.clone(),
            number => format!("{wish}-{number}"),
        })
        .find(|name| is_free(name))
}

/// The wish as a name of a session: a folder may be called what a session may not.
fn usable(wish: &str) -> String {
    let plain: String = wish
        .chars()
        .map(|c| if c == '@' || c.is_control() { '-' } else { c })
        .take(CHARS_MAX)
        .collect();
    match SessionName::parse(plain.trim()) {
        Ok(name) => name.as_str().to_owned(),
        Err(_) => FALLBACK.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_number_is_taken() {
        let taken = ["shop", "shop-2"];
        assert_eq!(choose("shop", 10, |name| !taken.contains(&name)).unwrap(), "shop-3");
        assert_eq!(choose("other", 10, |name| !taken.contains(&name)).unwrap(), "other");
        assert_eq!(choose("shop", 2, |name| !taken.contains(&name)), None);
    }

    #[test]
    fn every_folder_gives_a_valid_name() {
        let long = "x".repeat(500);
        for (wish, name) in [
            ("me@home", "me-home"),
            (" shop ", "shop"),
            ("", "agent"),
            ("\u{7}", "-"),
            ("0192d3a0-0000-7000-8000-000000000000", "agent"),
            (&long, &long[..CHARS_MAX]),
        ] {
            let chosen = choose(wish, 1, |_| true).unwrap();
            assert_eq!(chosen, name);
            SessionName::parse(&format!("{chosen}-1000")).unwrap();
        }
    }
}
