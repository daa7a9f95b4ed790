use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Broker};

#[test]
fn a_project_is_made_and_its_agents_talk() {
    let broker = Broker::secured();
    let team = broker.project("team-a", &json!({}));
    let (alice, bob) = (team.agent("alice"), team.agent("bob"));
    alice.sends("hello").to(&bob);
    bob.sees(["hello"]);
    let shown = team.rest("GET", "", &Value::Null).json();
    assert_eq!(shown["counts"]["sessions"], 2);
    let all = broker.rest(ADMIN_KEY, "GET", "/api/v1/projects", &Value::Null).json();
    assert_eq!(all["projects"].as_array().unwrap().len(), 2);
}

#[test]
fn a_message_crosses_where_both_sides_let_it() {
    let broker = Broker::secured();
    let open = json!({"allow_cross_project": true});
    let (here, there) = (broker.project("here", &open), broker.project("there", &open));
    here.may_send_to("there", &json!({}));
    let (alice, bob) = (here.agent("alice"), there.agent("bob"));
    let sent = alice.calls(
        "send_message",
        json!({"recipient_id": "bob@there", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "hi"}}),
    );
    assert!(sent.get("queue_size").is_none(), "{sent}");
    let received = bob.calls("receive_messages", json!({"wait_seconds": 10}));
    let message = &received["messages"][0];
    assert_eq!(
        (&message["project_id"], &message["sender_name"]),
        (&json!("here"), &json!("alice"))
    );
    bob.calls("receive_messages", json!({}));
    let status = alice.calls("get_message_status", json!({"message_id": sent["message_id"]}));
    assert_eq!(status["recipients"][0]["status"], "acknowledged");
}
