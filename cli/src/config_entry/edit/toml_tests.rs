//! The edits of TOML.

use crate::agent_clients::AgentClient;
use crate::config_entry::edit::{EditError, Members, entry, insert, remove, update};

fn members() -> Members {
    vec![
        ("command", "mcp-broker".into()),
        ("args", serde_json::json!(["connect", "--auto-name"])),
    ]
}

fn codex() -> &'static AgentClient {
    AgentClient::of_word("codex").unwrap()
}

#[test]
fn a_table_is_added_at_the_end_and_taken_out_again() {
    for text in [
        "",
        "\n",
        "model = \"o\" # mine",
        "model = \"o\" # mine\n",
        "a = 1\n\n\n",
        "a = 1\r\n[b]\r\nc = 2\r\n",
        "[mcp_servers.other]\ncommand = 'x'\n# the end\n",
        "[mcp_servers]\n",
    ] {
        let with = insert(codex(), text, "broker", &members()).unwrap();
        assert!(with.starts_with(text), "{with}");
        assert!(entry(codex(), &with, "broker").unwrap().is_some());
        assert_eq!(remove(codex(), &with, "broker", &members()).unwrap(), text);
        let later = format!("{with}\n[later]\nx = 1\n");
        let expected = format!("{text}\n[later]\nx = 1\n");
        assert_eq!(remove(codex(), &later, "broker", &members()).unwrap(), expected);
    }
}

#[test]
fn a_table_gets_other_values_in_its_place() {
    let with = insert(codex(), "a = 1\n", "broker", &members()).unwrap() + "[z]\n";
    let mut other = members();
    other[0].1 = "/opt/mcp-broker".into();
    let changed = update(codex(), &with, "broker", &other).unwrap();
    assert_eq!(changed, with.replace("\"mcp-broker\"", "\"/opt/mcp-broker\""));
}

#[test]
fn what_is_written_in_another_way_is_refused() {
    let inline = "mcp_servers = { other = { command = 'x' } }\n";
    assert_eq!(insert(codex(), inline, "broker", &members()), Err(EditError::Unusual));
    let written = "[mcp_servers.broker]\ncommand = 'mcp-broker'\nargs = ['connect', '--auto-name']\n";
    assert_eq!(remove(codex(), written, "broker", &members()), Err(EditError::Unusual));
    let text = "mcp_servers = 3\n";
    assert_eq!(
        insert(codex(), text, "broker", &members()),
        Err(EditError::NotAnObject("mcp_servers".to_owned()))
    );
}
