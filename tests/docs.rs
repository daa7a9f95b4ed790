//! The documentation matches the program: tables that are made from the code, commands with their options, paths and links.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt::Write,
    fs,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use actors::{
    model::{
        BackendFailure, BrokerError, BudgetFull, CrossProjectSide, MissingGrant, MissingSession, QuestionBudget, Scope,
        ToolSet, TransformFailure, TransformReason,
    },
    storage::disk::LAYOUT_VERSION,
};
use api::{mcp::tools, problem::Problem};
use common::{config::settings_markdown, refusal::error_detail};
use lens::{Direction, Example, LensError, TransformError};
use mcp_broker::{http::openapi, metrics::metrics_markdown};
use semver::Version;
use serde_json::Value;
use test_client::golden::assert_golden;
use uuid::Uuid;

/// Compares the part of a page between its marks, or writes it with `UPDATE_GOLDEN=1`.
fn check(page: &str, name: &str, expected: &str) {
    let path = format!("{}/docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (before, rest) = text
        .split_once(&begin)
        .expect("the page has the mark of the beginning of the table");
    let (_, after) = rest
        .split_once(&end)
        .expect("the page has the mark of the end of the table");
    assert_golden(path.as_ref(), &format!("{before}{begin}{expected}{end}{after}"));
}

/// The first sentence of a text, as a cell of a table.
fn first_sentence(text: &str) -> String {
    let text = text
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|");
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    text[..end].trim_end_matches('.').to_owned()
}

#[test]
fn the_table_of_settings_is_up_to_date() {
    check("configuration.md", "settings", &settings_markdown());
}

#[test]
fn the_table_of_metrics_is_up_to_date() {
    check("metrics.md", "metrics", &metrics_markdown());
}

/// Both tables in one test: each writes the whole page.
#[test]
fn the_tables_of_the_reference_are_up_to_date() {
    check("reference.md", "tools", &tools_table());
    check("reference.md", "errors", &errors_table());
}

fn tools_table() -> String {
    let listed = |set| tools::list(true, true, Scope::Operator, set);
    let has = |list: &Value, name: &str| list.as_array().unwrap().iter().any(|tool| tool["name"] == name);
    let (core, agent) = (listed(ToolSet::Core), listed(ToolSet::Agent));
    let mut table = "| tool | what it does | scope | listed from |\n|---|---|---|---|\n".to_owned();
    for tool in listed(ToolSet::Full).as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let what = first_sentence(tool["description"].as_str().unwrap());
        let scope = tools::find(name).unwrap().required_scope.as_str();
        let set = match () {
            () if has(&core, name) => "core",
            () if has(&agent, name) => "agent",
            () => "full",
        };
        writeln!(table, "| `{name}` | {what} | `{scope}` | `{set}` |").unwrap();
    }
    table
}

#[test]
fn the_table_of_requests_is_up_to_date() {
    let document: Value = serde_json::from_str(openapi::text()).unwrap();
    let mut rows: HashMap<&str, Vec<String>> = HashMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let what = first_sentence(operation["summary"].as_str().unwrap());
            let row = format!("| `{} {path}` | {what} |\n", method.to_uppercase());
            rows.entry(operation["tags"][0].as_str().unwrap())
                .or_default()
                .push(row);
        }
    }
    let mut text = String::new();
    for tag in document["tags"].as_array().unwrap() {
        let rows = rows.remove(tag["name"].as_str().unwrap()).unwrap();
        let about = tag["description"].as_str().unwrap();
        let rows = rows.concat();
        write!(text, "\n**{about}**\n\n| request | what it does |\n|---|---|\n{rows}").unwrap();
    }
    assert!(rows.is_empty(), "these have no tag of the document: {rows:?}");
    check("api.md", "requests", &format!("{text}\n"));
}

#[test]
fn the_table_of_commands_is_up_to_date() {
    let mut table = "| command | what it does |\n|---|---|\n".to_owned();
    for (words, command) in shown("mcp-broker", &cli::command()).into_iter().skip(1) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(table, "| `{words}` | {} |", first_sentence(&about)).unwrap();
    }
    check("cli.md", "commands", &table);
}

