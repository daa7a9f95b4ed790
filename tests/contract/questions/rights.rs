//! Who may read, answer and cancel a question. For others it does not exist.

use serde_json::{Value, json};

use super::{Person, asked, asks};
use crate::support::{Agent, Broker};

const NOWHERE: &str = "0198f3a2-0000-7000-8000-000000000000";

/// The text of the answer to a call, with the id in it replaced.
fn text(agent: &Agent, tool: &str, id: &str) -> String {
    let call = agent.begins_call(tool, &json!({"question_id": id}));
    let mut result = agent.wire.answer_to(&call).unwrap();
    assert_eq!(
        result["structuredContent"]["code"], "question_not_found",
        "{tool}: {result}"
    );
    result["_meta"] = Value::Null;
    result.to_string().replace(id, "ID")
}

#[test]
fn a_question_of_another_key_or_project_is_answered_like_one_that_does_not_exist() {
    let broker = Broker::secured();
    let (here, there) = (broker.project("here", &json!({})), broker.project("there", &json!({})));
    let [alice_key, bob_key] = ["member", "member"].map(|scope| here.new_key_with_scope(scope));
    let (alice, bob) = (here.agent_as(&alice_key, "alice"), here.agent_as(&bob_key, "bob"));
    let eve = there.agent_as(&there.new_key_with_scope("member"), "eve");
    let id = asked(&alice, asks("Secret?"));
    for stranger in [&bob, &eve] {
        for tool in ["get_answer", "cancel_question"] {
            assert_eq!(text(stranger, tool, &id), text(stranger, tool, NOWHERE), "{tool}");
        }
        assert_eq!(stranger.calls("get_answer", json!({}))["questions"], json!([]));
    }
    assert_eq!(
        alice.calls("get_answer", json!({"question_id": id}))["state"],
        "pending"
    );
}

#[test]
fn a_person_with_a_key_answers_and_the_key_of_an_agent_does_not() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let member = team.new_key_with_scope("member");
    let alice = team.agent_as(&member, "alice");
    let id = asked(&alice, asks("Who?"));
    let agent = Person {
        broker: &broker,
        name: "mara",
        key: Some(member),
    };
    let refused = agent.sends("POST", &format!("questions/{id}/answer"), &json!({"text": "I"}));
    assert_eq!(
        (refused.status, &refused.json()["code"]),
        (403, &json!("forbidden")),
        "{refused:?}"
    );
    let key = team.new_key(&json!({"scope": "answer", "human": "mara"}));
    let mara = Person {
        broker: &broker,
        name: "mara",
        key: Some(key.clone()),
    };
    mara.answers(&id, json!({"text": "a person"}));
    let result = alice.calls("get_answer", json!({"question_id": id}));
    assert_eq!(
        (&result["answer"]["text"], &result["answered_by"]["human"]),
        (&json!("a person"), &json!("mara"))
    );
    // The key of a person asks nothing.
    let console = team.client_as(&key);
    let refused = console
        .request("tools/call", json!({"name": "clarify", "arguments": asks("May I?")}))
        .unwrap();
    assert_eq!(refused["structuredContent"]["code"], "forbidden", "{refused}");
}

#[test]
fn a_person_is_listed_with_its_kind() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    mara.answers(&asked(&alice, asks("Who are you?")), json!({"text": "mara"}));
    let listed = alice.calls("list_sessions", json!({"status": "all"}));
    let sessions = listed["sessions"].as_array().unwrap();
    let human = sessions.iter().find(|session| session["name"] == "mara").unwrap();
    assert_eq!(
        (&human["kind"], &human["presence"], &human["open"]),
        (&json!("human"), &json!("away"), &json!(0))
    );
    let agent = sessions.iter().find(|session| session["name"] == "alice").unwrap();
    assert!(
        agent.get("kind").is_none() && agent.get("presence").is_none(),
        "{agent}"
    );
}
