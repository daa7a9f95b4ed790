//! The configuration: whether a start accepts it, and where each value comes from.

use super::{findings::Finding, setup::Setup};
use common::config::Source;

/// Lists the settings that are not the defaults, and what is probably a mistake.
pub fn check(setup: &Setup) -> Vec<Finding> {
    let (config, values) = match &setup.settings {
        Ok(settings) => settings,
        Err(error) => {
            let cure = "correct it; docs/configuration.md lists all settings, as does mcp-broker serve --help";
            let found = format!("{}: a start is refused: {error}", checked(setup));
            return vec![Finding::error(found).cure(cure)];
        }
    };
    let given: Vec<_> = values.iter().filter(|value| value.source != Source::Default).collect();
    let mut findings = vec![Finding::ok(checked(setup))];
    findings.push(match given.len() {
        0 => Finding::ok("all settings have their defaults"),
        len => Finding::ok(format!(
            "{len} of {} settings are given, the others have their defaults",
            values.len()
        )),
    });
    findings.extend(given.into_iter().map(|value| {
        let text = value.value.as_deref().unwrap_or("(empty)");
        Finding::ok(format!("{} = {text} (from {})", value.name, value.location()))
    }));
    let warned = config
        .warnings()
        .into_iter()
        .map(|warning| Finding::warning(warning).cure("see docs/configuration.md for the setting that it names"));
    findings.extend(warned);
    findings
}

fn checked(setup: &Setup) -> &'static str {
    if setup.is_of_user {
        "these are the settings of your own broker, which agents start"
    } else {
        "these are the settings of mcp-broker serve"
    }
}