fn errors_table() -> String {
    let mut table = "| code | HTTP | members of `detail` | text |\n|---|---|---|---|\n".to_owned();
    for error in errors() {
        let detail = error_detail(&error);
        let members = detail.as_object().into_iter().flatten();
        let members: Vec<_> = members.map(|(name, _)| format!("`{name}`")).collect();
        let (code, status) = (error.code(), Problem::from(&error).status.as_u16());
        let text = error.to_string().replace('|', "\\|");
        writeln!(table, "| `{code}` | {status} | {} | {text} |", members.join(", ")).unwrap();
    }
    table
}

/// An error of each kind that a lens has.
fn lens_errors() -> [BrokerError; 4] {
    let text = |text: &str| text.to_owned();
    [
        BrokerError::LensNotFound {
            name: text("chat"),
            from: text("1.0.0"),
            version: text("2.0.0"),
        },
        BrokerError::InvalidLens(Box::new(LensError {
            reason: text("…"),
            op: Some(0),
            path: Some(text("/size")),
            direction: Some(Direction::Forward),
            example: Some(Example::Payload(Value::Null)),
        })),
        BrokerError::NoLens {
            name: text("chat"),
            from: Version::new(1, 0, 0),
            to: Version::new(2, 0, 0),
        },
        BrokerError::TransformFailed(Box::new(TransformFailure {
            from: Version::new(1, 0, 0),
            to: Version::new(2, 0, 0),
            reason: TransformReason::Fails(TransformError::CannotCarryOut {
                op: 0,
                path: text("/size").into(),
                reason: "…",
            }),
        })),
    ]
}

/// An error of each kind.
fn errors() -> Vec<BrokerError> {
    let text = |text: &str| text.to_owned();
    let (protocol, version) = (text("chat"), text("1.0.0"));
    let wait = Duration::from_secs(1);
    let errors = vec![
        BrokerError::AuthenticationFailed,
        BrokerError::forbidden("this requires a key of scope member"),
        BrokerError::ProjectMismatch,
        BrokerError::ProjectNotFound,
        BrokerError::TargetNotFound { id: text("acme") },
        BrokerError::ProjectExists { id: text("acme") },
        BrokerError::SessionRequired,
        BrokerError::SessionNotFound(MissingSession::own("ID")),
        BrokerError::SessionNotFound(MissingSession::other("alcie", vec![text("alice")])),
        BrokerError::SessionTakenOver,
        BrokerError::ProtocolNotFound {
            name: protocol.clone(),
            version: text("2.0.0"),
            versions: vec![version.clone()],
        },
        BrokerError::ProtocolExists {
            name: protocol.clone(),
            version: version.clone(),
            differs: vec!["schema"],
        },
        BrokerError::InvalidSchema { reason: text("…") },
        BrokerError::PayloadInvalid { failures: Vec::new() },
        BrokerError::IncompatibleProtocol {
            recipient: text("bob"),
            name: protocol,
            version,
            speaks: Vec::new(),
            suggestions: vec![text("…")],
        },
        BrokerError::QueueFull(BudgetFull::queue_messages(1000)),
        BrokerError::RecipientFull,
        BrokerError::RateLimited { retry_after: wait },
        BrokerError::CrossProjectDisabled {
            side: CrossProjectSide::Sender,
        },
        BrokerError::CrossProjectForbidden {
            wall: MissingGrant::Project,
        },
        BrokerError::PayloadTooLarge { limit: 10_485_760 },
        BrokerError::invalid("limit", "…"),
        BrokerError::QuestionNotFound { id: Uuid::nil() },
        BrokerError::QuestionClosed {
            state: "answered",
            by: Some(text("mara")),
            at_ms: 0,
        },
        BrokerError::RevisionMismatch { revision: 3 },
        BrokerError::QuestionsFull {
            which: QuestionBudget::Session,
            limit: 100,
        },
        BrokerError::CallNotFound { id: text("ID") },
        BrokerError::Timeout,
        BrokerError::unavailable(),
        BrokerError::StorageFull,
        BrokerError::EarlierReplica,
    ];
    let errors: Vec<_> = errors
        .into_iter()
        .chain(failures().into_iter().map(BrokerError::from))
        .chain(lens_errors())
        .collect();
    let kinds: HashSet<_> = errors.iter().map(std::mem::discriminant).collect();
    assert_eq!(kinds.len(), variants("error.rs", "BrokerError"), "one of each kind");
    errors
}

