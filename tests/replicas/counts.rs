//! All replicas report the same number of waiting messages, independent of the replica that changed it.

use serde_json::{Value, json};

use super::{
    cluster::BrokerCluster,
    support::{Agent, HttpAgent, Redis, TIMEOUTS_OFF, eventually, listed_id},
};

const UNREAD: &str = "dev.mcp-broker/unread";

/// Calls a tool at a replica without a connection; returns its result and the number of waiting messages.
fn calls(cluster: &BrokerCluster, at: usize, session: &str, tool: &str, mut arguments: Value) -> (Value, u64) {
    arguments["session_id"] = session.into();
    let caller = HttpAgent::modern(cluster.replicas[at].address, json!({}));
    let result = caller.call(tool, arguments).sent().answer_to(&json!(1)).unwrap();
    assert_eq!(result["isError"], false, "{tool}: {result}");
    let unread = result["_meta"][UNREAD].as_u64().unwrap();
    (result["structuredContent"].clone(), unread)
}

fn assert_unread_everywhere(cluster: &BrokerCluster, session: &str, expected: u64) {
    for at in [0, 1, 2, 2, 1, 0] {
        let (_, unread) = calls(cluster, at, session, "compatibility_matrix", json!({}));
        assert_eq!(unread, expected, "replica {at}");
        let (heartbeat, unread) = calls(cluster, at, session, "heartbeat", json!({}));
        assert_eq!(
            (heartbeat["queue_size"].as_u64(), unread),
            (Some(expected), expected),
            "replica {at}"
        );
        let (_, unread) = calls(cluster, at, session, "list_dead_letters", json!({}));
        assert_eq!(unread, expected, "replica {at}");
        let caller = HttpAgent::modern(cluster.replicas[at].address, json!({}));
        let inbox = json!({"uri": format!("broker://sessions/{session}/inbox")});
        let read = caller.request("resources/read", inbox).unwrap();
        let inbox: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(inbox["waiting"], expected, "replica {at}");
        let (listed, _) = calls(cluster, at, session, "list_sessions", json!({"status": "all"}));
        let sessions = listed["sessions"].as_array().unwrap();
        let own = sessions
            .iter()
            .find(|shown| shown["session_id"] == listed_id(session).as_str())
            .unwrap();
        assert_eq!(own["queue_size"], expected, "replica {at}");
    }
}

#[test]
fn a_stateless_caller_gets_the_same_count_from_every_replica() {
    let redis = Redis::start();
    let cluster = BrokerCluster::start_with(3, &redis.url(), &TIMEOUTS_OFF);
    let alice = cluster.replicas[0].agent("alice");
    let bob = cluster.replicas[1].http_modern("bob").session.unwrap();
    assert_unread_everywhere(&cluster, &bob, 0);
    for text in ["1", "2", "3"] {
        alice.sends(text).to("bob");
    }
    assert_unread_everywhere(&cluster, &bob, 3);
    let read = json!({"limit": 2, "acknowledge": "immediate"});
    let (read, unread) = calls(&cluster, 2, &bob, "receive_messages", read);
    assert_eq!((read["remaining"].as_u64(), unread), (Some(1), 1), "{read}");
    assert_unread_everywhere(&cluster, &bob, 1);
    // The result of a send has the count too, and a broadcast counts for every recipient.
    for (at, expected) in [(0, 1), (1, 1), (2, 1)] {
        let note = alice.sends("to alice").arguments_to("alice");
        let (_, unread) = calls(&cluster, at, &bob, "send_message", note);
        assert_eq!(unread, expected, "replica {at}");
    }
    alice.sends("all").to_everyone();
    assert_unread_everywhere(&cluster, &bob, 2);
    for at in 0..3 {
        let registered = cluster.replicas[at]
            .client()
            .calls("register_session", json!({"name": "bob"}));
        assert_eq!(registered["queue_size"], 2, "replica {at}");
    }
    let last = cluster.replicas[0].client().registered("bob");
    assert_eq!(last.calls("disconnect_session", json!({}))["queue_size"], 2);
}

fn heartbeat(agent: &Agent) -> (u64, u64) {
    let heartbeat = agent.calls("heartbeat", json!({}));
    (heartbeat["queue_size"].as_u64().unwrap(), agent.unread())
}

#[test]
fn a_connection_learns_the_changes_of_its_inbox_by_other_replicas() {
    let redis = Redis::start();
    let cluster = BrokerCluster::start_with(3, &redis.url(), &TIMEOUTS_OFF);
    let alice = cluster.replicas[0].agent("alice");
    // Carol polls; the other client is sent more than its window holds.
    let carol = cluster.replicas[1].agent("carol");
    let dave = cluster.replicas[2].push_agent("dave", &json!({"ack": "manual", "window": 1}));
    for text in ["1", "2", "3"] {
        alice.sends(text).to("carol");
        alice.sends(text).to("dave");
    }
    eventually("carol has three messages", || {
        (heartbeat(&carol) == (3, 3)).then_some(())
    });
    eventually("dave has two messages", || (heartbeat(&dave) == (2, 2)).then_some(()));
    carol.sends("and you").to("alice");
    assert_eq!(carol.unread(), 3);
    eventually("alice has one message", || (heartbeat(&alice) == (1, 1)).then_some(()));
    carol.reads(json!({"limit": 2, "acknowledge": "immediate"}));
    assert_eq!((carol.unread(), heartbeat(&carol)), (1, (1, 1)));
    dave.acknowledges(&dave.is_pushed(["1"]));
    dave.is_pushed(["2"]);
    assert_eq!(heartbeat(&dave), (1, 1));
}
