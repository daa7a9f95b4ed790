//! Checks the import direction of the crates and the use of clocks by reading the sources.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The modules of this crate from the bottom up, each with the modules that it may import. A module that is missing
/// here fails the test: give it a place.
const LAYERS: &[(&str, &[&str])] = &[
    ("faults", &[]),
    ("clock", &["faults"]),
    ("silence", &["clock"]),
    ("ops", &[]),
    ("rate", &["clock"]),
    ("negotiate", &["model"]),
    ("model", &["clock", "negotiate"]),
    ("bridge", &["model"]),
    ("storage", &["bridge", "clock", "model"]),
    ("supervise", &["clock", "model"]),
    ("registry", &["clock", "model", "ops", "storage", "supervise"]),
    ("session", &["clock", "model", "ops", "silence", "storage", "supervise"]),
    // The router may import the parts of the project that are no actors: its directory and its settings.
    (
        "router",
        &["clock", "model", "ops", "project", "session", "storage", "supervise"],
    ),
    (
        "project",
        &[
            "bridge",
            "clock",
            "faults",
            "model",
            "negotiate",
            "ops",
            "rate",
            "registry",
            "router",
            "session",
            "storage",
            "supervise",
        ],
    ),
    (
        "broker",
        &[
            "bridge",
            "clock",
            "model",
            "ops",
            "project",
            "rate",
            "session",
            "storage",
            "supervise",
        ],
    ),
];

/// Modules of pure decisions, by the beginning or the end of their path.
const PURE: &[&str] = &[
    "bridge/frame.rs",
    "bridge/frame_sequence.rs",
    "model/",
    "negotiate.rs",
    "project/heartbeats.rs",
    "registry/schema/",
    "registry/catalog.rs",
    "session/lease_sequence.rs",
    "session/ownership",
    "session/push",
    "session/receives",
    "session/state",
    "storage/inbox.rs",
    "storage/receipts",
    "storage/memory/",
    "state.rs",
];