/// The number of variants of an enum of errors, each of which has a text.
fn variants(file: &str, name: &str) -> usize {
    let path = format!("{}/actors/src/model/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once(&format!("pub enum {name} {{")).unwrap();
    rest.split_once("\n}\n").unwrap().0.matches("#[error(").count()
}

/// A failure of each kind of the gateway.
fn failures() -> Vec<BackendFailure> {
    use BackendFailure as F;
    let name = || "docs".to_owned();
    let reason = || "…".to_owned();
    let failures = vec![
        F::NotFound { name: name() },
        F::Exists { name: name() },
        F::CommandNotAllowed { backend: name() },
        F::Unavailable {
            backend: name(),
            state: "failed",
            reason: Some(reason()),
            retry_after: None,
        },
        F::Busy {
            backend: name(),
            reason: "…",
        },
        F::TooManyCalls { backend: name() },
        F::Died {
            backend: name(),
            how: "exit status 1".to_owned(),
        },
        F::Http {
            backend: name(),
            status: 500,
            reason: reason(),
            retry_after: None,
        },
        F::Protocol {
            backend: name(),
            reason: reason(),
        },
        F::TooLarge {
            backend: name(),
            limit: 10_485_760,
        },
        F::GivenUp { backend: name() },
        F::NoRoom { backend: name() },
        F::TimedOut {
            backend: name(),
            after: Duration::from_mins(1),
        },
        F::ShuttingDown { backend: name() },
        F::Cancelled { backend: name() },
    ];
    let kinds: HashSet<_> = failures.iter().map(std::mem::discriminant).collect();
    assert_eq!(
        kinds.len(),
        variants("backend_failure.rs", "BackendFailure"),
        "one of each kind"
    );
    failures
}

#[test]
fn the_pages_name_the_present_version_of_data() {
    let shown = format!(
        "the data have version {}, and this broker reads versions up to {LAYOUT_VERSION}: ",
        LAYOUT_VERSION + 1
    );
    assert!(page("operations.md").contains(&shown), "operations.md shows: {shown}");
    for (name, text) in [
        (
            "operations.md",
            format!("reads the layouts 1 to {LAYOUT_VERSION} on disk and writes 5, or {LAYOUT_VERSION} with lenses;"),
        ),
        (
            "../CHANGELOG.md",
            format!("has layout 5, or {LAYOUT_VERSION} with lenses: this version reads 1 to {LAYOUT_VERSION}."),
        ),
    ] {
        assert!(page(name).contains(&text), "{name} has no: {text}");
    }
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

/// All files of the repository, from its root, without what is built or downloaded.
fn files() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut open, mut found) = (vec![root.to_owned()], BTreeSet::new());
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_symlink() || ["target", "node_modules", ".git"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_string_lossy().into_owned());
            }
        }
    }
    found
}

fn has_extension(path: &str, among: &[&str]) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|extension| among.iter().any(|known| extension == *known))
}

/// Lines of a document outside of fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((at + 1, line))
    })
}

/// The words of a line that name a file or a folder of the repository: in a document what stands in backquotes, in a comment
/// each word that ends like a source or a document.
fn named_paths<'a>(file: &str, line: &'a str, top: &HashSet<String>) -> Vec<&'a str> {
    let is_path =
        |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_.-/".contains(c));
    if has_extension(file, &["md"]) {
        let in_backquotes = line.split('`').skip(1).step_by(2).filter(is_path);
        let is_ours = |word: &&str| {
            let first = word.split_once('/').map(|(first, _)| first);
            let describes_the_tree = file == "ARCHITECTURE.md" || file == "CONTRIBUTING.md";
            first.is_some_and(|first| top.contains(first))
                || has_extension(word, &["rs", "lua"])
                || describes_the_tree && word.ends_with('/') && !word.starts_with('/')
        };
        return in_backquotes.filter(is_ours).collect();
    }
    let line = line.trim_start();
    if !line.starts_with(if has_extension(file, &["lua"]) { "--" } else { "//" }) || line.contains("://") {
        return Vec::new();
    }
    let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || "_.-/:".contains(c)));
    let words = words.map(|word| word.trim_matches(['.', ':', '/', '-']));
    words
        .filter(|word| is_path(word) && has_extension(word, &["rs", "lua", "md"]))
        .collect()
}

