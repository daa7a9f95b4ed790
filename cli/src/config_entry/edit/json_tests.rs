//! The edits of JSON: examples, and for generated texts that to add and remove an entry gives the same text.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::agent_clients::AgentClient;
use crate::client_file::parse;
use crate::config_entry::edit::{EditError, Members, entry, insert, remove, update};

fn members() -> Members {
    vec![
        ("command", "mcp-broker".into()),
        ("args", json!(["connect", "--auto-name"])),
    ]
}

fn client(word: &str) -> &'static AgentClient {
    AgentClient::of_word(word).unwrap()
}

/// Adds the entry and takes it out again.
fn with_entry(word: &str, text: &str) -> String {
    let with = insert(client(word), text, "broker", &members()).unwrap();
    let found = entry(client(word), &with, "broker").unwrap().unwrap();
    assert_eq!(found["args"], json!(["connect", "--auto-name"]));
    assert_eq!(
        remove(client(word), &with, "broker", &members()).unwrap(),
        text,
        "{with}"
    );
    with
}

#[test]
fn a_new_object_is_laid_out_like_its_neighbours() {
    assert_eq!(
        with_entry("claude", "{}\n"),
        "{\n  \"mcpServers\": {\n    \"broker\": {\n      \"command\": \"mcp-broker\",\n      \"args\": [\"connect\", \"--auto-name\"]\n    }\n  }\n}\n"
    );
    let tabs = with_entry("zed", "{\n\t// the theme\n\t\"theme\": \"dark\", // mine\n}\n");
    assert!(
        tabs.contains("\t\"theme\": \"dark\", // mine\n\t\"context_servers\": {\n\t\t\"broker\": {\n\t\t\t\"command\""),
        "{tabs}"
    );
    let windows = with_entry("cursor", "{\r\n    \"a\": 1\r\n}\r\n");
    assert!(
        windows.contains("\"a\": 1,\r\n    \"mcpServers\": {\r\n        \"broker\""),
        "{windows}"
    );
    assert_eq!(
        with_entry("gemini", "{\"a\":1}"),
        "{\"a\":1, \"mcpServers\": { \"broker\": {\"command\": \"mcp-broker\", \"args\": [\"connect\", \"--auto-name\"]} }}"
    );
}

#[test]
fn an_object_that_was_there_stays_there() {
    for text in [
        "{\"mcpServers\": {}}",
        "{\"mcpServers\": { }}",
        "{\n  \"mcpServers\": {}\n}\n",
        "{\n  \"mcpServers\": {\n  }\n}\n",
        "{\n  \"mcpServers\": { // none yet\n  }\n}\n",
        "{\n}",
        "{ // empty\n}",
        "{\"a\": 1 // last\n}",
        "{\"a\": 1, /* b */ }",
        "{\n  \"a\": 1 /* two\n lines */\n}",
        "\u{feff}{}",
        "// first\n{\n  \"mcpServers\": {\n    \"other\": {\"url\": \"http://a\"} // kept\n  }\n}\n// last\n",
    ] {
        with_entry("claude", text);
    }
    for text in [
        "{\"mcp\": {}}",
        "{\"mcp\": {\"servers\": {}}}",
        "{\"mcp\": {\"x\": {\"type\": \"local\"}}}",
        "{\n  \"mcp\": {}\n}",
    ] {
        with_entry("opencode", text);
    }
}

#[test]
fn opencode_gets_the_entry_where_its_file_lists_servers() {
    let place = |text: &str| -> Value {
        let with = with_entry("opencode", text);
        parse(client("opencode").format, &with).unwrap()
    };
    assert!(
        place("{\"mcp\": {\"servers\": {\"x\": {}}}}")
            .pointer("/mcp/servers/broker")
            .is_some()
    );
    assert!(
        place("{\"mcp\": {\"x\": {\"type\": \"local\"}}}")
            .pointer("/mcp/broker")
            .is_some()
    );
    assert!(place("{}").pointer("/mcp/broker").is_some());
}

