//! Who may read, answer and cancel questions.

use serde_json::{Value, json};

use super::Desk;
use crate::support::{ADMIN_KEY, Broker};

const UNKNOWN: &str = "0198f3a2-0000-7000-8000-000000000000";

/// The verbs of people with a body.
fn verbs() -> [(&'static str, Value); 6] {
    [
        ("claim", Value::Null),
        ("typed", Value::Null),
        ("release", Value::Null),
        ("handover", json!({"to": "desk"})),
        ("decline", json!({})),
        ("answer", json!({"text": "a"})),
    ]
}

#[test]
fn an_agent_with_the_name_of_a_person_does_not_keep_them_from_answering() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let agent = desk.team.client_as(&desk.agent);
    let _squatter = agent.registered_with(&json!({"name": "squatter", "aliases": ["mara", "human", "answer-link"]}));
    let (_stream, _) = desk.follows(&desk.mara, "topics=questions&console=mara");
    let id = desk.asks("Which one?", &json!({}));
    let answered = desk.acts(&desk.mara, &id, "answer", &json!({"text": "this"}));
    assert_eq!(answered.status, 200, "{answered:?}");
    assert_eq!(answered.json()["answered_by"]["human"], "mara");
}

#[test]
fn a_key_of_scope_answer_reads_and_answers_as_its_person_and_sends_nothing() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let me = desk.gets(&desk.mara, "me");
    assert_eq!(
        (&me["scope"], &me["human"], &me["roles"]),
        (&json!("answer"), &json!("mara"), &json!(["oncall"]))
    );
    let keys = desk.gets(&desk.team.key, "projects/team/keys");
    let key = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .find(|key| key["human"] == "mara")
        .unwrap();
    assert_eq!((&key["scope"], &key["roles"]), (&json!("answer"), &json!(["oncall"])));
    // A rotated key is of the same person.
    let rotated = desk.team.rotate_key(&desk.mara, 3600);
    assert_eq!(desk.gets(&rotated, "me")["human"], "mara");
    for path in [
        "sessions",
        "protocols",
        "messages",
        "dead-letters",
        "stats",
        "desk",
        "yaps",
    ] {
        desk.gets(&desk.mara, path);
    }
    let agent = desk.team.client_as(&desk.mara);
    for (tool, arguments) in [
        ("register_session", json!({"name": "mara"})),
        (
            "send_message",
            json!({"recipient_id": "x", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {}}),
        ),
    ] {
        agent.is_refused_as("forbidden", tool, arguments);
    }
    let id = desk.asks("?", &json!({}));
    let as_lena = [("X-API-Key", desk.mara.as_str()), ("X-Human", "lena")];
    let path = format!("/api/v1/questions/{id}/answer");
    let refused = broker.rest_with(&as_lena, "POST", &path, &json!({"text": "a"}));
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    let with_role = [("X-API-Key", desk.lena.as_str()), ("X-Human-Roles", "oncall")];
    let refused = broker.rest_with(&with_role, "POST", &path, &json!({"text": "a"}));
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    let as_mara = [("X-API-Key", rotated.as_str()), ("X-Human", "mara")];
    let answered = broker.rest_with(&as_mara, "POST", &path, &json!({"text": "a"}));
    assert_eq!(
        answered.json()["answered_by"],
        json!({"human": "mara", "via": "api"}),
        "{answered:?}"
    );
}

#[test]
fn a_key_names_a_person_with_scope_answer_and_only_then() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    for wrong in [
        json!({"scope": "answer"}),
        json!({"scope": "answer", "roles": ["oncall"]}),
        json!({"scope": "member", "human": "mara"}),
        json!({"scope": "answer", "human": "desk"}),
        json!({"scope": "answer", "human": "a@b"}),
        json!({"scope": "answer", "human": "mara", "roles": ["a,b"]}),
        json!({"scope": "answer", "human": "mara", "roles": vec!["r"; 17]}),
    ] {
        let refused = desk.team.rest("POST", "keys", &wrong);
        assert_eq!(refused.problem(), (400, "invalid_argument".to_owned()), "{wrong}");
    }
}

