//! Checks the shape of `src` by reading its sources: which room imports which, and that no files import each other in a
//! circle. The crate `actors` has a test of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A module path below `src`: `["transport", "socket"]`; a `mod.rs` has the path of its folder.
type ModulePath = Vec<String>;

/// The rooms of `src` (its files and folders) and the rooms that each may import, from the bottom up. A new room needs
/// a place here.
const ROOMS: &[(&str, &[&str])] = &[
    ("exit", &[]),
    ("budget", &[]),
    ("json", &[]),
    ("refusal", &[]),
    ("problem", &["refusal"]),
    ("bridge", &[]),
    ("storage", &["bridge"]),
    ("config", &["storage"]),
    ("telemetry", &["config"]),
    ("auth", &["problem"]),
    ("admin", &["auth"]),
    ("edge", &["auth", "problem"]),
    ("verbs", &["auth", "json", "refusal"]),
    ("mcp", &["admin", "auth", "budget", "json", "refusal", "verbs"]),
    ("transport", &["auth", "budget", "edge", "mcp", "problem"]),
    (
        "http",
        &[
            "admin",
            "auth",
            "budget",
            "edge",
            "json",
            "problem",
            "refusal",
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
            "http",
            "mcp",
            "storage",
            "telemetry",
            "transport",
        ],
    ),
    ("cli", &["config", "exit", "startup", "telemetry"]),
];

/// Folders whose files may form a circle, with the reason.
const CIRCLES_ALLOWED: &[(&str, &str)] = &[("src/storage/redis/", "the pipeline and its batches import each other")];

