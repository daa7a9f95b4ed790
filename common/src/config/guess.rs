//! What a misspelled name probably means.

/// The most names that a refusal lists.
const NAMES_MAX: usize = 5;

/// The known name that is closest to a misspelled one; at most a third of its letters may differ.
pub fn nearest_name<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let name = comparable(name);
    let best = names.iter().copied().min_by_key(|other| distance(&name, other))?;
    (distance(&name, best) <= best.len() / 3).then_some(best)
}

/// What a refusal says of the known names: the one that was probably meant, or a few of them. `spell` is how a name is
/// written there, `help` the command that lists all.
pub fn suggestion(name: &str, names: &[&str], spell: impl Fn(&str) -> String, help: &str) -> String {
    match nearest_name(name, names) {
        Some(nearest) => format!("did you mean {}?", spell(nearest)),
        None => few(name, names, spell, help),
    }
}

/// At most [`NAMES_MAX`] of the known names, the nearest ones if there are more.
pub fn few(name: &str, names: &[&str], spell: impl Fn(&str) -> String, help: &str) -> String {
    let listed = |names: &[&str]| names.iter().map(|name| spell(name)).collect::<Vec<_>>().join(", ");
    if names.is_empty() {
        return "allowed: nothing".to_owned();
    }
    if names.len() <= NAMES_MAX {
        return format!("allowed: {}", listed(names));
    }
    let name = comparable(name);
    let mut nearest = names.to_vec();
    nearest.sort_by_key(|other| distance(&name, other));
    let more = names.len() - NAMES_MAX;
    format!(
        "allowed: {} and {more} more, which {help} lists",
        listed(&nearest[..NAMES_MAX])
    )
}

fn comparable(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

fn distance(name: &str, other: &str) -> usize {
    strsim::damerau_levenshtein(name, other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_alone_is_suggested_and_else_five_at_most() {
        let names = [
            "port",
            "host",
            "storage",
            "data_dir",
            "log_level",
            "log_format",
            "workers",
        ];
        let flag = |name: &str| format!("--{}", name.replace('_', "-"));
        let said = |name: &str, names: &[&str]| suggestion(name, names, flag, "mcp-broker serve --help");
        assert_eq!(said("prot", &names), "did you mean --port?");
        assert_eq!(said("log-fromat", &names), "did you mean --log-format?");
        let few = said("nothing", &names);
        assert!(
            few.starts_with("allowed: --") && few.ends_with(" and 2 more, which mcp-broker serve --help lists"),
            "{few}"
        );
        assert_eq!(few.matches("--").count(), 6, "{few}");
        assert_eq!(said("nothing", &names[..2]), "allowed: --port, --host");
        assert_eq!(said("nothing", &[]), "allowed: nothing");
    }
}
