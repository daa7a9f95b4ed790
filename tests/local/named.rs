//! An agent that is named after its folder: it learns its name, and one that it chooses is another name of the same session.

use std::path::Path;

use serde_json::json;

use super::{front::Front, home::Home, support::eventually};

/// A front of an agent that is named after its folder, and the instructions that it gets.
fn agent_in(home: &Home, folder: &Path) -> (Front, String) {
    let mut front = home.front().args(&["--auto-name"]).in_folder(folder).start();
    let answer = front.initialize("x");
    let instructions = answer["result"]["instructions"].as_str().unwrap().to_owned();
    (front, instructions)
}

#[test]
fn an_agent_that_takes_a_name_keeps_that_of_its_folder_as_an_alias() {
    let home = Home::new();
    let folder = home.project("fresh");
    let (mut alice, instructions) = agent_in(&home, &folder);
    assert!(instructions.starts_with("You are \"fresh\""), "{instructions}");
    let prompt = alice.request("prompts/get", &json!({"name": "join", "arguments": {}}));
    let text = prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(
        text.contains("You are \"fresh\"") && text.contains("{\"name\": \"fresh\", "),
        "{text}"
    );

    let (mut bob, _) = agent_in(&home, &home.project("api"));
    let note = json!({"name": "note", "version": "1.0.0", "schema": {"type": "object"}});
    bob.calls("register_protocol", &note);
    let message = json!({"recipient_id": "fresh", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {}});
    bob.calls("send_message", &message);
    let registered = alice.calls("register_session", &json!({"name": "alice"}));
    assert_eq!(
        (&registered["name"], &registered["queue_size"]),
        (&json!("alice"), &json!(1))
    );
    assert!(
        registered["next"]
            .as_str()
            .unwrap()
            .contains("\"fresh\" reaches you as well"),
        "{registered}"
    );
    bob.calls("send_message", &message);
    let received = alice.calls("receive_messages", &json!({"acknowledge": "immediate"}));
    assert_eq!(received["messages"].as_array().unwrap().len(), 2, "{received}");
    let listed = bob.calls("list_sessions", &json!({"status": "all"}));
    let listed = listed["sessions"].as_array().unwrap();
    let one = listed.iter().find(|session| session["name"] == "alice").unwrap();
    assert_eq!((listed.len(), &one["aliases"]), (2, &json!(["fresh"])), "{listed:?}");

    // The next conversation in the folder is the same agent, and so is the one after a restart.
    alice.closes();
    assert!(alice.ends().0.success());
    eventually("the session has left", || {
        let shown = home.json("sessions alice --json");
        (shown["status"] == "disconnected").then_some(())
    });
    bob.calls("send_message", &message);
    let (mut next, instructions) = agent_in(&home, &folder);
    assert!(instructions.starts_with("You are \"alice\""), "{instructions}");
    assert_eq!(
        next.calls("receive_messages", &json!({}))["messages"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        next.calls("register_session", &json!({"name": "alice"}))["resumed"],
        true
    );
}

#[test]
fn a_second_conversation_in_the_folder_does_not_get_the_mail_of_the_first() {
    let home = Home::new();
    let folder = home.project("fresh");
    let (mut alice, _) = agent_in(&home, &folder);
    alice.calls("register_session", &json!({"name": "alice"}));
    let (_other, instructions) = agent_in(&home, &folder);
    assert!(instructions.starts_with("You are \"fresh-2\""), "{instructions}");
}

#[test]
fn an_agent_that_was_expected_has_one_address_too() {
    let home = Home::new();
    let (mut bob, _) = agent_in(&home, &home.project("api"));
    let note = json!({"name": "note", "version": "1.0.0", "schema": {"type": "object"}});
    bob.calls("register_protocol", &note);
    let message = |to: &str| json!({"recipient_id": to, "if_unknown": "keep", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {}});
    bob.calls("send_message", &message("alice"));
    let (mut alice, instructions) = agent_in(&home, &home.project("fresh"));
    assert!(instructions.starts_with("You are \"fresh\""), "{instructions}");
    let registered = alice.calls("register_session", &json!({"name": "alice"}));
    assert_eq!(
        (&registered["resumed"], &registered["queue_size"]),
        (&json!(true), &json!(1))
    );
    bob.calls("send_message", &message("fresh"));
    let received = alice.calls("receive_messages", &json!({}));
    assert_eq!(received["messages"].as_array().unwrap().len(), 2, "{received}");
    let listed = bob.calls("list_sessions", &json!({"status": "all"}));
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 2, "{listed}");
}
