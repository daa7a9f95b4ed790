//! The sources are readable: each file says what it is for, is of a bounded size, documents what it exports and uses plain words. So do the
//! documents.
//!
//! These tests read the sources and start nothing.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The folders with sources of the project.
const FOLDERS: &[&str] = &[
    "actors/src",
    "actors/tests",
    "api/src",
    "benches",
    "cli/src",
    "common/src",
    "fake-backend",
    "front/src",
    "fuzz/src",
    "lens/src",
    "load",
    "oracle",
    "rest",
    "schema/src",
    "src",
    "storage/src",
    "test-client",
    "tests",
];

/// The longest file, in lines.
const FILE_LINES_MAX: usize = 600;

/// The longest function of a script for Redis, in lines. Clippy bounds those in Rust (`too-many-lines-threshold`).
const LUA_FUNCTION_LINES_MAX: usize = 60;

/// Of 100 exported items of the product at most this many have no documentation.
const UNDOCUMENTED_PERCENT_MAX: usize = 5;

/// Words that leave out of whom or of what a sentence speaks. A noun says it: the caller, the session, the replica.
const BANNED: &[&str] = &[
    "anew",
    "any more",
    "anybody",
    "everybody",
    "nobody",
    "no more",
    "somebody",
    "unasked",
    "whatever",
    "whoever",
];

/// Phrases that the help, texts and comments of the product do not have: a verb of the field says it shorter.
const NOT_IDIOMATIC: &[&str] = &[
    "begin of",
    "beside",
    "better set",
    "by turns",
    "go on",
    "goes on",
    "going on",
    "hear of",
    "hears of",
    "in earnest",
    "lead back",
    "leads back",
    "let go",
    "may go",
    "mend",
    "mended",
    "mends",
    "say so",
    "says so",
    "stand in",
    "stands",
    "tell of",
    "tells of",
    "told",
    "what waits",
];

#[test]
fn every_source_file_says_what_it_is_for() {
    let mut without = Vec::new();
    for source in sources() {
        let first = source
            .text
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default();
        let head = if source.is_lua() { "--" } else { "//!" };
        if !first.starts_with(head) {
            without.push(source.path);
        }
    }
    assert!(
        without.is_empty(),
        "these files do not begin with a comment that says what they are for: {without:#?}"
    );
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|source| (source.text.lines().count(), source.path))
        .filter(|(lines, _)| *lines > FILE_LINES_MAX)
        .collect();
    assert!(
        long.is_empty(),
        "these files have more than {FILE_LINES_MAX} lines: {long:#?}"
    );
}

#[test]
fn no_function_of_a_script_is_longer_than_a_screen() {
    let mut long = Vec::new();
    for source in sources().iter().filter(|source| source.is_lua()) {
        for (name, lines) in lua_functions(&source.text) {
            if lines > LUA_FUNCTION_LINES_MAX {
                long.push((source.path.clone(), name, lines));
            }
        }
    }
    assert!(
        long.is_empty(),
        "these functions have more than {LUA_FUNCTION_LINES_MAX} lines: {long:#?}"
    );
}

#[test]
fn comments_name_their_subject_in_plain_english() {
    let mut found = Vec::new();
    for source in sources() {
        let is_idiomatic = source.is_product() && !source.is_lua();
        let phrases = || BANNED.iter().chain(NOT_IDIOMATIC.iter().filter(|_| is_idiomatic));
        for (number, line) in source.text.lines().enumerate() {
            let Some(comment) = source.comment(line) else { continue };
            let comment = comment.to_lowercase();
            let comment = comment.replace("no more than", "at most");
            for word in phrases() {
                if has_word(&comment, word) {
                    found.push(format!("{}:{}: {word}", source.path, number + 1));
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "name the subject, or use the verb of the field, where these words are: {found:#?}"
    );
}

/// Words of documents that a reader has to read twice: a verb with a subject says the same.
const BANNED_IN_DOCUMENTS: &[&str] = &[
    "any of them may go",
    "begin of",
    "by turns",
    "goes on",
    "in earnest",
    "leads back",
    "mend",
    "mended",
    "mends",
    "says so",
    "stand",
    "standing",
    "stands",
    "tell of",
    "tells of",
    "told",
    "what waits",
];

/// The folders of documents. Decisions are records of their time, and the glossary explains the words of the sources.
const DOCUMENTS: &[&str] = &["", "docs", "docs/benchmarks"];

#[test]
fn documents_use_plain_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut found, mut read) = (Vec::new(), 0);
    for folder in DOCUMENTS {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "md") || path.ends_with("glossary.md") {
                continue;
            }
            read += 1;
            let text = fs::read_to_string(&path).unwrap();
            for (number, line) in hand_written(&text) {
                // Names of the program are in backquotes.
                let line: String = line.to_lowercase().split('`').step_by(2).collect();
                for word in BANNED
                    .iter()
                    .chain(BANNED_IN_DOCUMENTS)
                    .filter(|word| has_word(&line, word))
                {
                    let path = path.strip_prefix(root).unwrap();
                    found.push(format!("{}:{number}: {word}", path.display()));
                }
            }
        }
    }
    assert!(read > 25, "only {read} documents are found");
    assert!(found.is_empty(), "these words are not plain: {found:#?}");
}