#[test]
fn a_room_imports_only_the_rooms_below_it() {
    let sources = Sources::read();
    let mut wrong = Vec::new();
    for (position, (room, allowed)) in ROOMS.iter().enumerate() {
        let below: Vec<_> = ROOMS[..position].iter().map(|(name, _)| *name).collect();
        for import in allowed.iter().filter(|import| !below.contains(import)) {
            wrong.push(format!("ROOMS: {room} is above {import} and must stand after it"));
        }
    }
    for (module, source) in &sources.modules {
        let room = module[0].as_str();
        let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            wrong.push(format!("{}: {room} is missing in ROOMS", source.file));
            continue;
        };
        for import in sources.imports(module) {
            let other = import[0].as_str();
            if other != room && !allowed.contains(&other) {
                wrong.push(format!("{}: {room} imports {other}", source.file));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_files_of_a_room_form_no_circle() {
    let sources = Sources::read();
    let mut edges = BTreeMap::new();
    for module in sources.modules.keys() {
        let inside = sources.imports(module).into_iter();
        let inside: BTreeSet<_> = inside.filter(|import| import[0] == module[0]).collect();
        edges.insert(module.clone(), inside);
    }
    let file = |module: &ModulePath| sources.modules[module].file.as_str();
    let is_allowed = |module: &ModulePath| {
        CIRCLES_ALLOWED
            .iter()
            .any(|(folder, _)| file(module).starts_with(folder))
    };
    let mut wrong = Vec::new();
    for circle in circles(&edges) {
        if !circle.iter().all(is_allowed) {
            wrong.push(circle.iter().map(file).collect::<Vec<_>>());
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn imports_are_found_in_every_form() {
    let files = [
        (
            "src/a/mod.rs",
            "mod inner;\npub mod other;\npub use inner::Thing;\nuse other::f;\n",
        ),
        (
            "src/a/inner.rs",
            "use super::{Own, other::{self, g as h}};\npub struct Thing;\n",
        ),
        (
            "src/a/other.rs",
            "// use crate::hidden::X;\nfn f() { crate::a::Thing::new() }\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n",
        ),
        ("src/b.rs", "use crate::{a::Thing, a::other::f};\n"),
    ];
    let sources = Sources::new(files.map(|(file, text)| (file.to_owned(), text.to_owned())));
    let imports = |module: &str| {
        let module: ModulePath = module.split('/').map(str::to_owned).collect();
        let imports = sources.imports(&module);
        imports.iter().map(|path| path.join("/")).collect::<Vec<_>>()
    };
    assert_eq!(imports("a"), ["a/other"]);
    assert_eq!(imports("a/inner"), ["a", "a/other"]);
    assert_eq!(imports("a/other"), ["a/inner"], "a re-export counts as its origin");
    assert_eq!(imports("b"), ["a/inner", "a/other"]);
    let edges = ["a", "a/inner", "a/other"].map(|module| {
        let path: ModulePath = module.split('/').map(str::to_owned).collect();
        let imports = sources.imports(&path);
        (path, imports)
    });
    assert_eq!(circles(&BTreeMap::from(edges)).len(), 1);
}

struct Source {
    /// The path from the root of the repository.
    file: String,
    /// Without comments and unit tests.
    text: String,
    /// The names that it re-exports, with their paths as written.
    exports: BTreeMap<String, String>,
}

struct Sources {
    modules: BTreeMap<ModulePath, Source>,
}

impl Sources {
    /// Reads the product's sources, without `main.rs`, `lib.rs` and other binaries.
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        collect(&root.join("src"), &mut files);
        Self::new(files.into_iter().map(|path| {
            let file = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            (file, fs::read_to_string(&path).unwrap())
        }))
    }

    fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut modules = BTreeMap::new();
        for (file, text) in files {
            let inside = file.strip_prefix("src/").unwrap().strip_suffix(".rs").unwrap();
            let mut path: ModulePath = inside.split('/').map(str::to_owned).collect();
            let is_test = path.iter().any(|part| part == "tests");
            if is_test || path[0] == "bin" || path == ["main"] || path == ["lib"] {
                continue;
            }
            if path.last().is_some_and(|last| last == "mod") {
                path.pop();
            }
            let text = code(&text);
            let (items, _) = use_items(&text);
            let exports = items.iter().filter(|(is_public, _)| *is_public);
            let exports = exports.flat_map(|(_, item)| leaves(item));
            let exports = exports.map(|leaf| (leaf.rsplit("::").next().unwrap_or_default().to_owned(), leaf));
            let exports = exports.collect();
            modules.insert(path, Source { file, text, exports });
        }
        Self { modules }
    }

    /// The modules that a module imports or names, itself excluded. A re-export counts as the module it comes from.
    fn imports(&self, module: &ModulePath) -> BTreeSet<ModulePath> {
        let (items, rest) = use_items(&self.modules[module].text);
        let used = items.iter().filter(|(is_public, _)| !is_public);
        let mut written: Vec<String> = used.flat_map(|(_, item)| leaves(item)).collect();
        written.extend(paths(&rest));
        let mut found = BTreeSet::new();
        for path in written {
            if let Some(absolute) = self.absolute(module, &path) {
                found.extend(self.origin(absolute, 0));
            }
        }
        found.remove(module);
        found
    }

    /// The path from `src`; `None` for a path into another crate or a type.
    fn absolute(&self, module: &ModulePath, path: &str) -> Option<ModulePath> {
        let mut parts: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
        let mut base = module.clone();
        match parts[0].as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" => {
                while parts.get(1).is_some_and(|part| part == "super") {
                    parts.remove(1);
                    base.pop();
                }
                base.pop();
            }
            child => {
                base.push(child.to_owned());
                if !self.modules.contains_key(&base) {
                    return None;
                }
            }
        }
        base.extend(parts.into_iter().skip(1));
        Some(base)
    }

    /// The module that defines what a path names.
    fn origin(&self, path: ModulePath, depth: usize) -> Option<ModulePath> {
        const REEXPORTS_MAX: usize = 5;
        let len = (1..=path.len())
            .rev()
            .find(|&len| self.modules.contains_key(&path[..len]))?;
        let module = path[..len].to_vec();
        let export = path.get(len).and_then(|name| self.modules[&module].exports.get(name));
        match export.and_then(|export| self.absolute(&module, export)) {
            Some(next) if depth < REEXPORTS_MAX => self.origin(next, depth + 1),
            _ => Some(module),
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// A source without its comments and its unit tests.
fn code(text: &str) -> String {
    let tests = "#[cfg(test)]\nmod tests {";
    let text = text.split(tests).next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// The `use` items of a source, each with whether it is public, and the rest of the source.
fn use_items(text: &str) -> (Vec<(bool, String)>, String) {
    let (mut items, mut rest) = (Vec::new(), String::new());
    for statement in text.split_inclusive(';') {
        let starts = statement.match_indices("use ").map(|(at, _)| at).filter(|&at| {
            let line = statement[..at].rsplit('\n').next().unwrap_or_default().trim();
            line.is_empty() || line == "pub" || (line.starts_with("pub(") && line.ends_with(')'))
        });
        let Some(start) = starts.last() else {
            rest.push_str(statement);
            continue;
        };
        let line = statement[..start].rfind('\n').map_or(0, |at| at + 1);
        rest.push_str(&statement[..line]);
        let tree = statement[start + "use ".len()..]
            .trim_end_matches(';')
            .split_whitespace();
        items.push((
            statement[line..start].contains("pub"),
            tree.collect::<Vec<_>>().join(" "),
        ));
    }
    (items, rest)
}

/// The paths of a `use` tree: `a::{b, c::d}` has `a::b` and `a::c::d`.
fn leaves(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        return vec![path.trim_end_matches("::self").to_owned()];
    };
    let body = rest.trim_end().strip_suffix('}').unwrap_or(rest);
    let (mut depth, mut item, mut found) = (0, String::new(), Vec::new());
    for character in body.chars().chain([',']) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !item.trim().is_empty() {
                    found.extend(leaves(&format!("{}{}", head.trim(), item.trim())));
                }
                item.clear();
                continue;
            }
            _ => {}
        }
        item.push(character);
    }
    found
}

/// The paths with `::` in a source.
fn paths(text: &str) -> impl Iterator<Item = String> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let words = text.split(move |character| !is_part(character));
    let words = words.filter(|word| word.contains("::") && !word.starts_with(':'));
    words.map(|word| word.trim_end_matches(':').to_owned())
}

/// The strongly connected parts of a graph with more than one node: every pair of nodes that reach each other.
fn circles(edges: &BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> Vec<Vec<ModulePath>> {
    let reach = |from: &ModulePath| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            for to in edges.get(next).into_iter().flatten() {
                if seen.insert(to) {
                    open.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<_, _> = edges.keys().map(|node| (node, reach(node))).collect();
    let mut done = BTreeSet::new();
    let mut found = Vec::new();
    for node in edges.keys() {
        if done.contains(node) || !reached[node].contains(node) {
            continue;
        }
        let part: Vec<_> = edges
            .keys()
            .filter(|other| reached[node].contains(other) && reached[other].contains(node))
            .collect();
        done.extend(part.iter().copied());
        found.push(part.into_iter().cloned().collect());
    }
    found
}
