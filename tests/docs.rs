//! The tables in the documentation match the program: those of settings and of metrics.

use std::fs;

use mcp_broker::{config::settings_markdown, metrics::metrics_markdown};

/// Compares the part of a page between its marks, or writes it with `UPDATE_DOCS=1`.
fn check(page: &str, name: &str, expected: &str) {
    let path = format!("{}/docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = text
        .split_once(&begin)
        .expect("the page has the mark of the beginning of the table");
    let (table, after) = rest
        .split_once(&end)
        .expect("the page has the mark of the end of the table");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, format!("{before}{begin}{expected}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(table, expected, "run UPDATE_DOCS=1 cargo test --test docs");
}

#[test]
fn the_table_of_settings_is_up_to_date() {
    check("configuration.md", "settings", &settings_markdown());
}

#[test]
fn the_table_of_metrics_is_up_to_date() {
    check("metrics.md", "metrics", &metrics_markdown());
}