/// The lines of a document that are neither in a fenced block nor made from the code, with their numbers.
fn hand_written(text: &str) -> Vec<(usize, &str)> {
    let (mut is_fenced, mut is_made) = (false, false);
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        is_fenced ^= line.starts_with("```");
        let is_comment = line.starts_with("<!-- ");
        is_made = (is_made || is_comment && line.ends_with(": begin -->")) && !line.ends_with(": end -->");
        if !is_fenced && !is_made && !is_comment {
            lines.push((at + 1, line));
        }
    }
    lines
}

#[test]
fn help_errors_and_logs_are_plain_english() {
    let mut found = Vec::new();
    let phrases = || BANNED.iter().chain(NOT_IDIOMATIC);
    let program = cli::command();
    for (words, help) in helps("mcp-broker", &program) {
        let help = help.to_lowercase();
        found.extend(
            phrases()
                .filter(|phrase| has_word(&help, phrase))
                .map(|phrase| format!("{words}: {phrase}")),
        );
    }
    for source in sources()
        .iter()
        .filter(|source| source.is_product() && !source.is_test() && !source.is_lua())
    {
        let text = source
            .text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        for (line, literal) in literals(text) {
            // A literal of one word is a name: of a field, a setting, a state.
            let literal = literal.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
            let is_text = literal.contains(' ');
            let found_here = phrases().filter(|phrase| is_text && has_word(&literal, phrase));
            found.extend(found_here.map(|phrase| format!("{}:{line}: {phrase}", source.path)));
        }
    }
    assert!(found.is_empty(), "plain English says these in another way: {found:#?}");
}

#[test]
fn exported_items_are_documented() {
    let (mut items, mut undocumented) = (0, Vec::new());
    let product = sources().into_iter().filter(|source| source.is_product());
    for source in product {
        let lines: Vec<_> = source.text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            if !exports(line) {
                continue;
            }
            items += 1;
            let before = lines[..number].iter().rev().map(|line| line.trim());
            let mut before = before;
            let above = before.find(|line| !line.starts_with("#[") && *line != ")]");
            if !above.is_some_and(|line| line.starts_with("///") || line.starts_with("#[doc")) {
                undocumented.push(format!("{}:{}: {}", source.path, number + 1, line.trim()));
            }
        }
    }
    let percent = undocumented.len() * 100 / items;
    assert!(
        percent <= UNDOCUMENTED_PERCENT_MAX,
        "{} of {items} exported items have no documentation: {undocumented:#?}",
        undocumented.len()
    );
}

#[test]
fn the_checks_find_what_they_look_for() {
    assert!(has_word("nobody knows", "nobody") && !has_word("whateverable", "whatever"));
    assert!(exports("    pub(crate) async fn f() {") && !exports("    publish();") && !exports("pub mod x;"));
    let page = "a\n```\nb\n```\n<!-- x: begin -->\nc\n<!-- x: end -->\nd";
    let lines: Vec<_> = hand_written(page)
        .into_iter()
        .filter(|(_, line)| *line != "```")
        .collect();
    assert_eq!(lines, [(1, "a"), (8, "d")]);
    assert_eq!(
        literals("let a = \"one \\\"two\\\"\"; // \"no\"\nlet c = '\"'; f(r#\"thr\"ee\"#)"),
        [(1, "one \\\"two\\\"".to_owned()), (2, "thr\"ee".to_owned())]
    );
    let script = "local function one()\n  if x then\n  end\nend\n\nops.two = function(a)\n  return a\nend\n";
    assert_eq!(
        lua_functions(script),
        [("one".to_owned(), 4), ("ops.two".to_owned(), 3)]
    );
}

struct Source {
    /// From the root of the repository.
    path: String,
    text: String,
}

