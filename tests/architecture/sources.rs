//! Reads the sources of a crate: which file imports which, and which files import each other in a cycle.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The path of a module below the root of its crate: `["transport", "socket"]`. The module of a `mod.rs` has the path of
/// its folder, the root of the crate an empty path.
pub type ModulePath = Vec<String>;

/// A file as the compiler sees it when it does not test.
pub struct Source {
    /// The path from the root of the repository.
    pub file: String,
    /// The comment at its beginning.
    pub head: String,
    /// The text without comments and unit tests.
    pub text: String,
    /// The names of its items.
    defined: BTreeSet<String>,
    uses: Vec<Use>,
    /// The paths that it names outside of `use`.
    named: Vec<String>,
}

/// One path of a `use` item.
struct Use {
    path: String,
    /// The name under which the file knows the item.
    name: String,
    /// The file passes the item on.
    is_public: bool,
}

/// The sources of a crate, without its tests and the suites that tests call.
pub struct Sources(BTreeMap<ModulePath, Source>);

impl Sources {
    /// Reads a folder, such as `src`. Panics when it has no sources.
    pub fn read(folder: &str) -> Self {
        let mut files = Vec::new();
        collect(&root().join(folder), &mut files);
        let files = files.into_iter().map(|path| {
            let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            (file, fs::read_to_string(path).unwrap())
        });
        let sources = Self::new(files);
        assert!(sources.0.len() > 5, "{folder} has sources");
        sources
    }

    /// Takes pairs of a path and a text.
    pub fn new(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let files = files.into_iter().map(|(file, text)| {
            let inside = file.split_once("src/").unwrap().1.strip_suffix(".rs").unwrap();
            let mut path: ModulePath = inside.split('/').map(str::to_owned).collect();
            path.pop_if(|last| last == "mod" || last == "lib");
            (path, Source::new(file, &text))
        });
        Self(files.collect())
    }

    /// All modules but the roots of the library and of the executable.
    pub fn iter(&self) -> impl Iterator<Item = (&ModulePath, &Source)> {
        let modules = self.0.iter();
        modules.filter(|(module, _)| !module.is_empty() && **module != ["main"])
    }

    /// The modules that a module imports or names, itself and the root of the crate excluded. What a file passes on
    /// counts as the file that defines it; what it passes on from its own folder is no import.
    pub fn imports(&self, module: &ModulePath) -> BTreeSet<&ModulePath> {
        let source = &self.0[module];
        let used = source.uses.iter().map(|item| (item.path.as_str(), item.is_public));
        let named = source.named.iter().map(|path| (path.as_str(), false));
        let found = used.chain(named).filter_map(|(path, is_public)| {
            let definer = self.definer(module, path, 0)?;
            let is_own = is_public && definer.starts_with(module);
            (!is_own && !definer.is_empty() && definer != module).then_some(definer)
        });
        found.collect()
    }

    /// Whether a module names an item, by its path from the root of the crate.
    pub fn names(&self, module: &ModulePath, item: &[&str]) -> bool {
        let source = &self.0[module];
        let mut paths = source.uses.iter().map(|item| &item.path).chain(&source.named);
        paths.any(|path| self.absolute(module, path).is_some_and(|path| path == item))
    }

    /// The groups of files that import each other, directly or by way of others.
    pub fn cycles(&self) -> Vec<Vec<&str>> {
        let imports: BTreeMap<_, _> = self.iter().map(|(module, _)| (module, self.imports(module))).collect();
        let reachable: BTreeMap<_, _> = imports
            .keys()
            .map(|module| {
                let (mut found, mut open) = (BTreeSet::new(), vec![*module]);
                while let Some(next) = open.pop() {
                    open.extend(imports[&next].iter().filter(|other| found.insert(**other)));
                }
                (*module, found)
            })
            .collect();
        let in_cycles = reachable.iter().filter(|(module, found)| found.contains(*module));
        let groups = in_cycles.map(|(module, found)| {
            let group = found.iter().filter(|other| reachable[*other].contains(module));
            group.map(|other| self.0[*other].file.as_str()).collect()
        });
        groups.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The module that defines what a path names, seen from a module; `None` for an item of another crate.
    fn definer(&self, from: &ModulePath, path: &str, depth: usize) -> Option<&ModulePath> {
        const REEXPORTS_MAX: usize = 8;
        let absolute = self.absolute(from, path)?;
        let mut lens = (0..=absolute.len()).rev();
        let (module, source) = lens.find_map(|len| self.0.get_key_value(&absolute[..len]))?;
        let passed_on = absolute
            .get(module.len())
            .filter(|item| depth < REEXPORTS_MAX && !source.defined.contains(*item))
            .and_then(|item| source.uses.iter().find(|used| used.name == *item))
            .and_then(|used| self.definer(module, &used.path, depth + 1));
        passed_on.or(Some(module))
    }

    /// A path from the root of the crate; `None` for a path into another crate or a type.
    fn absolute(&self, from: &ModulePath, path: &str) -> Option<ModulePath> {
        let mut parts = path.split("::").peekable();
        let mut module = from.clone();
        match *parts.peek()? {
            "crate" => module.clear(),
            "self" | "super" => {}
            child => {
                module.push(child.to_owned());
                return self
                    .0
                    .contains_key(&module)
                    .then(|| [from.as_slice(), &parts.map(str::to_owned).collect::<Vec<_>>()].concat());
            }
        }
        while let Some(step) = parts.next_if(|step| ["crate", "self", "super"].contains(step)) {
            if step == "super" {
                module.pop();
            }
        }
        module.extend(parts.map(str::to_owned));
        Some(module)
    }
}

impl Source {
    fn new(file: String, text: &str) -> Self {
        const KEYWORDS: [&str; 8] = ["const", "enum", "fn", "static", "struct", "trait", "type", "union"];
        let head: Vec<_> = text.lines().take_while(|line| line.starts_with("//!")).collect();
        let head = head.join("\n");
        let text = code(text);
        let words = text.split(|character: char| !character.is_alphanumeric() && character != '_');
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        let pairs = words.windows(2).filter(|pair| KEYWORDS.contains(&pair[0]));
        let defined = pairs.map(|pair| pair[1].to_owned()).collect();
        let (uses, rest) = use_items(&text);
        let named = paths(&rest);
        Self {
            file,
            head,
            text,
            defined,
            uses,
            named,
        }
    }
}

/// The folder of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap_or_default();
        if ["tests", "properties", "conformance"].iter().any(|name| stem == *name) {
            continue;
        }
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

/// The paths of the `use` items of a source, and the rest of the source.
fn use_items(text: &str) -> (Vec<Use>, String) {
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
        let is_public = statement[line..start].contains("pub");
        let tree = statement[start + "use ".len()..].trim_end_matches(';');
        let tree = tree.split_whitespace().collect::<Vec<_>>().join(" ");
        items.extend(leaves(&tree).into_iter().map(|leaf| Use::new(&leaf, is_public)));
    }
    (items, rest)
}

