//! Checks the shape of both crates by reading their sources: which room imports which, that no files import each other
//! in a cycle, and that decisions are pure.

mod purity;
mod sources;

use sources::Sources;

/// The rooms of a crate (the files and folders under its `src`) from the bottom up, each with the rooms that it may
/// import. A new room needs a place here.
type Layers = &'static [(&'static str, &'static [&'static str])];

/// The crates, by the folder of their sources.
const CRATES: [(&str, Layers); 2] = [("actors/src", ACTORS), ("src", BROKER)];

const ACTORS: Layers = &[
    ("faults", &[]),
    ("clock", &["faults"]),
    ("rest", &["clock"]),
    ("silence", &["clock", "rest"]),
    ("json", &[]),
    ("ops", &[]),
    ("rate", &["clock"]),
    ("model", &["clock"]),
    ("trace", &["clock", "model"]),
    ("metrics", &["model"]),
    ("negotiate", &["model"]),
    ("bridge", &["metrics", "model"]),
    ("storage", &["bridge", "clock", "metrics", "model", "rest"]),
    ("supervise", &["clock", "metrics", "model"]),
    (
        "gateway",
        &["clock", "json", "metrics", "model", "ops", "storage", "supervise"],
    ),
    ("registry", &["clock", "model", "ops", "storage", "supervise"]),
    (
        "session",
        &[
            "clock",
            "metrics",
            "model",
            "ops",
            "rest",
            "silence",
            "storage",
            "supervise",
            "trace",
        ],
    ),
    ("directory", &["clock", "model", "session"]),
    ("targets", &["model", "storage"]),
    (
        "policy",
        &["gateway", "model", "rate", "session", "supervise", "targets"],
    ),
    (
        "router",
        &[
            "clock",
            "directory",
            "metrics",
            "model",
            "ops",
            "policy",
            "session",
            "storage",
            "supervise",
            "trace",
        ],
    ),
    (
        "desk",
        &[
            "clock",
            "directory",
            "faults",
            "metrics",
            "model",
            "policy",
            "registry",
            "session",
            "storage",
            "supervise",
            "targets",
        ],
    ),
    (
        "project",
        &[
            "bridge",
            "clock",
            "desk",
            "directory",
            "faults",
            "gateway",
            "metrics",
            "model",
            "negotiate",
            "ops",
            "policy",
            "registry",
            "rest",
            "router",
            "session",
            "storage",
            "supervise",
            "trace",
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

const BROKER: Layers = &[
    ("exit", &[]),
    ("hang_up", &[]),
    ("hops", &[]),
    ("tls", &[]),
    ("budget", &[]),
    ("json", &[]),
    ("refusal", &[]),
    ("problem", &["refusal"]),
    ("bridge", &[]),
    ("storage", &["bridge"]),
    ("metrics", &[]),
    ("config", &["metrics", "refusal", "storage"]),
    ("telemetry", &["config"]),
    ("seal", &["config"]),
    ("local", &["config"]),
    ("auth", &["problem"]),
    ("admin", &["auth"]),
    ("edge", &["auth", "hops", "problem"]),
    ("verbs", &["auth", "json", "refusal"]),
    ("targets", &["config", "json", "verbs"]),
    ("mcp", &["admin", "auth", "budget", "json", "refusal", "verbs"]),
    (
        "gateway",
        &["budget", "config", "hops", "json", "mcp", "refusal", "tls"],
    ),
    (
        "transport",
        &[
            "auth",
            "budget",
            "edge",
            "hang_up",
            "local",
            "mcp",
            "problem",
            "telemetry",
        ],
    ),
    (
        "front",
        &[
            "config",
            "exit",
            "hang_up",
            "json",
            "local",
            "mcp",
            "refusal",
            "telemetry",
        ],
    ),
    (
        "http",
        &[
            "admin",
            "auth",
            "budget",
            "edge",
            "json",
            "metrics",
            "problem",
            "refusal",
            "targets",
            "telemetry",
            "transport",
            "verbs",
        ],
    ),
    (
        "startup",
        &[
            "admin",
            "auth",
            "budget",
            "config",
            "edge",
            "exit",
            "gateway",
            "hops",
            "http",
            "local",
            "mcp",
            "metrics",
            "seal",
            "storage",
            "targets",
            "telemetry",
            "transport",
        ],
    ),
    (
        "cli",
        &[
            "config",
            "exit",
            "front",
            "gateway",
            "hang_up",
            "local",
            "startup",
            "storage",
            "telemetry",
            "tls",
        ],
    ),
];

#[test]
fn a_room_imports_only_the_rooms_below_it() {
    let mut wrong = Vec::new();
    for (folder, layers) in CRATES {
        for (position, (room, allowed)) in layers.iter().enumerate() {
            let is_below = |import: &str| layers[..position].iter().any(|(below, _)| *below == import);
            for import in allowed.iter().filter(|import| !is_below(import)) {
                wrong.push(format!("{folder}: {room} is above {import} and must stand after it"));
            }
        }
        let sources = Sources::read(folder);
        for (module, source) in sources.iter() {
            let room = module[0].as_str();
            let Some((_, allowed)) = layers.iter().find(|(name, _)| *name == room) else {
                wrong.push(format!("{}: {room} has no place in the layers", source.file));
                continue;
            };
            for import in sources.imports(module) {
                let other = import[0].as_str();
                if other != room && !allowed.contains(&other) {
                    wrong.push(format!("{}: {room} imports {other}", source.file));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_files_import_each_other_in_a_cycle() {
    let crates = CRATES.map(|(folder, _)| Sources::read(folder));
    let cycles: Vec<_> = crates.iter().flat_map(Sources::cycles).collect();
    assert!(cycles.is_empty(), "{cycles:#?}");
}