impl Source {
    fn is_lua(&self) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|extension| extension == "lua")
    }

    /// Whether the file has tests of the product and nothing else.
    fn is_test(&self) -> bool {
        self.path.contains("tests/")
            || self
                .path
                .split('/')
                .next_back()
                .is_some_and(|name| name.contains("tests"))
    }

    fn is_product(&self) -> bool {
        let folder = self.path.split('/').next().unwrap_or_default();
        [
            "actors", "api", "cli", "common", "front", "lens", "rest", "schema", "src", "storage",
        ]
        .contains(&folder)
            && !self.path.starts_with("actors/tests/")
    }

    /// The comment that fills a line.
    fn comment<'a>(&self, line: &'a str) -> Option<&'a str> {
        line.trim_start().strip_prefix(if self.is_lua() { "--" } else { "//" })
    }
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// Each shown command below a command, itself included, with the texts of its help.
fn helps(words: &str, command: &clap::Command) -> Vec<(String, String)> {
    let own = [
        command.get_about(),
        command.get_long_about(),
        command.get_after_help(),
        command.get_after_long_help(),
    ];
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let args = args.flat_map(|arg| [arg.get_help(), arg.get_long_help()]);
    let texts: Vec<_> = own.into_iter().chain(args).flatten().map(ToString::to_string).collect();
    let mut all = vec![(words.to_owned(), texts.join("\n"))];
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        all.extend(helps(&format!("{words} {}", below.get_name()), below));
    }
    all
}

/// The literals of text in Rust, each with its line.
fn literals(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (before, tail) = rest.split_at(at);
        let line = 1 + text[..text.len() - tail.len()].matches('\n').count();
        let len = if tail.starts_with("//") {
            tail.find('\n').unwrap_or(tail.len())
        } else if let Some(body) = tail.strip_prefix('"') {
            let hashes = before.trim_end_matches('#');
            let is_raw = hashes.ends_with('r') && !hashes.ends_with("_r");
            let end = format!("\"{}", "#".repeat(before.len() - hashes.len()));
            let len = if is_raw { body.find(&end) } else { end_of_literal(body) }.unwrap_or(body.len());
            found.push((line, body[..len].to_owned()));
            len + 1 + if is_raw { end.len() } else { 1 }
        } else if tail.starts_with("'\"'") {
            3
        } else if tail.starts_with("'\\") {
            4
        } else {
            1
        };
        rest = tail.get(len..).unwrap_or_default();
    }
    found
}

/// Where a literal ends that is not raw.
fn end_of_literal(body: &str) -> Option<usize> {
    let mut is_escaped = false;
    body.char_indices().find_map(|(at, c)| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

/// Whether a line of Rust begins an item that other files can use. A module is documented in its own file.
fn exports(line: &str) -> bool {
    let Some(rest) = line.trim_start().strip_prefix("pub") else {
        return false;
    };
    let rest = rest
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
        .map_or(rest, |(_, rest)| rest);
    let mut words = rest
        .split_whitespace()
        .skip_while(|word| ["async", "const", "unsafe"].contains(word));
    let is_constant = rest.trim_start().starts_with("const ") && rest.contains(':') && !rest.contains("fn ");
    let is_item = words
        .next()
        .is_some_and(|word| ["enum", "fn", "static", "struct", "trait", "type"].contains(&word));
    rest.starts_with(' ') && (is_constant || is_item)
}

/// The functions of a script with their lengths in lines: a function ends at an `end` of its own indentation.
fn lua_functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<_> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let indentation = &line[..line.len() - line.trim_start().len()];
        let line = line.trim_start().trim_start_matches("local ");
        let name = match line.strip_prefix("function ") {
            Some(rest) => rest.split('(').next(),
            None => line.split_once(" = function").map(|(name, _)| name),
        };
        let Some(name) = name else { continue };
        let end = format!("{indentation}end");
        let len = lines[start..]
            .iter()
            .position(|line| line.starts_with(&end))
            .map_or(1, |at| at + 1);
        found.push((name.to_owned(), len));
    }
    found
}

/// All sources in Rust and Lua.
fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open: Vec<PathBuf> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                let is_built = path.ends_with("target") || path.ends_with("node_modules");
                if !is_built {
                    open.push(path);
                }
            } else if path
                .extension()
                .is_some_and(|extension| extension == "rs" || extension == "lua")
            {
                let text = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                found.push(Source { path, text });
            }
        }
    }
    assert!(found.len() > 100, "the sources are found");
    found
}
