//! What a person and agents write to each other: `desk/messages`.

use serde_json::{Value, json};

use super::{Desk, awaits};
use crate::support::{Broker, eventually};

const CONSOLE: &str = "topics=questions,yaps,desk&console=mara";

/// The messages of a person, once there are so many: some storages write their history behind.
fn awaits_messages(desk: &Desk<'_>, key: &str, len: usize) -> Value {
    eventually(&format!("{len} messages"), || {
        let page = desk.gets(key, "desk/messages");
        (page["messages"].as_array().unwrap().len() == len).then_some(page)
    })
}

#[test]
fn a_person_writes_to_an_agent_and_its_answer_comes_back() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let alice = desk.team.client_as(&desk.agent).registered("alice");
    let (mut stream, first) = desk.follows(&desk.mara, CONSOLE);
    assert_eq!(first["inbox"]["waiting"], 0);
    let body = json!({"to": "alice", "text": "Which port?", "idempotency_key": "k1"});
    let sent = desk.request(&desk.mara, "POST", "desk/messages", &body);
    assert_eq!(sent.status, 201, "{sent:?}");
    let id = sent.json()["message_id"].clone();
    let repeated = desk.request(&desk.mara, "POST", "desk/messages", &body);
    assert_eq!(repeated.json()["message_id"], id, "a repeat sends nothing");
    let got = alice.calls("receive_messages", json!({"acknowledge": "immediate"}));
    let message = &got["messages"][0];
    assert_eq!(got["messages"].as_array().unwrap().len(), 1, "{got}");
    assert_eq!(
        (&message["sender_name"], &message["protocol_name"], &message["payload"]),
        (&json!("mara"), &json!("text"), &json!({"text": "Which port?"}))
    );
    let answer = json!({"recipient_id": "mara", "protocol_name": "text", "protocol_version": "1.0.0",
        "payload": {"text": "8080"}, "headers": {"thread_id": id}});
    alice.calls("send_message", answer);
    awaits(&mut stream, "desk", |desk| desk["inbox"]["waiting"] == 1);
    let page = awaits_messages(&desk, &desk.mara, 2);
    let (new, own) = (&page["messages"][0], &page["messages"][1]);
    assert_eq!((&page["human"], &page["waiting"]), (&json!("mara"), &json!(1)));
    assert_eq!(
        (
            &new["sender_name"],
            &new["payload"]["text"],
            &new["unread"],
            &new["thread_id"]
        ),
        (&json!("alice"), &json!("8080"), &json!(true), &id)
    );
    assert_eq!(
        (&own["recipient_name"], &own["unread"]),
        (&json!("alice"), &json!(false))
    );
    let read = json!({"message_ids": [new["message_id"], own["message_id"], "nonsense"]});
    let done = desk.does(&desk.mara, "POST", "desk/messages/read", &read);
    assert_eq!(
        done,
        json!({"acknowledged": 1, "unknown": ["nonsense", own["message_id"]]})
    );
    let page = awaits_messages(&desk, &desk.mara, 2);
    assert_eq!(
        (&page["waiting"], &page["messages"][0]["unread"]),
        (&json!(0), &json!(false))
    );
    let status = alice.calls("get_message_status", json!({"message_id": new["message_id"]}));
    assert_eq!(
        status["recipients"][0]["status"], "acknowledged",
        "the agent sees that it was read"
    );
}

#[test]
fn the_messages_of_a_person_have_no_answers_to_questions_and_are_theirs_alone() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    desk.team.client_as(&desk.agent).registered("alice");
    let id = desk.asks("Which one?", &json!({}));
    desk.acts(&desk.mara, &id, "answer", &json!({"text": "this"}));
    for text in ["one", "two", "three"] {
        let sent = desk.request(
            &desk.mara,
            "POST",
            "desk/messages",
            &json!({"to": "alice", "text": text}),
        );
        assert_eq!(sent.status, 201, "{sent:?}");
    }
    let page = awaits_messages(&desk, &desk.mara, 3);
    assert!(
        page["messages"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["protocol_name"] == "text"),
        "{page}"
    );
    assert_eq!(page["payloads_kept"], false);
    assert_eq!(desk.gets(&desk.lena, "desk/messages")["messages"], json!([]));
    let first = desk.gets(&desk.mara, "desk/messages?limit=2");
    let rest = desk.gets(
        &desk.mara,
        &format!(
            "desk/messages?limit=2&cursor={}",
            first["next_cursor"].as_str().unwrap()
        ),
    );
    assert_eq!(rest["messages"].as_array().unwrap().len(), 1, "{rest}");
}

#[test]
fn who_is_no_person_writes_no_message_of_one_and_a_text_has_a_bound() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    desk.team.client_as(&desk.agent).registered("alice");
    let observer = desk.team.new_key_with_scope("observer");
    let body = json!({"to": "alice", "text": "hello"});
    for key in [&desk.agent, &observer] {
        for (method, path, body) in [
            ("GET", "desk/messages", Value::Null),
            ("POST", "desk/messages", body.clone()),
            ("POST", "desk/messages/read", json!({"message_ids": []})),
        ] {
            let refused = desk.request(key, method, path, &body);
            assert_eq!(
                (refused.status, &refused.json()["code"]),
                (403, &json!("forbidden")),
                "{method} {path}"
            );
        }
    }
    let posts = |body: Value| {
        let refused = desk.request(&desk.mara, "POST", "desk/messages", &body);
        (refused.status, refused.json()["code"].clone())
    };
    let longest = "ä".repeat(32 * 1024);
    assert_eq!(posts(json!({"to": "alice", "text": longest})).0, 201);
    for text in [format!("{longest}x"), " \n".to_owned(), String::new()] {
        assert_eq!(
            posts(json!({"to": "alice", "text": text})),
            (400, json!("invalid_argument"))
        );
    }
    assert_eq!(posts(json!({"to": "nemo", "text": "x"})).1, "session_not_found");
    let many = json!({"message_ids": vec!["x"; 501]});
    assert_eq!(
        desk.request(&desk.mara, "POST", "desk/messages/read", &many).status,
        400
    );
}
