//! Negotiation: the versions and features that two sessions have in common.

use serde_json::{Value, json};

use crate::support::{Agent, Broker};

fn speaker(broker: &Broker, name: &str, protocols: &Value, features: &Value) -> Agent {
    let capabilities = json!({"supported_protocols": protocols, "supported_features": features});
    broker
        .client()
        .registered_with(&json!({"name": name, "capabilities": capabilities}))
}

#[test]
fn the_highest_version_that_both_can_speak_is_agreed() {
    let broker = Broker::start();
    let alice = speaker(
        &broker,
        "alice",
        &json!({"task": ["1.0.0", "1.2.0", "2.0.0"], "chat": ["1.1.0"], "old": ["1.0.0"], "mine": ["1.0.0"]}),
        &json!(["fast", "loud"]),
    );
    let bob = speaker(
        &broker,
        "bob",
        &json!({"task": ["1.1.0", "1.3.0"], "chat": ["1.0.0"], "old": ["2.0.0"]}),
        &json!(["fast", "kind"]),
    );
    let ours = alice.calls("negotiate_capabilities", json!({"target_session_id": "bob"}));
    assert_eq!(ours["compatible"], true);
    assert_eq!(ours["supported_protocols"], json!({"task": "1.2.0", "chat": "1.0.0"}));
    assert_eq!(ours["feature_intersections"], json!(["fast"]));
    assert_eq!(
        ours["unsupported_features"],
        json!({"ours": ["loud"], "theirs": ["kind"]})
    );
    let apart = &ours["incompatibilities"];
    assert_eq!(apart.as_array().unwrap().len(), 1);
    assert_eq!(apart[0]["protocol"], "old");
    assert_eq!(apart[0]["ours"], json!(["1.0.0"]));
    assert_eq!(apart[0]["theirs"], json!(["2.0.0"]));
    assert!(!ours["suggestions"].as_array().unwrap().is_empty());

    // The same from the other side, by id.
    let theirs = bob.calls("negotiate_capabilities", json!({"target_session_id": alice.session}));
    assert_eq!(theirs["supported_protocols"], ours["supported_protocols"]);
    assert_eq!(
        theirs["unsupported_features"],
        json!({"ours": ["kind"], "theirs": ["loud"]})
    );
}

#[test]
fn required_protocols_must_be_compatible() {
    let broker = Broker::start();
    let alice = speaker(
        &broker,
        "alice",
        &json!({"task": ["1.0.0"], "chat": ["1.0.0"]}),
        &json!([]),
    );
    speaker(&broker, "bob", &json!({"task": ["1.1.0"]}), &json!([]));
    let requires = |required: Value| {
        alice.calls(
            "negotiate_capabilities",
            json!({"target_session_id": "bob", "required_protocols": required}),
        )
    };
    let met = requires(json!([{"name": "task", "version": "^1.0"}]));
    assert_eq!(met["compatible"], true);
    assert_eq!(met["incompatibilities"], json!([]));
    for (required, reason) in [
        (json!({"name": "chat", "version": "1.0.0"}), "not_supported_by_target"),
        (json!({"name": "task", "version": "2.0.0"}), "requirement_not_met"),
        (json!({"name": "song", "version": "1.0.0"}), "not_supported"),
    ] {
        let unmet = requires(json!([required]));
        assert_eq!(unmet["compatible"], false, "{unmet}");
        assert_eq!(unmet["incompatibilities"][0]["protocol"], required["name"]);
        assert_eq!(unmet["incompatibilities"][0]["reason"], reason);
        assert!(!unmet["suggestions"].as_array().unwrap().is_empty());
    }
}

#[test]
fn the_matrix_has_a_row_for_each_pair() {
    let broker = Broker::start();
    let alice = speaker(&broker, "alice", &json!({"task": ["1.0.0"]}), &json!(["fast"]));
    let bob = speaker(&broker, "bob", &json!({"task": ["1.1.0"]}), &json!(["fast"]));
    let carol = speaker(&broker, "carol", &json!({"task": ["2.0.0"]}), &json!([]));
    let expected = json!([
        {
            "session_a": alice.session, "session_b": bob.session, "compatible": true,
            "common_protocols": {"task": "1.0.0"}, "common_features": ["fast"],
        },
        {
            "session_a": alice.session, "session_b": carol.session, "compatible": false,
            "common_protocols": {}, "common_features": [],
        },
        {
            "session_a": bob.session, "session_b": carol.session, "compatible": false,
            "common_protocols": {}, "common_features": [],
        },
    ]);
    assert_eq!(alice.calls("compatibility_matrix", json!({}))["rows"], expected);
    let named = json!({"session_ids": ["alice", "bob", carol.session]});
    assert_eq!(alice.calls("compatibility_matrix", named)["rows"], expected);
    let two = json!({"session_ids": ["alice", "bob"]});
    assert_eq!(
        alice.calls("compatibility_matrix", two.clone())["rows"],
        json!([expected[0]])
    );
    // The tool that agents are listed does the same.
    assert_eq!(alice.calls("negotiate_capabilities", two)["rows"], json!([expected[0]]));
    let all = json!({"session_ids": []});
    assert_eq!(alice.calls("negotiate_capabilities", all)["rows"], expected);
    let both = json!({"target_session_id": "bob", "session_ids": ["alice"]});
    alice.is_refused_as("invalid_argument", "negotiate_capabilities", both);
}
