//! Checks that the decisions of the actors are pure: one file reads the clocks, pure files know no runtime, and the crate
//! depends on nothing that touches the world.

use std::fs;

use super::sources::{Source, Sources, root};

/// Modules of pure decisions, by the beginning or the end of its path.
const PURE: &[&str] = &[
    "bridge/frame.rs",
    "desk/load.rs",
    "desk/state",
    "desk/yap_rates.rs",
    "gateway/addresses.rs",
    "gateway/call.rs",
    "gateway/routing_table.rs",
    "gateway/life.rs",
    "gateway/listing.rs",
    "gateway/lists.rs",
    "gateway/names.rs",
    "gateway/sound_items.rs",
    "gateway/announced_lists.rs",
    "gateway/turns.rs",
    "model/",
    "negotiate.rs",
    "project/heartbeats.rs",
    "project/registration.rs",
    "project/reports.rs",
    "project/pending_puts.rs",
    "project/resync.rs",
    "registry/schema/",
    "registry/catalog.rs",
    "session/ownership",
    "session/push",
    "session/receives",
    "session/state",
    "session/waking",
    "storage/state/",
    "state.rs",
];

fn is_pure(source: &Source) -> bool {
    let inside = source.file.split_once("src/").unwrap().1;
    PURE.iter()
        .any(|pure| inside.starts_with(pure) || inside.ends_with(pure))
}

#[test]
fn a_file_that_calls_itself_pure_is_listed_as_pure() {
    let mut wrong = Vec::new();
    for (_, source) in Sources::read("actors/src").iter() {
        let claims = source.head.contains("Pure.") || source.head.contains("Pure:");
        if claims && !is_pure(source) {
            wrong.push(source.file.clone());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn pure_modules_import_no_runtime_and_read_no_clock() {
    let sources = Sources::read("actors/src");
    let mut wrong = Vec::new();
    for (module, source) in sources.iter().filter(|(_, source)| is_pure(source)) {
        for word in ["actix", "tokio::time", "tokio::spawn", "clock::now"] {
            if source.text.contains(word) {
                wrong.push(format!("{}: {word}", source.file));
            }
        }
        if source.file.ends_with("state.rs") && source.text.contains("tokio") {
            wrong.push(format!("{}: tokio", source.file));
        }
        if sources.names(module, &["clock", "now"]) {
            wrong.push(format!("{}: clock::now", source.file));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn one_module_reads_the_clocks() {
    let mut wrong = Vec::new();
    for (module, source) in Sources::read("actors/src").iter() {
        if *module == ["clock"] {
            continue;
        }
        // `Uuid::now_v7` reads a clock too. No decision depends on the time in an id.
        for word in ["Instant", "SystemTime", "clock_gettime"] {
            if source.text.contains(word) {
                wrong.push(format!("{}: {word}", source.file));
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