#[test]
fn people_see_what_they_may_answer_and_agents_what_they_asked() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let stranger = broker
        .project("elsewhere", &json!({}))
        .new_key(&json!({"scope": "answer", "human": "mara"}));
    let other_agent = desk.team.new_key_with_scope("member");
    let observer = desk.team.new_key_with_scope("observer");
    let to_all = desk.asks("all", &json!({}));
    let to_mara = desk.asks("mara", &json!({"to": "mara"}));
    let to_role = desk.asks("role", &json!({"to": "oncall"}));
    for (who, key, expected) in [
        ("mara", &desk.mara, vec![&to_all, &to_mara, &to_role]),
        ("lena", &desk.lena, vec![&to_all]),
        ("the agent", &desk.agent, vec![&to_all, &to_mara, &to_role]),
        ("another agent", &other_agent, vec![]),
        ("the administrator", &desk.team.key, vec![&to_all, &to_mara, &to_role]),
        ("a stranger", &stranger, vec![]),
    ] {
        assert_eq!(desk.lists(key, "").iter().collect::<Vec<_>>(), expected, "{who}");
        for id in [&to_all, &to_mara, &to_role] {
            let shown = desk.request(key, "GET", &format!("questions/{id}"), &Value::Null);
            if expected.contains(&id) {
                assert_eq!(shown.status, 200, "{who}: {shown:?}");
                continue;
            }
            // To the byte the answer for a question that does not exist.
            let unknown = desk.request(key, "GET", &format!("questions/{UNKNOWN}"), &Value::Null);
            assert_eq!(shown.problem(), (404, "question_not_found".to_owned()), "{who}");
            assert_eq!(shown.body.replace(id.as_str(), UNKNOWN), unknown.body, "{who}");
        }
    }
    for (key, path) in [
        (&observer, "questions".to_owned()),
        (&observer, format!("questions/{to_all}")),
    ] {
        let refused = desk.request(key, "GET", &path, &Value::Null);
        assert_eq!(refused.problem(), (403, "forbidden".to_owned()), "{path}");
    }
    for (verb, body) in verbs() {
        for (who, key) in [("lena", &desk.lena), ("a stranger", &stranger)] {
            let refused = desk.acts(key, &to_mara, verb, &body);
            assert_eq!(
                refused.problem(),
                (404, "question_not_found".to_owned()),
                "{verb} of {who}"
            );
        }
        for (who, key) in [("the agent", &desk.agent), ("an observer", &observer)] {
            let refused = desk.acts(key, &to_mara, verb, &body);
            assert_eq!(refused.problem(), (403, "forbidden".to_owned()), "{verb} of {who}");
        }
    }
    // People decline and do not cancel; agents cancel what they asked.
    assert_eq!(desk.acts(&desk.mara, &to_all, "cancel", &Value::Null).status, 403);
    let refused = desk.acts(&other_agent, &to_all, "cancel", &Value::Null);
    assert_eq!(refused.problem(), (404, "question_not_found".to_owned()));
    for (key, id) in [(&desk.agent, &to_all), (&desk.team.key, &to_mara)] {
        let cancelled = desk.acts(key, id, "cancel", &Value::Null);
        assert_eq!(cancelled.json()["state"], "cancelled", "{cancelled:?}");
    }
}

#[test]
fn an_administrator_answers_under_any_name() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    for key in [&desk.team.key, ADMIN_KEY] {
        let id = desk.asks("?", &json!({"to": "oncall"}));
        let path = format!("/api/v1/questions/{id}/answer");
        let headers = [
            ("X-API-Key", key),
            ("X-Project-ID", "team"),
            ("X-Human", "zoë"),
            ("X-Human-Roles", "dba, oncall"),
        ];
        let answered = broker.rest_with(&headers, "POST", &path, &json!({"text": "a", "via": "web"}));
        assert_eq!(
            answered.json()["answered_by"],
            json!({"human": "zoë", "via": "web"}),
            "{answered:?}"
        );
    }
    // The name of an agent is no name of a person.
    let id = desk.asks("?", &json!({}));
    let headers = [("X-API-Key", desk.team.key.as_str()), ("X-Human", "alice")];
    let refused = broker.rest_with(
        &headers,
        "POST",
        &format!("/api/v1/questions/{id}/answer"),
        &json!({"text": "a"}),
    );
    assert_eq!(refused.problem(), (400, "invalid_argument".to_owned()), "{refused:?}");
}

#[test]
fn the_key_of_an_agent_answers_only_where_the_operator_allows_it() {
    let broker = Broker::secured_with(&["--allow-agent-answers=true"]);
    let desk = Desk::open(&broker);
    let reviewer = desk.team.new_key_with_scope("member");
    let id = desk.asks("?", &json!({}));
    let headers = [("X-API-Key", reviewer.as_str()), ("X-Human", "reviewer")];
    let answered = broker.rest_with(
        &headers,
        "POST",
        &format!("/api/v1/questions/{id}/answer"),
        &json!({"text": "a"}),
    );
    let by = json!({"human": "reviewer", "via": "api", "kind": "agent"});
    assert_eq!(answered.json()["answered_by"], by, "{answered:?}");
}

#[test]
fn without_keys_whoever_reaches_the_broker_answers_under_any_name() {
    let broker = Broker::start();
    let ask = json!({"from": "alice", "question": "?"});
    for (headers, name) in [(&[][..], "human"), (&[("X-Human", "mara")][..], "mara")] {
        let asked = broker.rest_with(&[], "POST", "/api/v1/questions", &ask).json();
        let path = format!("/api/v1/questions/{}/answer", asked["question_id"].as_str().unwrap());
        let answered = broker.rest_with(headers, "POST", &path, &json!({"text": "a"}));
        assert_eq!(answered.json()["answered_by"]["human"], name, "{answered:?}");
    }
}