#[test]
fn a_module_of_the_actors_imports_only_modules_below_it() {
    let layers: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let mut wrong = Vec::new();
    for source in sources("actors/src") {
        let module = source.module();
        if module == "lib" {
            continue;
        }
        let Some(allowed) = layers.get(module.as_str()) else {
            wrong.push(format!("{}: {module} has no layer", source.path));
            continue;
        };
        for import in source.imports() {
            if import != module && !allowed.contains(&import.as_str()) {
                wrong.push(format!("{}: {module} imports {import}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_router_imports_only_the_directory_and_the_settings_of_its_project() {
    for source in sources("actors/src") {
        if source.module() == "router" {
            for name in ["ProjectHandle", "project::Project", "project::messages"] {
                assert!(!source.text.contains(name), "{}: {name}", source.path);
            }
        }
    }
}

#[test]
fn pure_modules_import_no_runtime_and_read_no_clock() {
    let mut wrong = Vec::new();
    for source in sources("actors/src").iter().filter(|source| source.is_pure()) {
        for word in ["actix", "tokio::time", "tokio::spawn", "clock::now"] {
            if source.text.contains(word) {
                wrong.push(format!("{}: {word}", source.path));
            }
        }
        if source.path.ends_with("state.rs") && source.text.contains("tokio") {
            wrong.push(format!("{}: tokio", source.path));
        }
        let now_of_clock = source.text.contains("clock::{") && source.imported_from("clock").contains("now");
        if now_of_clock {
            wrong.push(format!("{}: clock::now", source.path));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn one_module_reads_the_clocks() {
    let mut wrong = Vec::new();
    for source in sources("actors/src") {
        if source.path.ends_with("src/clock.rs") {
            continue;
        }
        // `Uuid::now_v7` reads a clock too. No decision depends on the time in an id.
        for word in ["Instant", "SystemTime", "clock_gettime"] {
            if source.text.contains(word) {
                wrong.push(format!("{}: {word}", source.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_actors_depend_on_no_crate_for_sockets_stores_or_terminals() {
    let manifest = fs::read_to_string(root().join("actors/Cargo.toml")).unwrap();
    let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
    for line in dependencies.lines() {
        let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
        for foreign in [
            "actix-http",
            "actix-server",
            "actix-web",
            "actix-web-actors",
            "awc",
            "axum",
            "clap",
            "config",
            "crossterm",
            "fred",
            "hyper",
            "mcp-broker",
            "mio",
            "ratatui",
            "redis",
            "reqwest",
            "rmcp",
            "rustls",
            "socket2",
            "tokio-tungstenite",
            "tracing-subscriber",
            "tungstenite",
        ] {
            assert_ne!(name, foreign, "actors/Cargo.toml");
        }
    }
}

#[test]
fn outside_the_actors_only_startup_imports_all_parts() {
    let forbidden: &[(&str, &[&str])] = &[
        (
            "auth",
            &[
                "admin",
                "mcp",
                "transport",
                "http",
                "startup",
                "cli",
                "config",
                "telemetry",
            ],
        ),
        (
            "admin",
            &["mcp", "transport", "http", "startup", "cli", "config", "telemetry"],
        ),
        (
            "refusal",
            &["admin", "auth", "mcp", "transport", "http", "startup", "cli", "config"],
        ),
        (
            "budget",
            &[
                "admin",
                "auth",
                "mcp",
                "transport",
                "http",
                "startup",
                "cli",
                "config",
                "problem",
                "refusal",
            ],
        ),
        (
            "problem",
            &["admin", "auth", "mcp", "transport", "http", "startup", "cli", "config"],
        ),
        ("cli", &["admin", "auth", "mcp", "transport", "http"]),
        ("mcp", &["transport", "http", "startup", "cli", "config", "telemetry"]),
        ("transport", &["http", "startup", "cli", "config", "telemetry"]),
        ("http", &["startup", "cli"]),
        ("storage", &["mcp", "transport", "http", "startup", "cli"]),
        ("bridge", &["mcp", "transport", "http", "startup", "cli"]),
        ("config", &["mcp", "transport", "http", "startup"]),
        ("telemetry", &["mcp", "transport", "http", "startup"]),
    ];
    let mut wrong = Vec::new();
    for source in sources("src") {
        let module = source.module();
        let imports = source.imports();
        let rules = forbidden.iter().filter(|(of, _)| *of == module);
        for import in rules.flat_map(|(_, forbidden)| forbidden.iter()) {
            if imports.contains(*import) {
                wrong.push(format!("{}: {module} imports {import}", source.path));
            }
        }
        if imports.contains("startup") && module != "cli" {
            wrong.push(format!("{}: only the command line starts the program", source.path));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_source_reader_finds_imports_and_skips_comments() {
    let source = Source {
        path: "actors/src/session/state.rs".to_owned(),
        text: code(
            "use crate::{\n    clock::{Now, now}, // crate::hidden\n    model::X,\n};\nfn f() { crate::storage::g() }\n\
             #[cfg(test)]\nmod tests {\n    use crate::broker;\n}\n",
        ),
    };
    assert_eq!(source.module(), "session");
    let imports: Vec<_> = source.imports().into_iter().collect();
    assert_eq!(imports, ["clock", "model", "storage"]);
    assert!(source.imported_from("clock").contains("now"));
    assert!(source.is_pure());
}

/// A source file without its comments and its tests.
struct Source {
    /// The path from the root of the repository.
    path: String,
    text: String,
}

impl Source {
    /// The module directly under the root of its crate.
    fn module(&self) -> String {
        let inside = self.path.split_once("src/").unwrap().1;
        let first = inside.split('/').next().unwrap();
        first.trim_end_matches(".rs").to_owned()
    }

    fn is_pure(&self) -> bool {
        let inside = self.path.split_once("src/").unwrap().1;
        PURE.iter()
            .any(|pure| inside.starts_with(pure) || inside.ends_with(pure))
    }

    /// The modules of its own crate that the file names.
    fn imports(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (at, prefix) in self.text.match_indices("crate::") {
            let boundary = self.text[..at].chars().next_back();
            if boundary.is_some_and(|before| before.is_alphanumeric() || before == '_') {
                continue;
            }
            let rest = &self.text[at + prefix.len()..];
            if let Some(group) = rest.strip_prefix('{') {
                found.extend(names(group));
            } else {
                found.insert(identifier(rest).to_owned());
            }
        }
        found
    }

    /// The items that the file imports by `module::{…}`.
    fn imported_from(&self, module: &str) -> BTreeSet<String> {
        let opening = format!("{module}::{{");
        let groups = self.text.match_indices(&opening);
        groups
            .flat_map(|(at, _)| names(&self.text[at + opening.len()..]))
            .collect()
    }
}

/// The first identifier of each item of a brace group, whose opening brace has been read.
fn names(group: &str) -> Vec<String> {
    let (mut depth, mut item, mut found) = (0, String::new(), Vec::new());
    for character in group.chars() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(identifier(item.trim()).to_owned());
                item.clear();
                continue;
            }
            _ => {}
        }
        item.push(character);
    }
    found.push(identifier(item.trim()).to_owned());
    found.retain(|name| !name.is_empty());
    found
}

fn identifier(text: &str) -> &str {
    let end = text.find(|character: char| !character.is_alphanumeric() && character != '_');
    &text[..end.unwrap_or(text.len())]
}

/// The code of a file as the compiler sees it in a build without tests.
fn code(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..tests].lines();
    lines
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect::<Vec<_>>()
        .join("\n")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All files under a folder except tests and the suites that tests call.
fn sources(folder: &str) -> Vec<Source> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let relative = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            let is_test = ["tests", "properties", "conformance"]
                .iter()
                .any(|name| path.file_stem().is_some_and(|stem| stem == *name));
            if is_test {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = code(&fs::read_to_string(&path).unwrap());
                found.push(Source { path: relative, text });
            }
        }
    }
    assert!(found.len() > 5, "{folder} has sources");
    found
}
