//! Which name an agent gets that asks the broker for a unique one. Pure.

use actors::model::SessionName;

/// The name where the wanted one cannot be used.
const FALLBACK: &str = "agent";
/// Characters of a wanted name that are kept, so that a number fits behind them.
const CHARS_MAX: usize = 120;

/// The first of `wanted`, `wanted-2`, `wanted-3` and so on that is free. `None` if none of `tries_max` names is free.
pub fn choose(wanted: &str, tries_max: usize, is_free: impl Fn(&str) -> bool) -> Option<String> {
    let wanted = usable(wanted);
    (1..=tries_max)
        .map(|number| match number {
            1 => wanted.clone(),
            number => format!("{wanted}-{number}"),
        })
        .find(|name| is_free(name))
}

/// The wanted name as a name of a session, for a folder may have characters that a session may not.
fn usable(wanted: &str) -> String {
    let plain: String = wanted
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