#[test]
fn each_path_that_a_document_or_a_comment_names_exists() {
    let files = files();
    // Every end of the path of a file or a folder: a comment names a file from its own room.
    let mut ends: HashSet<&str> = HashSet::new();
    for file in &files {
        for path in Path::new(file).ancestors().filter_map(Path::to_str) {
            ends.insert(path);
            ends.extend(path.match_indices('/').map(|(at, _)| &path[at + 1..]));
        }
    }
    // Folders with a dot are those of users, too.
    let first = |file: &String| Some(file.split_once('/')?.0.to_owned());
    let top = files.iter().filter_map(first).filter(|folder| !folder.starts_with('.'));
    let top: HashSet<String> = top.collect();
    let (mut missing, mut named) = (Vec::new(), 0);
    for file in files
        .iter()
        .filter(|file| has_extension(file, &["md", "rs", "lua", "js"]))
    {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        let lines: Vec<_> = if has_extension(file, &["md"]) {
            prose(&text).collect()
        } else {
            (1..).zip(text.lines()).collect()
        };
        for (number, line) in lines {
            for path in named_paths(file, line, &top) {
                named += 1;
                if !ends.contains(path.trim_end_matches('/')) {
                    missing.push(format!("{file}:{number}: {path}"));
                }
            }
        }
    }
    assert!(named > 300, "only {named} paths are found");
    assert!(missing.is_empty(), "these do not exist: {missing:#?}");
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let contents = page("README.md");
    let files = files();
    let pages = files.iter().filter_map(|file| file.strip_prefix("docs/"));
    let pages = pages.filter(|page| has_extension(page, &["md"]) && !page.contains('/') && *page != "README.md");
    let missing: Vec<_> = pages.filter(|page| !contents.contains(&format!("]({page})"))).collect();
    assert!(missing.is_empty(), "docs/README.md has no line for {missing:?}");
}

/// The anchors of a document: its headings as GitHub names them.
fn anchors(text: &str) -> HashSet<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(|(_, line)| anchor(line)).collect()
}

#[test]
fn each_link_of_a_document_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut broken, mut followed) = (Vec::new(), 0);
    for file in files().iter().filter(|file| has_extension(file, &["md"])) {
        let text = fs::read_to_string(root.join(file)).unwrap();
        for (number, line) in prose(&text) {
            for target in line
                .split("](")
                .skip(1)
                .filter_map(|rest| Some(rest.split_once(')')?.0))
            {
                if target.contains("://") || target.contains(' ') {
                    continue;
                }
                followed += 1;
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = match path {
                    "" => PathBuf::from(file),
                    path => normal(&Path::new(file).with_file_name("").join(path)),
                };
                let is_there = match fs::read_to_string(root.join(&path)) {
                    Ok(text) => anchor.is_empty() || anchors(&text).contains(anchor),
                    Err(_) => anchor.is_empty() && root.join(&path).exists(),
                };
                if !is_there {
                    broken.push(format!("{file}:{number}: {target}"));
                }
            }
        }
    }
    assert!(followed > 200, "only {followed} links are found");
    assert!(broken.is_empty(), "these lead nowhere: {broken:#?}");
}

/// A path without `..`.
fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

#[test]
fn the_checks_of_paths_and_links_find_what_they_look_for() {
    let top = HashSet::from(["src".to_owned()]);
    let named = |file, line| named_paths(file, line, &top);
    assert_eq!(
        named("a.md", "`src/a.txt` and `b.rs`, not `c.py` or d.rs"),
        ["src/a.txt", "b.rs"]
    );
    assert_eq!(named("ARCHITECTURE.md", "`mcp/`, not `/api/v1/`"), ["mcp/"]);
    assert_eq!(named("a.rs", "/// See docs/a.md, and `b.rs`."), ["docs/a.md", "b.rs"]);
    assert_eq!(named("a.rs", "let path = \"b.rs\";"), [""; 0]);
    let headings = anchors("# One `two`\n```\n# no\n```\n## What's up, doc?\n");
    assert_eq!(headings, ["one-two", "whats-up-doc"].map(str::to_owned).into());
}
