//! Notifications of changes to an inbox, in both eras.

use serde_json::{Value, json};

use crate::support::{Agent, Broker};

const UPDATED: &str = "notifications/resources/updated";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const ID: &str = "io.modelcontextprotocol/subscriptionId";

#[test]
fn a_legacy_client_is_notified_after_it_has_subscribed() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.sends("before").to(&bob);
    assert_eq!(bob.wire.notifications_so_far(UPDATED), 0);
    let inbox = json!({"uri": "broker://inbox"});
    assert_eq!(bob.request("resources/subscribe", inbox.clone()), Ok(json!({})));
    bob.syncs();
    // Messages that wait already are announced at once.
    assert_eq!(bob.wire.next_notification(UPDATED), inbox);
    alice.sends("after").to(&bob);
    assert_eq!(bob.wire.next_notification(UPDATED), inbox);
    bob.sees(["before", "after"]);
    assert_eq!(bob.request("resources/unsubscribe", inbox), Ok(json!({})));
    alice.sends("later").to(&bob);
    assert_eq!(bob.wire.notifications_so_far(UPDATED), 0);
}

#[test]
fn the_inbox_may_be_named_by_its_session() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let inbox = json!({"uri": format!("broker://sessions/{}/inbox", bob.session)});
    bob.request("resources/subscribe", inbox.clone()).unwrap();
    alice.sends("hi").to(&bob);
    assert_eq!(bob.wire.next_notification(UPDATED), inbox);
}

#[test]
fn a_subscription_outlives_a_registration() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.client();
    bob.request("resources/subscribe", json!({"uri": "broker://inbox"}))
        .unwrap();
    let bob = bob.registered("bob");
    alice.sends("hi").to(&bob);
    bob.wire.next_notification(UPDATED);
}

#[test]
fn every_message_after_the_answer_is_announced() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let inbox = json!({"uri": "broker://inbox"});
    for _ in 0..100 {
        bob.request("resources/subscribe", inbox.clone()).unwrap();
        alice.sends("hi").to(&bob);
        bob.wire.next_notification(UPDATED);
        bob.request("resources/unsubscribe", inbox.clone()).unwrap();
        bob.sees(["hi"]);
        bob.sees_nothing();
    }
}

#[test]
fn a_client_can_subscribe_to_its_own_inbox_only() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    let [others, listed] = [&alice.held, &alice.session].map(|id| format!("broker://sessions/{id}/inbox"));
    for (uri, code) in [
        ("broker://nothing", -32002),
        ("file:///etc/passwd", -32002),
        ("", -32002),
        (&others, -32602),
        (&listed, -32002),
        ("broker://sessions", -32602),
    ] {
        assert_eq!(bob.error_of("resources/subscribe", json!({"uri": uri})), code, "{uri}");
    }
    assert_eq!(bob.error_of("resources/subscribe", json!({})), -32602);
    alice.sends("private").to(&alice);
    assert_eq!(bob.wire.notifications_so_far(UPDATED), 0);
}

fn listen(agent: &Agent, id: &Value, filter: Value) -> Value {
    let params = agent.params(json!({"notifications": filter}));
    agent.wire.asks_as(id, "subscriptions/listen", params);
    let acknowledged = agent.wire.next_notification(ACKNOWLEDGED);
    agent.syncs();
    acknowledged
}

#[test]
fn a_modern_client_is_notified_while_it_listens() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for (name, id) in [
        ("bob", json!(7)),
        ("carol", json!("7")),
        ("dave", json!("ünï \"q\" \\")),
    ] {
        let agent = broker.modern(name);
        let acknowledged = listen(&agent, &id, json!({"resourceSubscriptions": ["broker://inbox"]}));
        assert_eq!(
            acknowledged,
            json!({"_meta": {ID: id}, "notifications": {"resourceSubscriptions": ["broker://inbox"]}})
        );
        alice.sends("hi").to(&agent);
        let updated = json!({"_meta": {ID: id}, "uri": "broker://inbox"});
        assert_eq!(agent.wire.next_notification(UPDATED), updated);
        // A cancelled subscription ends without an answer.
        agent.wire.cancels(&id);
        agent.syncs();
        alice.sends("later").to(&agent);
        agent.sees(["hi", "later"]);
        // A legacy ping serves as a barrier on every connection.
        assert_eq!(agent.wire.notifications_so_far(UPDATED), 0);
        assert_eq!(agent.wire.answer_so_far(&id), None);
        // The id is free again.
        listen(&agent, &id, json!({"resourceSubscriptions": ["broker://inbox"]}));
        alice.sends("once more").to(&agent);
        assert_eq!(agent.wire.next_notification(UPDATED), updated);
    }
}

#[test]
fn the_acknowledgement_is_the_first_frame_of_a_subscription() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let bob = broker.modern("bob");
    // Messages arrive throughout.
    let sender = std::thread::spawn(move || {
        for at in 0..200 {
            alice.sends(&at.to_string()).to("bob");
        }
    });
    for id in 100..120 {
        let params = bob.params(json!({"notifications": {"resourceSubscriptions": ["broker://inbox"]}}));
        bob.wire.asks_as(&json!(id), "subscriptions/listen", params);
        let first = bob.wire.awaits_frame("a frame of the subscription", |frame| {
            frame["params"]["_meta"][ID] == id
        });
        assert_eq!(first["method"], ACKNOWLEDGED);
        bob.wire.cancels(&json!(id));
    }
    sender.join().unwrap();
}

#[test]
fn the_acknowledgement_names_only_what_is_offered() {
    let broker = Broker::start();
    let bob = broker.modern("bob");
    let filter = json!({
        "toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true,
        "resourceSubscriptions": ["broker://nothing", "broker://inbox", "broker://sessions"],
    });
    let acknowledged = listen(&bob, &json!("a"), filter);
    assert_eq!(
        acknowledged["notifications"],
        json!({"resourceSubscriptions": ["broker://inbox"]})
    );
    assert_eq!(listen(&bob, &json!("b"), json!({}))["notifications"], json!({}));
    // An id in use is refused.
    let params = bob.params(json!({"notifications": {}}));
    bob.wire.asks_as(&json!("b"), "subscriptions/listen", params);
    assert_eq!(bob.wire.answer_to(&json!("b")).unwrap_err()["code"], -32600);
    for params in [
        json!({}),
        json!({"notifications": []}),
        json!({"notifications": {"resourceSubscriptions": "x"}}),
    ] {
        assert_eq!(bob.error_of("subscriptions/listen", params), -32602);
    }
}

#[test]
fn each_subscription_is_notified_under_its_own_id() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.modern("bob"));
    for id in [1001, 1002] {
        listen(&bob, &json!(id), json!({"resourceSubscriptions": ["broker://inbox"]}));
    }
    alice.sends("hi").to(&bob);
    let mut ids = [bob.wire.next_notification(UPDATED), bob.wire.next_notification(UPDATED)]
        .map(|told| told["_meta"][ID].to_string());
    ids.sort();
    assert_eq!(ids, ["1001", "1002"]);
}

#[test]
fn neither_era_has_the_subscriptions_of_the_other() {
    let broker = Broker::start();
    let (legacy, modern) = (broker.agent("alice"), broker.modern("bob"));
    assert_eq!(
        modern.error_of("resources/subscribe", json!({"uri": "broker://inbox"})),
        -32601
    );
    assert_eq!(
        modern.error_of("resources/unsubscribe", json!({"uri": "broker://inbox"})),
        -32601
    );
    assert_eq!(
        legacy.error_of("subscriptions/listen", json!({"notifications": {}})),
        -32601
    );
}
