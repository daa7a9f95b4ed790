//! Target: the import of the files of other programs. It does not panic, and the broker accepts the backends that it writes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    config::check_backends,
    mutate::Choices,
    server_files::{References, import},
};

pub const DICTIONARY: &[&str] = &[
    "{\"mcpServers\":{\"a\":{\"command\":\"x\"}}}",
    "\"servers\":",
    "\"command\":[\"x\",\"-y\"]",
    "\"cmd\":\"x\"",
    "\"args\":[\"${input:key}\",\"${workspaceFolder}\"]",
    "\"env\":{\"A.b\":\"'\",\"\":1}",
    "\"headers\":{\"A\":true}",
    "\"url\":\"http://a/b\"",
    "\"url\":\"${URL}\"",
    "\"type\":\"sse\"",
    "\"watch\":\"src\",\"ext\":\"py,[a\"",
    "\"cwd\":\"~\"",
    "\"disabled\":true",
    "\"envFile\":\"x\"",
    "\"extra\":{\"a\":[1]}",
    "\u{7f}",
    "\\u007f",
    "\\n",
    "${input:",
];

/// The input is a choice of the names that are taken, and the file as JSON.
pub fn run(input: &[u8]) {
    let mut choices = Choices(input);
    let taken = ["a", "b", "server"][..choices.below(4)].iter();
    let taken: BTreeSet<String> = taken.map(|&name| name.to_owned()).collect();
    let Ok(file) = serde_json::from_slice::<Value>(choices.0) else {
        return;
    };
    let references = References {
        inputs: BTreeMap::from([("key".to_owned(), "\"${input:key}\"\n".to_owned())]),
        folder: "/work \u{7f}".to_owned(),
    };
    let Ok(imported) = import(&file, &references, &taken) else {
        return;
    };
    let mut text = String::new();
    for backend in &imported.backends {
        assert!(!taken.contains(backend.name.as_str()), "{} is taken", backend.name);
        text.push_str(&backend.table);
    }
    if imported.backends.len() <= 200 {
        let accepted = check_backends(&text);
        assert_eq!(accepted, Ok(()), "written: {text}");
    }
}
