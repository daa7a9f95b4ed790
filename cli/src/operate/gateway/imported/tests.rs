//! Which servers of files of other programs become backends, and how.

use serde_json::json;

use super::*;

fn imported(file: &Value) -> Imported {
    import(file, &References::default(), &BTreeSet::new()).unwrap()
}

fn names(imported: &Imported) -> Vec<&str> {
    imported.backends.iter().map(|backend| backend.name.as_str()).collect()
}

#[test]
fn mcp_servers_become_tables() {
    let imported = imported(&json!({"mcpServers": {
        "filesystem": {"command": "npx", "args": ["-y", "@scope/fs", "/tmp/a \"b\""], "env": {"A": "${HOME}", "N": 3}},
        "My Docs": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${T}"}},
    }}));
    assert_eq!(names(&imported), ["my-docs", "filesystem"]);
    assert_eq!(
        imported.backends[1].table,
        "[backends.filesystem]\ncommand = \"npx\"\nargs = [\"-y\", \"@scope/fs\", \"/tmp/a \\\"b\\\"\"]\n\
         env = { \"A\" = \"${HOME}\", \"N\" = \"3\" }\n"
    );
    assert!(imported.backends[0].table.contains("url = \"https://example.com/mcp\""));
    assert!(!imported.backends[0].table.contains("transport"), "it is found out");
    let old = serde_json::json!({"mcpServers": {"old": {"type": "sse", "url": "https://example.com/sse"}}});
    let old = import(&old, &References::default(), &BTreeSet::new()).unwrap();
    assert!(old.backends[0].table.contains("transport = \"sse\""));
    assert_eq!(imported.notes, ["My Docs: its name becomes my-docs"]);
}

#[test]
fn the_files_of_vs_code_and_mcpmon_are_known() {
    let references = References {
        inputs: BTreeMap::from([("key".to_owned(), "k1".to_owned())]),
        folder: "/work".to_owned(),
    };
    let file = json!({"inputs": [], "servers": {
        "a": {"command": "x", "args": ["${workspaceFolder}/a", "${input:key}", "${env:B}"]},
        "b": "python server.py --fast",
        "c": {"cmd": "node", "watch": "src/", "ext": "js"},
        "d": {"cmd": "x", "watch": "/a", "extensions": "py, .json", "cwd": "/b"},
        "e": {"cmd": "x", "watch": "."},
        "f": {"command": ["python", "-u"], "args": ["server.py"]},
    }});
    let imported = import(&file, &references, &BTreeSet::new()).unwrap();
    assert!(
        imported.backends[0]
            .table
            .contains("args = [\"/work/a\", \"k1\", \"${env:B}\"]")
    );
    assert!(
        imported.backends[1]
            .table
            .contains("command = \"sh\"\nargs = [\"-c\", \"python server.py --fast\"]\ncwd = \"/work\"\n")
    );
    assert!(imported.backends[2].table.contains("command = \"node\""));
    for (at, lines) in [
        (2, "cwd = \"/work\"\nwatch = [\"src/**/*.js\"]\n"),
        (3, "cwd = \"/b\"\nwatch = [\"/a/**/*.{py,json}\"]\n"),
        (4, "cwd = \"/work\"\nwatch = [\"./**/*.py\"]\n"),
    ] {
        let table = &imported.backends[at].table;
        assert!(table.ends_with(lines), "{table}");
    }
    assert!(
        imported.backends[5]
            .table
            .contains("command = \"python\"\nargs = [\"-u\", \"server.py\"]\ncwd = \"/work\"\n")
    );
    assert_eq!(imported.notes, [""; 0]);
    let of_itself = References {
        inputs: BTreeMap::from([("key".to_owned(), "${input:key}".to_owned())]),
        folder: String::new(),
    };
    let imported = import(&file, &of_itself, &BTreeSet::new()).unwrap();
    assert!(
        imported.backends[0].table.contains("\"${input:key}\""),
        "it is replaced once"
    );
    let imported = import(&file, &References::default(), &BTreeSet::new()).unwrap();
    assert_eq!(
        imported.notes[0],
        "a: left out, because it asks for key: give it with --input key=VALUE"
    );
    assert_eq!(imported.backends.len(), 5, "the others are there");
}

#[test]
fn a_server_that_names_files_of_its_folder_keeps_the_folder() {
    let cwd_of = |server: Value| {
        let server = members(&server).unwrap();
        let references = References {
            folder: "/work".to_owned(),
            ..References::default()
        };
        let name = BackendName::parse("a").unwrap();
        let (table, _) = table_of(&name, &server, &references).unwrap();
        let cwd = table.lines().find_map(|line| line.strip_prefix("cwd = "));
        cwd.map(ToOwned::to_owned)
    };
    for (server, cwd) in [
        (json!({"command": "python3", "args": ["server.py"]}), Some("/work")),
        (
            json!({"command": "node", "args": ["--inspect", "dist/index.js"]}),
            Some("/work"),
        ),
        (
            json!({"command": "uv", "args": ["--directory", ".", "run", "tool"]}),
            Some("/work"),
        ),
        (json!({"command": "./run.sh"}), Some("/work")),
        (json!({"command": "bin/server"}), Some("/work")),
        (json!({"command": "x", "cwd": "sub"}), Some("/work/sub")),
        (json!({"command": "x", "cwd": "./sub/"}), Some("/work/sub/")),
        (json!({"command": "x", "cwd": "."}), Some("/work")),
        (json!({"command": "x", "cwd": "~/sub"}), Some("~/sub")),
        (json!({"command": "x", "cwd": "${DIR}/sub"}), Some("${DIR}/sub")),
        (json!("python server.py"), Some("/work")),
        (
            json!({"command": "npx", "args": ["-y", "@scope/server-files", "/data", "1.2"]}),
            None,
        ),
        (
            json!({"command": "docker", "args": ["run", "-i", "ghcr.io/org/server:1.py"]}),
            None,
        ),
        (
            json!({"command": "/opt/server.py", "args": ["--config=a.json", "/etc/a.json"]}),
            None,
        ),
        (json!({"command": "~/bin/server"}), None),
    ] {
        assert_eq!(cwd_of(server.clone()), cwd.map(toml_string), "{server}");
    }
}

