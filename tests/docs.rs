//! The documentation matches the program: the tables of settings and of metrics, and the commands with their options.

use std::fs;

use common::config::settings_markdown;
use mcp_broker::metrics::metrics_markdown;

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

/// The pages that describe all options of a command and of its subcommands.
const PAGES: [(&str, &str); 7] = [
    ("local", "local.md"),
    ("dev", "local.md"),
    ("status", "local.md"),
    ("connect", "local.md"),
    ("setup", "clients.md"),
    ("config", "clients.md"),
    ("hook", "waking.md"),
];

fn page(name: &str) -> String {
    fs::read_to_string(format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The commands below a command that the help shows, itself included, each with its words.
fn shown(words: &str, command: &clap::Command) -> Vec<(String, clap::Command)> {
    let mut all = vec![(words.to_owned(), command.clone())];
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        if below.get_name() != "help" {
            all.extend(shown(&format!("{words} {}", below.get_name()), below));
        }
    }
    all
}

#[test]
fn the_page_of_the_command_line_names_every_command() {
    let text = page("cli.md");
    let all = cli::command();
    let missing: Vec<_> = all
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "serve")
        .map(|command| format!("`{}", command.get_name()))
        .filter(|name| !text.contains(name))
        .collect();
    assert!(missing.is_empty(), "cli.md does not name {missing:?}");
}

#[test]
fn the_pages_name_every_option_of_the_commands_for_one_machine() {
    let all = cli::command();
    let mut missing = Vec::new();
    for (name, of) in PAGES {
        let text = page(of);
        for (words, command) in shown(name, all.find_subcommand(name).unwrap()) {
            if !text.contains(&format!("`{words}")) && !text.contains(&format!("`mcp-broker {words}")) {
                missing.push(format!("{of}: {words}"));
            }
            let options = command.get_arguments().filter(|option| !option.is_hide_set());
            let options = options.filter_map(|option| Some(format!("--{}", option.get_long()?)));
            missing.extend(
                options
                    .filter(|option| !text.contains(option.as_str()))
                    .map(|option| format!("{of}: {words} {option}")),
            );
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
