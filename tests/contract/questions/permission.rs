//! `permission_prompt`: exactly the JSON that Claude Code reads.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, HttpAgent};

fn prompt(agent: &Agent, id: &str) -> Value {
    let input = json!({"command": "rm -r build", "nested": {"ü": [1.5, null]}});
    let arguments = json!({"tool_name": "Bash", "input": input, "tool_use_id": id});
    agent.begins_call("permission_prompt", &arguments)
}

/// The text of the result, which must be all of it.
fn text(agent: &Agent, call: &Value) -> String {
    let result = agent.wire.answer_to(call).unwrap();
    assert_eq!(result["isError"], false, "{result}");
    assert_eq!(result["content"].as_array().unwrap().len(), 1);
    let text = result["content"][0]["text"].as_str().unwrap().to_owned();
    // Claude Code takes a result with anything beside its text for invalid.
    assert_eq!(result.get("structuredContent"), None, "{result}");
    text
}

#[test]
fn each_decision_is_the_json_of_claude_code() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let allowed = r#"{"behavior":"allow","updatedInput":{"command":"rm -r build","nested":{"ü":[1.5,null]}}}"#;
    for (number, (answer, expected)) in [
        (json!({"selected": ["allow"]}), allowed),
        (
            json!({"selected": ["deny"]}),
            r#"{"behavior":"deny","message":"mara denied it"}"#,
        ),
        (
            json!({"selected": ["deny"], "text": "not today"}),
            r#"{"behavior":"deny","message":"not today"}"#,
        ),
        (
            json!({"selected": ["deny_and_stop"]}),
            r#"{"behavior":"deny","interrupt":true,"message":"mara denied it"}"#,
        ),
        (
            json!({"text": "use trash instead"}),
            r#"{"behavior":"deny","message":"use trash instead"}"#,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let call = prompt(&alice, &format!("toolu_{number}"));
        let id = mara.awaits("May the agent use Bash?");
        let shown = mara.sends("GET", &format!("questions/{id}"), &Value::Null).json();
        assert!(shown["context"].as_str().unwrap().contains("rm -r build"));
        mara.answers(&id, answer);
        let text = text(&alice, &call);
        let (text, expected): (Value, Value) = (
            serde_json::from_str(&text).unwrap(),
            serde_json::from_str(expected).unwrap(),
        );
        assert_eq!(text, expected);
    }
}

#[test]
fn the_input_comes_back_as_it_was_and_nothing_is_added() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    broker.agent("bob").sends("one is unread").to(&alice);
    let frame = r#"{"jsonrpc":"2.0","id":"p1","method":"tools/call","params":{"name":"permission_prompt","arguments":{"tool_name":"Write","tool_use_id":"t","input":{ "z": 1.50, "a": "é" }}}}"#;
    alice.wire.sends_text(frame);
    mara.answers(&mara.awaits("May the agent use Write?"), json!({"selected": ["allow"]}));
    let text = text(&alice, &json!("p1"));
    assert_eq!(text, r#"{"behavior":"allow","updatedInput":{ "z": 1.50, "a": "é" }}"#);
}

#[test]
fn a_permission_holds_for_the_tool_and_the_input_that_a_person_saw() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let ask = |tool: &str, command: &str| {
        let arguments = json!({"tool_name": tool, "input": {"command": command}, "tool_use_id": "toolu_1"});
        alice.begins_call("permission_prompt", &arguments)
    };
    let first = ask("Bash", "ls");
    mara.answers(&mara.awaits("May the agent use Bash?"), json!({"selected": ["allow"]}));
    assert!(text(&alice, &first).contains("allow"));
    assert!(text(&alice, &ask("Bash", "ls")).contains("allow"), "the same use");
    for (tool, command) in [("Bash", "rm -r /"), ("Write", "ls")] {
        let other = ask(tool, command);
        mara.answers(
            &mara.awaits(&format!("May the agent use {tool}?")),
            json!({"selected": ["deny"]}),
        );
        assert!(text(&alice, &other).contains("deny"), "{tool} {command}");
    }
    // No other tool prepares an answer.
    let planted = json!({"question": "Coffee?", "options": ["allow"], "idempotency_key": "permission:toolu_2"});
    alice.is_refused_as("invalid_argument", "clarify", planted);
}

#[test]
fn the_same_use_asks_once_and_a_declined_prompt_denies() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let cut = prompt(&alice, "toolu_1");
    let id = mara.awaits("May the agent use Bash?");
    alice.wire.cancels(&cut);
    let again = prompt(&alice, "toolu_1");
    alice.syncs();
    assert_eq!(mara.sees().len(), 1);
    mara.does("decline", &id, json!({}));
    let denied: Value = serde_json::from_str(&text(&alice, &again)).unwrap();
    assert_eq!(
        denied,
        json!({"behavior": "deny", "message": "mara declined to decide"})
    );
}

#[test]
fn a_prompt_is_denied_when_the_broker_stops() {
    let mut broker = Broker::without_timeouts();
    let alice = broker.agent("alice");
    let call = prompt(&alice, "toolu_1");
    broker.person("mara").awaits("May the agent use Bash?");
    broker.terminate();
    let denied: Value = serde_json::from_str(&text(&alice, &call)).unwrap();
    assert_eq!(denied["behavior"], "deny");
    broker.wait_for_exit();
}

#[test]
fn a_client_of_modern_http_asks_without_a_session() {
    let broker = Broker::with_fast_disconnect();
    let mara = broker.person("mara");
    let client = HttpAgent::modern(broker.address, json!({}));
    for accept in ["application/json, text/event-stream", "application/json"] {
        let arguments = json!({"tool_name": "Bash", "input": {"command": accept}, "tool_use_id": "toolu_1"});
        let mut waiting = client
            .call("permission_prompt", arguments)
            .with("Accept", accept)
            .sent();
        let id = mara.awaits("May the agent use Bash?");
        let asked = mara.sends("GET", &format!("questions/{id}"), &Value::Null).json();
        assert_eq!(asked["asker"]["name"], Value::Null, "{asked}");
        // It stays for longer than a session that says nothing.
        let alice = broker.agent("alice");
        let silent = broker.http_modern("silent");
        alice.awaits_presence(&silent.name, "disconnected");
        mara.answers(&id, json!({"selected": ["allow"]}));
        let result = waiting.answer_to(&json!(1)).unwrap();
        let text = result["content"][0]["text"].as_str().unwrap();
        let decision: Value = serde_json::from_str(text).unwrap();
        assert_eq!(
            decision,
            json!({"behavior": "allow", "updatedInput": {"command": accept}})
        );
        assert_eq!(result.get("structuredContent"), None, "{result}");
    }
}