#[test]
fn the_broker_itself_and_what_is_there_are_left_out() {
    let file = json!({"mcpServers": {
        "broker": {"command": "/usr/bin/mcp-broker", "args": ["connect"]},
        "known": {"command": "x"},
        "Known": {"command": "y"},
        "New": {"command": "y"},
        "new": {"command": "y"},
        "mcp": {"command": "z"},
    }});
    let taken = BTreeSet::from(["known".to_owned()]);
    let imported = import(&file, &References::default(), &taken).unwrap();
    assert_eq!(names(&imported), ["new", "mcp-2", "new-2"]);
    assert_eq!(imported.notes.len(), 6, "{:?}", imported.notes);
}

#[test]
fn a_server_that_cannot_be_used_is_left_out_and_named() {
    for (server, reason) in [
        (json!(1), "a server is an object or a command"),
        (json!(null), "a server is an object or a command"),
        (json!({}), "it has neither a command nor a url"),
        (json!({"command": null}), "it has neither a command nor a url"),
        (json!({"command": "x", "args": "y"}), "args is no list"),
        (json!({"command": "x", "args": [null]}), "an argument is no text"),
        (json!({"command": "x", "args": [{"a": 1}]}), "an argument is no text"),
        (
            json!({"url": "http://me:secret@host/"}),
            "url: it has a user or a password: send them in a header, headers = { Authorization = \"…\" }",
        ),
        (json!({"command": "x", "env": {"A": []}}), "the value of A is no text"),
        (json!({"command": "x", "env": ["A=b"]}), "env is no object"),
        (json!({"command": "x", "cwd": ["a"]}), "cwd is no text"),
        (json!({"command": "/usr/bin/mcp-broker"}), "it is this broker itself"),
    ] {
        let file = json!({"mcpServers": {"odd": server, "sound": {"command": "x"}}});
        let imported = imported(&file);
        assert_eq!(names(&imported), ["sound"], "{file}");
        assert_eq!(imported.notes, [format!("odd: left out, because {reason}")]);
    }
    for refused in [
        json!({"command": ""}),
        json!({"url": "https://a/", "headers": {"X": "a\r\nY: b"}}),
        json!({"url": "https://a/", "headers": {"a b": "c"}}),
    ] {
        let imported = imported(&json!({"servers": {"odd": refused, "sound": "x"}}));
        assert_eq!(names(&imported), ["sound"], "{:?}", imported.notes);
        assert!(
            imported.notes[0].starts_with("odd: left out, because "),
            "{:?}",
            imported.notes
        );
    }
    for (file, reason) in [
        (json!({}), "it has neither mcpServers nor servers"),
        (json!({"mcpServers": 1}), "it has neither mcpServers nor servers"),
    ] {
        let refused = import(&file, &References::default(), &BTreeSet::new());
        assert_eq!(refused.unwrap_err(), reason);
    }
}

#[test]
fn odd_ways_to_write_a_value_are_read() {
    for (server, table) in [
        (
            json!({"command": "x", "env": {"PORT": 8080, "DEBUG": true, "UNSET": null}}),
            "command = \"x\"\nenv = { \"DEBUG\" = \"true\", \"PORT\" = \"8080\" }\n",
        ),
        (
            json!({"command": "x", "args": null, "env": [], "cwd": null, "url": null, "disabled": null, "timeout": null}),
            "command = \"x\"\n",
        ),
        (
            json!({"command": "x", "env": null, "headers": [], "watch": null}),
            "command = \"x\"\n",
        ),
        (json!({"command": "x", "env": {"UNSET": null}}), "command = \"x\"\n"),
        (
            json!({"command": "x", "args": ["--port", 8080, 1.5, false]}),
            "command = \"x\"\nargs = [\"--port\", \"8080\", \"1.5\", \"false\"]\n",
        ),
        (
            json!({"command": ["x", 1], "args": null}),
            "command = \"x\"\nargs = [\"1\"]\n",
        ),
        (
            json!({"command": null, "url": "https://a/", "headers": {"X-Count": 1}}),
            "url = \"https://a/\"\nheaders = { \"X-Count\" = \"1\" }\n",
        ),
    ] {
        let imported = imported(&json!({"mcpServers": {"a": server}}));
        assert_eq!(imported.backends[0].table, format!("[backends.a]\n{table}"), "{server}");
        assert_eq!(imported.notes, [""; 0]);
    }
    assert_eq!(
        imported(&json!({"mcpServers": [], "servers": {"a": "x"}}))
            .backends
            .len(),
        0
    );
}

#[test]
fn imported_tables_are_valid_configuration() {
    let file = json!({"mcpServers": {"a": {
        "command": "x\u{7f}\n\t\u{1}\\", "args": ["ü"], "env": {"A.b\"": "'"}, "disabled": true, "extra": ["\u{7f}"],
    }}});
    let table = &imported(&file).backends[0].table;
    let parsed: toml::Value = toml::from_str(table).unwrap();
    assert_eq!(parsed["backends"]["a"]["command"].as_str(), Some("x\u{7f}\n\t\u{1}\\"));
    assert_eq!(parsed["backends"]["a"]["env"]["A.b\""].as_str(), Some("'"));
}
