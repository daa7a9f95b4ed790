//! Finds the files of a crate that import each other in a cycle.

use std::collections::{BTreeMap, BTreeSet};

use super::reader::{Import, Source};

/// The files of a crate, by the path of their module, and what they name of each other.
pub struct Graph(BTreeMap<Vec<String>, File>);

struct File {
    /// From the root of the repository.
    path: String,
    defined: BTreeSet<String>,
    imports: Vec<Import>,
}

impl Graph {
    pub fn new(sources: Vec<Source>) -> Self {
        let files = sources.into_iter().map(|source| {
            let file = File {
                defined: source.defined(),
                imports: source.all_imports(),
                path: source.path.clone(),
            };
            (source.module_path(), file)
        });
        Self(files.collect())
    }

    /// The module whose file defines what a path means, seen from a module. A re-export leads on to the file behind it.
    /// None for an item of another crate.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<&Vec<String>> {
        let mut module = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "super" => from.to_vec(),
            _ => {
                let child = [from, &path[..1]].concat();
                self.0.contains_key(&child).then(|| from.to_vec())?
            }
        };
        let mut rest = path.iter().peekable();
        while let Some(step) = rest.next_if(|step| ["crate", "super"].contains(&step.as_str())) {
            if step == "super" {
                module.pop();
            }
        }
        while let Some(step) = rest.next_if(|step| self.0.contains_key(&[&module[..], &[(*step).clone()]].concat())) {
            module.push(step.clone());
        }
        let (module, file) = self.0.get_key_value(&module)?;
        let Some(item) = rest.next().filter(|item| !file.defined.contains(*item)) else {
            return Some(module);
        };
        let is_behind = |import: &&Import| import.name == *item && import.path != path;
        let behind = file.imports.iter().find(is_behind);
        let behind = behind.and_then(|import| self.resolve(module, &import.path));
        behind.or(Some(module))
    }

    /// The modules that a module depends on. What a file passes on from its own folder does not count, nor does the root
    /// of the crate.
    fn dependencies(&self, module: &[String]) -> BTreeSet<&Vec<String>> {
        let is_own = |import: &Import| !["crate", "super"].contains(&import.path[0].as_str());
        let imports = self.0[module].imports.iter();
        imports
            .filter(|import| !(import.is_reexport && is_own(import)))
            .filter_map(|import| self.resolve(module, &import.path))
            .filter(|found| !found.is_empty() && *found != module)
            .collect()
    }

    /// The groups of files that depend on each other, directly or by way of others.
    pub fn cycles(&self) -> Vec<Vec<String>> {
        let modules = self.0.keys();
        let dependencies: BTreeMap<_, _> = modules.map(|module| (module, self.dependencies(module))).collect();
        let reachable: BTreeMap<_, _> = dependencies
            .keys()
            .map(|module| {
                let mut found = BTreeSet::new();
                let mut open = vec![*module];
                while let Some(next) = open.pop() {
                    open.extend(dependencies[next].iter().filter(|other| found.insert(**other)));
                }
                (*module, found)
            })
            .collect();
        let in_cycles = reachable.iter().filter(|(module, found)| found.contains(*module));
        let groups = in_cycles.map(|(module, found)| {
            let group = found.iter().filter(|other| reachable[*other].contains(module));
            let paths: BTreeSet<_> = group.map(|other| self.0[*other].path.clone()).collect();
            paths.into_iter().collect()
        });
        groups.collect::<BTreeSet<_>>().into_iter().collect()
    }
}
