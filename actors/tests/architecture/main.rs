//! Checks the import direction of the crates and the use of clocks by reading the sources.

mod graph;
mod reader;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use self::{
    graph::Graph,
    reader::{Source, code, root, sources},
};

/// The modules of this crate from the bottom up, each with the modules that it may import. A module that is missing
/// here fails the test: give it a place.
const LAYERS: &[(&str, &[&str])] = &[
    ("faults", &[]),
    ("clock", &["faults"]),
    ("silence", &["clock"]),
    ("ops", &[]),
    ("rate", &["clock"]),
    ("model", &["clock"]),
    ("negotiate", &["model"]),
    ("bridge", &["model"]),
    ("storage", &["bridge", "clock", "model"]),
    ("supervise", &["clock", "model"]),
    ("registry", &["clock", "model", "ops", "storage", "supervise"]),
    ("session", &["clock", "model", "ops", "silence", "storage", "supervise"]),
    ("directory", &["clock", "model", "session"]),
    ("policy", &["model", "rate", "session", "supervise"]),
    (
        "router",
        &[
            "clock",
            "directory",
            "model",
            "ops",
            "policy",
            "session",
            "storage",
            "supervise",
        ],
    ),
    (
        "project",
        &[
            "bridge",
            "clock",
            "directory",
            "faults",
            "model",
            "negotiate",
            "ops",
            "policy",
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
            "policy",
            "project",
            "rate",
            "session",
            "storage",
            "supervise",
        ],
    ),
];

/// The cycles of files that are allowed.
const KNOWN_CYCLES: &[&[&str]] = &[];

/// Modules of pure decisions, by the beginning or the end of its path.
const PURE: &[&str] = &[
    "bridge/frame.rs",
    "bridge/frame_sequence.rs",
    "bridge/delivery_batch.rs",
    "model/",
    "negotiate.rs",
    "project/heartbeats.rs",
    "project/registration.rs",
    "project/pending_puts.rs",
    "project/resync.rs",
    "registry/schema/",
    "registry/catalog.rs",
    "session/lease_sequence.rs",
    "session/ownership",
    "session/push",
    "session/receives",
    "session/state",
    "storage/state/",
    "state.rs",
];

fn is_pure(source: &Source) -> bool {
    let inside = source.path.split_once("src/").unwrap().1;
    PURE.iter()
        .any(|pure| inside.starts_with(pure) || inside.ends_with(pure))
}

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
fn every_layer_is_listed_above_the_layers_it_imports() {
    let mut below = BTreeSet::new();
    for (module, allowed) in LAYERS {
        for import in *allowed {
            assert!(
                below.contains(import),
                "{module} imports {import}, which is not below it"
            );
        }
        below.insert(*module);
    }
}

#[test]
fn no_files_of_the_actors_import_each_other_in_a_cycle() {
    let is_known = |cycle: &Vec<String>| {
        let is_in = |known: &[&str], path: &String| known.iter().any(|known| path.ends_with(known));
        KNOWN_CYCLES
            .iter()
            .any(|known| cycle.iter().all(|path| is_in(known, path)))
    };
    let mut cycles = Graph::new(sources("actors/src")).cycles();
    cycles.retain(|cycle| !is_known(cycle));
    assert!(cycles.is_empty(), "{cycles:#?}");
}

#[test]
fn a_file_that_calls_itself_pure_is_listed_as_pure() {
    let claims = |source: &&Source| source.head.contains("Pure.") || source.head.contains("Pure:");
    let wrong: Vec<_> = sources("actors/src")
        .iter()
        .filter(claims)
        .filter(|source| !is_pure(source))
        .map(|source| source.path.clone())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn pure_modules_import_no_runtime_and_read_no_clock() {
    let mut wrong = Vec::new();
    for source in sources("actors/src").iter().filter(|source| is_pure(source)) {
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
fn a_cycle_is_found_through_re_exports() {
    let source = |path: &str, text: &str| Source {
        path: format!("actors/src/{path}"),
        head: String::new(),
        text: text.to_owned(),
    };
    let files = |leaf: &str| {
        vec![
            source("lib.rs", "pub mod store;\n"),
            source(
                "store/mod.rs",
                "mod index;\nmod entry;\npub use index::{Index, Key as IndexKey};\npub struct Store;\n",
            ),
            source(
                "store/index.rs",
                "use super::entry;\npub struct Index(entry::Entry);\npub struct Key;\n",
            ),
            source("store/entry.rs", leaf),
        ]
    };
    let cycles = |leaf: &str| Graph::new(files(leaf)).cycles();
    assert_eq!(
        cycles("use super::Store;\npub struct Entry(Store);\n"),
        Vec::<Vec<String>>::new()
    );
    let cycle = ["actors/src/store/entry.rs", "actors/src/store/index.rs"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(
        cycles("use crate::store::{Store, IndexKey};\npub struct Entry(IndexKey);\n"),
        std::slice::from_ref(&cycle)
    );
    assert_eq!(cycles("pub struct Entry(super::Index);\n"), [cycle]);
}

#[test]
fn the_source_reader_finds_imports_and_skips_comments() {
    let source = Source {
        path: "actors/src/session/state.rs".to_owned(),
        head: String::new(),
        text: code(
            "use crate::{\n    clock::{Now, now}, // crate::hidden\n    model::X,\n};\nfn f() { crate::storage::g() }\n\
             #[cfg(test)]\nmod tests {\n    use crate::broker;\n}\n",
        ),
    };
    assert_eq!(source.module(), "session");
    let imports: Vec<_> = source.imports().into_iter().collect();
    assert_eq!(imports, ["clock", "model", "storage"]);
    assert!(source.imported_from("clock").contains("now"));
    assert!(is_pure(&source));
}
