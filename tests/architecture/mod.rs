//! Checks the shape of the crates by reading their sources: which room imports which, that no files import each other
//! in a cycle, and that decisions are pure.

mod purity;
mod sources;

use sources::Sources;

/// The rooms of a crate (the files and folders under its `src`) from the bottom up, each with the rooms that it may
/// import. A new room needs a place here.
type Layers = &'static [(&'static str, &'static [&'static str])];

/// The crates, by the folder of their sources. A crate without layers is one room.
const CRATES: [(&str, Option<Layers>); 9] = [
    ("lens/src", Some(LENS)),
    ("actors/src", Some(ACTORS)),
    ("rest/src", None),
    ("storage/src", None),
    ("common/src", Some(COMMON)),
    ("api/src", Some(API)),
    ("front/src", None),
    ("cli/src", None),
    ("src", Some(BROKER)),
];

const LENS: Layers = &[
    ("error", &[]),
    ("number", &[]),
    ("path", &[]),
    ("operation", &["error", "path"]),
    ("schema", &["operation", "path"]),
    ("proof", &["number", "path", "schema"]),
    ("payload", &["error", "path"]),
    ("act", &["error", "number", "operation", "path", "payload"]),
    ("difference", &["act", "error", "path", "payload"]),
    ("trim", &["error", "path", "payload", "schema"]),
    ("transform", &["act", "difference", "error", "path", "payload", "trim"]),
    ("plan", &["act", "error", "path", "transform"]),
    ("edit", &["path", "schema"]),
    ("shape", &["act", "edit", "error", "operation", "path", "schema"]),
    (
        "scalars",
        &["act", "edit", "number", "operation", "path", "schema", "shape"],
    ),
    ("sample", &["path", "schema"]),
    (
        "check",
        &[
            "act",
            "error",
            "operation",
            "path",
            "proof",
            "sample",
            "schema",
            "shape",
            "transform",
            "trim",
        ],
    ),
    ("suggest", &["operation", "path", "proof", "sample", "schema"]),
];

const ACTORS: Layers = &[
    ("words", &[]),
    ("faults", &[]),
    ("backoff", &[]),
    ("locked", &[]),
    ("clock", &["faults"]),
    ("idle", &["clock"]),
    ("silence", &["clock", "idle", "locked"]),
    ("json", &[]),
    ("ops", &[]),
    ("rate", &["clock"]),
    ("model", &["clock", "locked"]),
    ("trace", &["clock", "locked", "model"]),
    ("metrics", &["locked", "model"]),
    ("negotiate", &["model"]),
    ("bridge", &["metrics", "model"]),
    ("storage", &["bridge", "clock", "idle", "locked", "metrics", "model"]),
    ("supervise", &["backoff", "clock", "metrics", "model"]),
    (
        "gateway",
        &[
            "backoff",
            "clock",
            "json",
            "locked",
            "metrics",
            "model",
            "ops",
            "storage",
            "supervise",
        ],
    ),
    ("registry", &["clock", "locked", "model", "ops", "storage", "supervise"]),
    ("speech", &["clock", "locked", "metrics", "model", "registry"]),
    (
        "session",
        &[
            "clock",
            "metrics",
            "model",
            "ops",
            "idle",
            "silence",
            "storage",
            "supervise",
            "trace",
            "locked",
            "registry",
            "speech",
        ],
    ),
    (
        "directory",
        &["clock", "locked", "model", "registry", "session", "speech"],
    ),
    ("targets", &["model", "storage"]),
    (
        "policy",
        &["gateway", "locked", "model", "rate", "session", "supervise", "targets"],
    ),
    (
        "router",
        &[
            "clock",
            "directory",
            "locked",
            "metrics",
            "model",
            "ops",
            "policy",
            "session",
            "speech",
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
            "locked",
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
            "idle",
            "router",
            "session",
            "speech",
            "storage",
            "supervise",
            "trace",
            "locked",
        ],
    ),
    (
        "broker",
        &[
            "backoff",
            "bridge",
            "clock",
            "locked",
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

const COMMON: Layers = &[
    ("environment", &[]),
    ("exit", &[]),
    ("hang_up", &[]),
    ("json", &[]),
    ("refusal", &[]),
    ("stop_signal", &[]),
    ("http_client", &[]),
    ("tls", &[]),
    ("token_file", &[]),
    ("config", &["refusal", "token_file"]),
    ("telemetry", &["config", "http_client"]),
    ("seal", &["config"]),
    ("user_broker", &["config", "json"]),
    ("listen", &["user_broker"]),
];

const API: Layers = &[
    ("budget", &[]),
    ("problem", &[]),
    ("auth", &["problem"]),
    ("verbs", &["auth"]),
    ("mcp", &["auth", "budget", "verbs"]),
];

const BROKER: Layers = &[
    ("hops", &[]),
    ("metrics", &[]),
    ("edge", &["hops"]),
    ("targets", &[]),
    ("instances", &["hops"]),
    ("transport", &["edge"]),
    ("http", &["edge", "metrics", "targets", "transport"]),
    (
        "startup",
        &["edge", "instances", "hops", "http", "metrics", "targets", "transport"],
    ),
];

#[test]
fn a_room_imports_only_the_rooms_below_it() {
    let mut wrong = Vec::new();
    for (folder, layers) in CRATES.iter().filter_map(|(folder, layers)| Some((folder, (*layers)?))) {
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
