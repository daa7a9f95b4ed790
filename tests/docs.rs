//! The table of settings in the documentation matches the program.

use std::fs;

use mcp_broker::config::settings_markdown;

const BEGIN: &str = "<!-- settings: begin -->\n";
const END: &str = "<!-- settings: end -->";

#[test]
fn the_table_of_settings_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
    let page = fs::read_to_string(path).unwrap();
    let (before, rest) = page
        .split_once(BEGIN)
        .expect("the page has the mark of the beginning of the table");
    let (table, after) = rest
        .split_once(END)
        .expect("the page has the mark of the end of the table");
    let expected = settings_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(table, expected, "run UPDATE_DOCS=1 cargo test --test docs");
}