impl Use {
    fn new(leaf: &str, is_public: bool) -> Self {
        let (path, alias) = leaf.split_once(" as ").unwrap_or((leaf, ""));
        let path = path.trim().trim_end_matches("::self");
        let last = path.rsplit("::").next().unwrap_or_default();
        Self {
            path: path.to_owned(),
            name: if alias.is_empty() { last } else { alias.trim() }.to_owned(),
            is_public,
        }
    }
}

/// The paths of a `use` tree: `a::{b, c::d as e}` has `a::b` and `a::c::d as e`.
fn leaves(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else {
        return vec![tree.trim().to_owned()];
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
fn paths(text: &str) -> Vec<String> {
    let is_part = |character: char| character.is_alphanumeric() || character == '_' || character == ':';
    let words = text.split(move |character| !is_part(character));
    let words = words.filter(|word| word.contains("::") && !word.starts_with(':'));
    words.map(|word| word.trim_end_matches(':').to_owned()).collect()
}

#[test]
fn imports_are_found_in_every_form() {
    let files = [
        (
            "src/a/mod.rs",
            "mod inner;\npub mod other;\npub use inner::{Thing, Key as InnerKey};\nuse other::f;\n",
        ),
        (
            "src/a/inner.rs",
            "use super::{Own, other::{self, g as h}};\npub struct Thing;\npub struct Key;\n",
        ),
        (
            "src/a/other.rs",
            "// use crate::hidden::X;\nfn f() { crate::a::Thing::new() }\n#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n",
        ),
        (
            "src/b.rs",
            "use crate::{\n    a::Thing, // crate::c\n    a::other::f,\n};\n",
        ),
        ("src/c.rs", "pub use crate::b::X;\nfn f(_: super::a::InnerKey) {}\n"),
    ];
    let sources = Sources::new(files.map(|(file, text)| (file.to_owned(), text.to_owned())));
    let module = |path: &str| path.split('/').map(str::to_owned).collect::<ModulePath>();
    let imports = |path: &str| {
        let imports = sources.imports(&module(path)).into_iter();
        imports.map(|path| path.join("/")).collect::<Vec<_>>()
    };
    assert_eq!(imports("a"), ["a/other"], "what comes from the own folder is passed on");
    assert_eq!(imports("a/inner"), ["a", "a/other"]);
    assert_eq!(imports("a/other"), ["a/inner"], "a re-export counts as its origin");
    assert_eq!(imports("b"), ["a/inner", "a/other"]);
    assert_eq!(imports("c"), ["a/inner", "b"], "an alias counts as its origin");
    assert!(sources.names(&module("b"), &["a", "other", "f"]));
    assert!(!sources.names(&module("b"), &["a", "other"]));
    assert_eq!(
        sources.cycles(),
        [["src/a/mod.rs", "src/a/inner.rs", "src/a/other.rs"].to_vec()]
    );
}

#[test]
fn a_cycle_is_found_through_re_exports() {
    let store = "mod index;\nmod entry;\npub use index::{Index, Key as IndexKey};\npub struct Store;\n";
    let index = "use super::entry;\npub struct Index(entry::Entry);\npub struct Key;\n";
    let has_cycle = |entry: &str| {
        let files = [
            ("lib", "pub mod store;\n"),
            ("store/mod", store),
            ("store/index", index),
            ("store/entry", entry),
        ];
        let files = files.map(|(path, text)| (format!("actors/src/{path}.rs"), text.to_owned()));
        let sources = Sources::new(files);
        let cycles = sources.cycles();
        let cycle = ["actors/src/store/entry.rs", "actors/src/store/index.rs"].to_vec();
        assert!(cycles.is_empty() || cycles == [cycle], "{cycles:?}");
        !cycles.is_empty()
    };
    assert!(!has_cycle("use super::Store;\npub struct Entry(Store);\n"));
    assert!(has_cycle(
        "use crate::store::{Store, IndexKey};\npub struct Entry(IndexKey);\n"
    ));
    assert!(has_cycle("pub struct Entry(super::Index);\n"));
}
