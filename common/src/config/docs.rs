//! Generates the documentation of the settings.

use super::{setting::Setting, table::SETTINGS};

/// The Markdown table of settings of `docs/configuration.md`.
pub fn settings_markdown() -> String {
    let head = "| key | flag | environment | default | allowed | meaning |\n|---|---|---|---|---|---|\n";
    SETTINGS
        .iter()
        .map(row)
        .fold(head.to_owned(), |table, row| table + &row)
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