#[test]
fn an_entry_that_others_moved_is_removed_alone() {
    for (text, left) in [
        (
            "{\"mcpServers\": {\"broker\": {\"command\": \"mcp-broker\", \"args\": [\"connect\", \"--auto-name\"]}, \"z\": {}}}",
            "{\"mcpServers\": { \"z\": {}}}",
        ),
        (
            "{\n  \"mcpServers\": {\n    \"a\": {}, // about a\n    \"broker\": {\"command\": \"mcp-broker\",\n \"args\": [\"connect\", \"--auto-name\"]} }}",
            "{\n  \"mcpServers\": {\n    \"a\": {} // about a\n     }}",
        ),
        (
            "{\n  \"mcpServers\": {\n    // ours\n    \"broker\": {\"args\": [\"connect\", \"--auto-name\"], \"command\": \"mcp-broker\"},\n  },\n}",
            "{\n  \"mcpServers\": {\n    // ours\n  },\n}",
        ),
    ] {
        assert_eq!(remove(client("claude"), text, "broker", &members()).unwrap(), left);
    }
}

#[test]
fn a_change_leaves_what_else_the_entry_has() {
    let text = "{\"mcpServers\": {\"broker\": {\"command\": \"/old/mcp-broker\", /* x */ \"env\": {\"A\": \"1\"}}}}";
    assert_eq!(
        update(client("claude"), text, "broker", &members()).unwrap(),
        "{\"mcpServers\": {\"broker\": {\"command\": \"mcp-broker\", /* x */ \"env\": {\"A\": \"1\"}, \"args\": [\"connect\", \"--auto-name\"]}}}"
    );
}

#[test]
fn what_is_no_object_is_refused() {
    for (text, keys) in [
        ("[]", ""),
        ("3", ""),
        ("{\"mcpServers\": []}", "mcpServers"),
        ("{\"mcpServers\": null}", "mcpServers"),
    ] {
        assert_eq!(
            insert(client("claude"), text, "broker", &members()),
            Err(EditError::NotAnObject(keys.to_owned()))
        );
    }
    assert!(matches!(
        insert(client("claude"), "{\"a\": }", "broker", &members()),
        Err(EditError::Invalid(_))
    ));
}

/// White space and comments that may be between two tokens.
fn trivia() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        4 => Just(String::new()),
        3 => Just(" ".to_owned()),
        3 => Just("\n".to_owned()),
        1 => Just("\n\n\t".to_owned()),
        1 => Just("\r\n  ".to_owned()),
        1 => Just("/* a, {b} */".to_owned()),
        1 => Just("/* two\n lines */".to_owned()),
        1 => Just("// to, the \"end\"  \n".to_owned()),
        1 => Just("  // }\r\n".to_owned()),
    ];
    prop::collection::vec(part, 0..3).prop_map(|parts| parts.concat())
}

/// A key that is not `broker`; among them those that lead to the servers.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("mcpServers"),
        Just("other"),
        Just("a,b"),
        Just("ä\\n\\u0041"),
        Just("//x"),
        Just("mcp"),
        Just("servers"),
        Just("hooks"),
        Just("Stop")
    ]
    .prop_map(|key| format!("\"{key}\""))
}

fn object(value: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let member = (trivia(), key(), trivia(), trivia(), value, trivia())
        .prop_map(|(a, key, b, c, value, d)| (key.clone(), format!("{a}{key}{b}:{c}{value}{d}")));
    (prop::collection::vec(member, 0..4), any::<bool>(), trivia()).prop_map(|(members, is_trailing, space)| {
        let mut seen = std::collections::HashSet::new();
        let members: Vec<_> = members
            .into_iter()
            .filter(|(key, _)| seen.insert(key.clone()))
            .map(|(_, text)| text)
            .collect();
        let trailing = if is_trailing && !members.is_empty() { "," } else { "" };
        format!("{{{}{trailing}{space}}}", members.join(","))
    })
}

pub fn document() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("1"),
        Just("\"x, } // y\""),
        Just("null"),
        Just("[1, {}]"),
        Just("{}")
    ]
    .prop_map(str::to_owned);
    let nested = leaf.prop_recursive(3, 12, 3, object);
    (trivia(), object(nested), trivia()).prop_map(|(a, object, b)| format!("{a}{object}{b}"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_entry_comes_and_goes_without_a_trace(text in document()) {
        for word in ["claude", "opencode"] {
            match insert(client(word), &text, "broker", &members()) {
                Ok(with) => {
                    prop_assert!(entry(client(word), &with, "broker").unwrap().is_some());
                    prop_assert_eq!(remove(client(word), &with, "broker", &members()).unwrap(), text.clone(), "{}", with);
                }
                Err(EditError::NotAnObject(_)) => {}
                Err(other) => prop_assert!(false, "{other} {text:?}"),
            }
        }
    }
}
