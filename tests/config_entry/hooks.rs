//! `mcp-broker setup CLIENT --hooks`: what it does to the files of a user.

use std::fs;

use serde_json::{Value, json};

use super::setup::{User, identity};

/// The file of the hooks below the home folder, that of a project, and the event that ends a turn.
const HOOKS: [(&str, &str, &str, &str); 5] = [
    ("claude", ".claude/settings.json", ".claude/settings.json", "Stop"),
    ("codex", ".codex/hooks.json", ".codex/hooks.json", "Stop"),
    ("gemini", ".gemini/settings.json", ".gemini/settings.json", "AfterAgent"),
    (
        "copilot",
        ".copilot/hooks/mcp-broker.json",
        ".github/hooks/mcp-broker.json",
        "agentStop",
    ),
    ("cursor", ".cursor/hooks.json", ".cursor/hooks.json", "stop"),
];

fn json_of(user: &User, file: &str) -> Value {
    serde_json::from_str(&user.reads(file)).unwrap()
}

#[test]
fn each_client_gets_its_hooks_once_and_loses_them_again() {
    for (client, file, project_file, end) in HOOKS {
        let user = User::new();
        let told = user.sets_up(&[client, "--hooks"]);
        assert!(told.contains("were added to") && told.contains(file), "{told}");
        let hooks = json_of(&user, file)["hooks"].clone();
        assert_eq!(hooks.as_object().unwrap().len(), 3, "{client}: {hooks}");
        let line = hooks[end][0].to_string();
        assert!(line.contains("hook") && line.contains("stop"), "{line}");
        let before = identity(&user.path(file));
        assert!(user.sets_up(&[client, "--hooks"]).contains("are already in"));
        assert_eq!(identity(&user.path(file)), before);
        let changed = user.sets_up(&[client, "--hooks", "--instance", "work"]);
        assert!(changed.contains("were updated in"), "{changed}");
        let hooks = json_of(&user, file)["hooks"].to_string();
        assert!(hooks.matches("--instance").count() >= 3, "{hooks}");
        assert!(
            user.sets_up(&[client, "--hooks", "--remove"])
                .contains("were removed from")
        );
        assert_eq!(json_of(&user, file).get("hooks"), None);
        assert!(user.sets_up(&[client, "--hooks", "--remove"]).contains("has no hooks"));
        fs::create_dir(user.path("shop")).unwrap();
        user.sets_up(&[client, "--hooks", "--project", "shop"]);
        assert!(user.path("shop").join(project_file).exists(), "{client}");
    }
}

#[test]
fn the_hooks_of_claude_code_wake_an_idle_conversation() {
    let user = User::new();
    let printed = user.sets_up(&["claude", "--hooks", "--print"]);
    assert!(!user.path(".claude").exists());
    let file: Value = serde_json::from_str(&printed[printed.find('{').unwrap()..]).unwrap();
    let program = env!("CARGO_BIN_EXE_mcp-broker");
    let short = |task: &str| json!({"type": "command", "command": program, "args": ["hook", task], "timeout": 10});
    let wait = json!({"type": "command", "command": program, "args": ["hook", "wait"], "asyncRewake": true, "timeout": 86_400});
    assert_eq!(
        file,
        json!({"hooks": {
            "SessionStart": [{"hooks": [short("prompt"), wait]}],
            "UserPromptSubmit": [{"hooks": [short("prompt")]}],
            "Stop": [{"hooks": [short("stop"), wait]}],
        }})
    );
}

#[test]
fn hooks_of_others_and_comments_keep_every_byte() {
    let text = "// mine\n{\n    \"model\": \"x\", // the best\n    \"hooks\": {\n        \"Stop\": [\n            \
                {\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}, // loud\n        ],\n    },\n}\n";
    let user = User::new();
    user.writes(".claude/settings.json", text);
    user.sets_up(&["claude", "--hooks"]);
    let with = user.reads(".claude/settings.json");
    assert!(
        with.contains("say done") && with.contains("// loud") && with.contains("asyncRewake"),
        "{with}"
    );
    user.sets_up(&["claude", "--hooks", "--remove"]);
    assert_eq!(user.reads(".claude/settings.json"), text);
    // The entry and the hooks of Gemini CLI share a file.
    let text = "{\n  // mine\n  \"theme\": \"dark\"\n}\n";
    user.writes(".gemini/settings.json", text);
    user.sets_up(&["gemini"]);
    let with_entry = user.reads(".gemini/settings.json");
    user.sets_up(&["gemini", "--hooks"]);
    user.sets_up(&["gemini", "--hooks", "--remove"]);
    assert_eq!(user.reads(".gemini/settings.json"), with_entry);
}

#[test]
fn what_cannot_be_written_is_refused_and_changes_nothing() {
    let user = User::new();
    let mixed = json!({"hooks": {"Stop": [{"hooks": [
        {"type": "command", "command": "mcp-broker hook stop"}, {"type": "command", "command": "say done"},
    ]}]}});
    for (text, reason) in [
        (mixed.to_string(), "separate them"),
        ("{\"hooks\": []}".to_owned(), "hooks is not an object"),
        ("{\"hooks\": {\"Stop\": 1}}".to_owned(), "hooks.Stop is not a list"),
        ("{\"hooks\": ".to_owned(), "not valid JSON"),
    ] {
        user.writes(".claude/settings.json", &text);
        let refusal = user.is_refused(&["claude", "--hooks"]);
        assert!(refusal.contains(reason), "{refusal}");
        assert_eq!(user.reads(".claude/settings.json"), text);
    }
    assert!(user.is_refused(&["zed", "--hooks"]).contains("has no hooks"));
    assert!(
        user.is_refused(&["claude", "--hooks", "--url", "http://a"])
            .contains("--url")
    );
    let mut command = user.command(&["claude", "--hooks"]);
    let output = command.env("MCP_BROKER_URL", "http://a").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_answer_as_json_has_the_hooks() {
    let user = User::new();
    let done: Value = serde_json::from_str(&user.sets_up(&["cursor", "--hooks", "--json"])).unwrap();
    assert_eq!((&done["change"], &done["written"]), (&json!("added"), &json!(true)));
    assert_eq!(done["hooks"]["stop"]["loop_limit"], 5);
    assert_eq!(json_of(&user, ".cursor/hooks.json")["version"], 1);
}
