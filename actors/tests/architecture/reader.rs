//! Reads the sources of a crate: what the compiler sees of a file when it does not test, and which paths it names.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// A file, without its comments and its tests.
pub struct Source {
    /// From the root of the repository.
    pub path: String,
    /// The comment at its beginning.
    pub head: String,
    pub text: String,
}

impl Source {
    /// The module directly under the root of its crate.
    pub fn module(&self) -> String {
        let inside = self.path.split_once("src/").unwrap().1;
        let first = inside.split('/').next().unwrap();
        first.trim_end_matches(".rs").to_owned()
    }

    /// The modules of its own crate that it names.
    pub fn imports(&self) -> BTreeSet<String> {
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

    /// The path of its module; empty for the root of the crate.
    pub fn module_path(&self) -> Vec<String> {
        let inside = self.path.split_once("src/").unwrap().1.trim_end_matches(".rs");
        let mut path: Vec<_> = inside.split('/').map(str::to_owned).collect();
        path.pop_if(|last| last == "mod" || last == "lib");
        path
    }

    /// The names of its items.
    pub fn defined(&self) -> BTreeSet<String> {
        const KEYWORDS: [&str; 8] = ["const", "enum", "fn", "static", "struct", "trait", "type", "union"];
        let words = self
            .text
            .split(|character: char| !character.is_alphanumeric() && character != '_');
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        let pairs = words.windows(2).filter(|pair| KEYWORDS.contains(&pair[0]));
        pairs.map(|pair| pair[1].to_owned()).collect()
    }

    /// All paths that it names: those of `use`, and others that begin with `crate` or `super`.
    pub fn all_imports(&self) -> Vec<Import> {
        let (mut imports, mut code) = (Vec::new(), String::new());
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let (visibility, tree) = match line.trim_start().split_once("use ") {
                Some(found) if ["", "pub ", "pub(crate) ", "pub(super) "].contains(&found.0) => found,
                _ => {
                    code.push_str(line);
                    code.push('\n');
                    continue;
                }
            };
            let mut tree = tree.to_owned();
            while !tree.contains(';') {
                tree.push_str(lines.next().unwrap_or(";"));
            }
            for path in flatten(tree.split(';').next().unwrap_or_default()) {
                imports.push(Import::new(&path, !visibility.is_empty()));
            }
        }
        let starts = code.match_indices("crate::").chain(code.match_indices("super::"));
        for (at, _) in starts {
            let before = code[..at].chars().next_back();
            if !before.is_some_and(|before| before.is_alphanumeric() || before == '_' || before == ':') {
                let path =
                    code[at..].split(|character: char| !character.is_alphanumeric() && !"_:".contains(character));
                imports.push(Import::new(
                    path.into_iter().next().unwrap_or_default().trim_end_matches(':'),
                    false,
                ));
            }
        }
        imports
    }

    /// What it takes by `module::{…}`.
    pub fn imported_from(&self, module: &str) -> BTreeSet<String> {
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

/// What the compiler sees of a file when it does not test.
pub fn code(text: &str) -> String {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..tests].lines();
    lines
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect::<Vec<_>>()
        .join("\n")
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// All files under a folder that are neither tests nor the suites that tests call.
pub fn sources(folder: &str) -> Vec<Source> {
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
                let text = fs::read_to_string(&path).unwrap();
                let head = text.lines().take_while(|line| line.starts_with("//!"));
                found.push(Source {
                    path: relative,
                    head: head.collect::<Vec<_>>().join("\n"),
                    text: code(&text),
                });
            }
        }
    }
    assert!(found.len() > 5, "{folder} has sources");
    found
}

/// A path that a file names, in `use` or elsewhere.
pub struct Import {
    pub path: Vec<String>,
    /// The name under which the item is known afterwards.
    pub name: String,
    /// `pub use`: the file passes the item on.
    pub is_reexport: bool,
}

/// The paths of a `use` tree.
pub fn flatten(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((prefix, group)) = tree.split_once('{') else {
        return vec![tree.to_owned()];
    };
    let group = group.strip_suffix('}').unwrap_or(group);
    let (mut depth, mut items) = (0, vec![String::new()]);
    for character in group.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if character == ',' && depth == 0 {
            items.push(String::new());
        } else if let Some(item) = items.last_mut() {
            item.push(character);
        }
    }
    let items = items.iter().filter(|item| !item.trim().is_empty());
    let paths = items.flat_map(|item| flatten(item));
    paths.map(|path| format!("{prefix}{path}")).collect()
}

impl Import {
    pub fn new(text: &str, is_reexport: bool) -> Self {
        let (path, alias) = text.split_once(" as ").unwrap_or((text, ""));
        let mut path: Vec<_> = path.split("::").map(|step| step.trim().to_owned()).collect();
        path.pop_if(|last| last == "self");
        let name = match alias.trim() {
            "" => path.last().cloned().unwrap_or_default(),
            alias => alias.to_owned(),
        };
        Self {
            path,
            name,
            is_reexport,
        }
    }
}
