//! Generates the documentation of the settings.

use std::fmt::Write as _;

use super::{setting::Setting, table::SETTINGS};

const HEAD: &str = "| key | flag | environment | default | allowed | meaning |\n|---|---|---|---|---|---|\n";

/// The settings of `docs/configuration.md`: a heading and a table of Markdown for each section.
pub fn settings_markdown() -> String {
    let mut page = String::new();
    let sections = SETTINGS.chunk_by(|one, next| one.section == next.section);
    for (number, settings) in sections.enumerate() {
        let gap = if number == 0 { "" } else { "\n" };
        // Writing to a String cannot fail.
        let _ = write!(page, "{gap}### {}\n\n{HEAD}", settings[0].section);
        page.extend(settings.iter().map(row));
    }
    page
}

fn row(setting: &Setting) -> String {
    let Setting { key, .. } = setting;
    let default = if setting.default.is_empty() {
        "none".to_owned()
    } else {
        format!("`{}`", setting.default)
    };
    let allowed = (setting.allowed)().replace('*', "`*`");
    format!(
        "| `{key}` | `--{}` | `{}` | {default} | {allowed} | {} |\n",
        setting.flag(),
        setting.env(),
        setting.text()
    )
}
