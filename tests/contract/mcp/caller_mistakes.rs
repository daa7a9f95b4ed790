//! Mistakes that new users and models make, and the help that the answers give.

use serde_json::{Value, json};

use crate::support::{Agent, Broker, HttpAgent, eventually, keys};

const UNKNOWN_ID: &str = "01890000-0000-7000-8000-000000000000";

/// The object that a model sees. It must be the same in the text and in the structured content.
fn result_object(result: &Value) -> Value {
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, result["structuredContent"]);
    text
}

fn call(agent: &Agent, tool: &str, arguments: Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments});
    result_object(&agent.request("tools/call", params).unwrap())
}

#[test]
fn every_result_shows_the_model_its_unread_messages() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.modern("bob"));
    for (agent, other) in [(&alice, "bob"), (&bob, "alice")] {
        alice.sends("hi").to(agent);
        alice.sends("hi again").to(agent);
        let note = json!({"protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "x"},
                          "recipient_id": other});
        for (tool, arguments) in [
            ("list_sessions", json!({})),
            ("heartbeat", json!({})),
            ("send_message", note),
            ("discover_protocols", json!({})),
            ("acknowledge_messages", json!({"message_ids": []})),
        ] {
            let waiting = call(agent, "heartbeat", json!({}))["queue_size"].clone();
            assert!(waiting.as_u64() >= Some(2));
            assert_eq!(call(agent, tool, arguments)["unread"], waiting, "{tool}");
        }
    }
    let caller = broker.http_modern("carol");
    alice.sends("hi").to("carol");
    assert_eq!(caller.calls("list_sessions", json!({}))["unread"], 1);
    // A connection that acts as another session of its caller gets that session's count.
    let session_id = caller.session.clone().unwrap();
    let visitor = broker.agent("dave");
    let arguments = json!({"session_id": session_id});
    assert_eq!(call(&visitor, "heartbeat", arguments)["unread"], 1);
    assert_eq!(call(&visitor, "heartbeat", json!({}))["unread"], 0);
    // A caller without a session has no count, and errors keep their form.
    let unregistered = HttpAgent::modern(broker.address, json!({}));
    assert_eq!(unregistered.calls("list_sessions", json!({})).get("unread"), None);
    let mut refused = caller.call("send_message", json!({"recipient_id": "nobody"})).sent();
    let error = result_object(&refused.answer_to(&json!(1)).unwrap());
    assert_eq!(error.get("unread"), None);
}

#[test]
fn an_unknown_recipient_is_answered_with_similar_names() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let _others = ["reviewer", "tester"].map(|name| broker.agent(name));
    for (address, similar) in [
        ("reveiwer", json!(["reviewer"])),
        ("Reviewer", json!(["reviewer"])),
        ("reviewer2@default", json!(["reviewer"])),
        ("nobody", json!([])),
        (UNKNOWN_ID, json!([])),
    ] {
        let error = alice.sends("hi").fails_as("session_not_found", address);
        assert_eq!(error["detail"], json!({"recipient": address, "similar": similar}));
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(address) && message.contains("list_sessions"),
            "{message}"
        );
        assert_eq!(message.contains("did you mean"), similar != json!([]), "{message}");
    }
    let long = "x".repeat(60_000);
    let error = alice.sends("hi").fails_as("session_not_found", long.as_str());
    assert!(
        error.to_string().len() < 1000,
        "an error repeats an address of any length"
    );
}

#[test]
fn an_unknown_session_id_is_answered_with_how_to_get_one() {
    let broker = Broker::start();
    for agent in [broker.agent("alice"), broker.modern("bob")] {
        let error = agent.is_refused_as("session_not_found", "heartbeat", json!({"session_id": UNKNOWN_ID}));
        assert_eq!(error["detail"], json!({"session_id": UNKNOWN_ID}));
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(UNKNOWN_ID) && message.contains("register_session"),
            "{message}"
        );
    }
}

#[test]
fn the_id_of_an_ended_session_does_not_lock_its_owner_out() {
    let broker = Broker::start();
    for (name, stale) in [("alice", UNKNOWN_ID), ("bob", "not an id"), ("carol", "")] {
        let mut caller = HttpAgent::modern(broker.address, json!({}));
        caller.session = Some(stale.to_owned());
        let session = caller.calls("register_session", json!({"name": name}));
        assert_eq!(session["name"], name);
        let agent = broker.client();
        let arguments = json!({"name": format!("{name}-too"), "session_id": stale});
        assert_eq!(agent.calls("register_session", arguments)["resumed"], false);
    }
}

#[test]
fn register_session_says_how_later_calls_act_as_the_session() {
    let broker = Broker::start();
    let caller = HttpAgent::modern(broker.address, json!({}));
    let session = caller.calls("register_session", json!({"name": "alice"}));
    assert_eq!(session["next"], "Pass this session_id with every call.");
    let next = broker.client().calls("register_session", json!({"name": "bob"}))["next"].clone();
    assert!(next.as_str().unwrap().contains("This connection"), "{next}");
    let discovered = caller.request("server/discover", json!({})).unwrap();
    let instructions = discovered["instructions"].as_str().unwrap();
    assert!(instructions.contains("pass the `session_id`"), "{instructions}");
    let listed = caller.request("tools/list", json!({})).unwrap();
    for tool in listed["tools"].as_array().unwrap() {
        let described = &tool["inputSchema"]["properties"]["session_id"]["description"];
        assert!(described.as_str().unwrap().contains("register_session"), "{tool}");
    }
}

#[test]
fn an_empty_text_counts_as_a_missing_argument() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let empty = json!({
        "status": "", "protocol": "", "feature": "", "include_capabilities": "", "limit": "", "cursor": "",
        "session_id": "",
    });
    assert_eq!(
        alice.calls("list_sessions", empty)["sessions"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let empty = json!({"name": "", "version": "", "tags": "", "capability": "", "cursor": ""});
    assert_eq!(
        alice.calls("discover_protocols", empty)["protocols"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(alice.calls("register_session", json!({"name": ""}))["name"], "alice");
    let sent = alice
        .sends("hi")
        .with("correlation_id", "")
        .with("reply_to", "")
        .with("thread_id", "")
        .with("subject", "")
        .with("idempotency_key", "")
        .with_argument("wait_for", "")
        .with_argument("timeout_seconds", "")
        .to("alice");
    let again = alice.sends("hi").with("idempotency_key", "").to("alice");
    assert_ne!(sent.id, again.id, "an empty idempotency key is none");
    let headers = &alice.sees(["hi", "hi"])[0]["headers"];
    assert_eq!(keys(headers), ["priority"]);
    let error = alice.is_refused_as("invalid_argument", "get_message_status", json!({"message_id": ""}));
    assert_eq!(error["message"], "message_id: required");
}

/// Words of parsers, and of Rust.
const FOREIGN_WORDS: [&str; 12] = [
    "unknown variant",
    "unknown field",
    "missing field",
    "duplicate field",
    "invalid type",
    "invalid value",
    "invalid length",
    "usize",
    "f64",
    "while parsing",
    "unexpected",
    "struct ",
];

fn assert_plain(text: &str) {
    let foreign = FOREIGN_WORDS.iter().find(|word| text.contains(**word));
    assert_eq!(foreign, None, "{text}");
}

/// A tool, arguments that it refuses, and a part of the message.
fn mistakes() -> Vec<(&'static str, Value, &'static str)> {
    let protocol = |version: &str| json!({"name": "plan", "version": version, "schema": {"type": "object"}});
    let send = |headers: Value| {
        json!({
            "recipient_id": "alice", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "x"},
            "headers": headers,
        })
    };
    vec![
        ("list_sessions", json!({"limit": "10"}), "not a string"),
        ("list_sessions", json!({"limit": -1}), "not -1"),
        ("list_sessions", json!({"include_capabilities": 1}), "a boolean, not 1"),
        ("register_protocol", protocol("1.0"), "such as 1.0.0"),
        ("register_protocol", protocol("one"), "such as 1.0.0"),
        ("register_protocol", protocol("1.0.0.0"), "such as 1.0.0"),
        ("discover_protocols", json!({"version": "newest"}), "such as ^1.2"),
        (
            "discover_protocols",
            json!({"capability": "telepathy"}),
            "`telepathy` is not allowed",
        ),
        (
            "send_message",
            send(json!({"priority": "asap"})),
            "`asap` is not allowed; allowed: `low`",
        ),
        ("send_message", send(json!({"colour": "red"})), "`colour` is not known"),
        ("send_message", send(json!([])), "must be an object, not a list"),
        ("acknowledge_messages", json!({"message_ids": "all"}), "must be a list"),
        (
            "register_session",
            json!({"capabilities": {"supported_protocols": {"note": ["1"]}}}),
            "such as 1.0.0",
        ),
        (
            "register_session",
            json!({"capabilities": {"supported_protocols": {"note": "1.0.0"}}}),
            "must be a list, not a string",
        ),
        (
            "negotiate_capabilities",
            json!({"target_session_id": "alice", "required_protocols": [{"name": "note", "version": "latest"}]}),
            "such as ^1.2",
        ),
        (
            "negotiate_capabilities",
            json!({"target_session_id": "alice", "required_protocols": [{"name": "note"}]}),
            "`version` is missing",
        ),
        (
            "broadcast_message",
            json!({
                "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "x"},
                "capability_filter": {"protocols": {"note": "latest"}},
            }),
            "such as ^1.2",
        ),
        (
            "create_project",
            json!({"project_id": "x", "name": "X", "config": {"size": 1}}),
            "`size` is not known",
        ),
    ]
}

#[test]
fn no_error_contains_the_words_of_a_parser() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for (tool, arguments, told) in mistakes() {
        let error = alice.is_refused_as("invalid_argument", tool, arguments.clone());
        let message = error["message"].as_str().unwrap();
        assert_plain(message);
        assert!(message.contains(told), "{tool} {arguments}: {message}");
    }
    for params in [json!({"uri": 5}), json!({})] {
        assert_plain(&alice.request("resources/read", params).unwrap_err().to_string());
    }
    for body in [
        "{",
        "[]",
        r#"{"project_id": 5}"#,
        r#"{"surprise": 1}"#,
        r#"{"name": "X"}"#,
    ] {
        let request = crate::support::Request::post(broker.address, body).with_path("/api/v1/projects");
        let response = request.answered();
        assert_eq!(response.status, 400, "{response:?}");
        assert_plain(&response.body);
    }
    for query in ["limit=many", "surprise=1", "limit=-1"] {
        assert_plain(&broker.get(&format!("/api/v1/audit?{query}")).body);
    }
    assert_plain(&broker.get("/api/v1/projects?include_inactive=yes").body);
}

#[test]
fn reading_the_inbox_without_a_session_names_the_right_uri() {
    let broker = Broker::start();
    let caller = HttpAgent::modern(broker.address, json!({})).registered("alice");
    let uri = json!({"uri": "broker://inbox"});
    for error in [
        caller.request("resources/read", uri.clone()).unwrap_err(),
        broker.client().request("resources/read", uri.clone()).unwrap_err(),
    ] {
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("broker://sessions/{session_id}/inbox"),
            "{error}"
        );
        assert_eq!(error["data"]["code"], "session_required");
    }
    let own = json!({"uri": caller.inbox()});
    caller.request("resources/read", own).unwrap();
}

#[test]
fn the_log_names_the_agents_that_join_and_leave() {
    let broker = Broker::start_with(&[
        "--log-format=json",
        "--heartbeat-interval=100ms",
        "--stale-threshold=800ms",
        "--disconnect-threshold=1600ms",
    ]);
    let lines = |message: &str, session: &str| -> Vec<Value> {
        let log = broker.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .filter(|line| line["message"] == message && line["session"] == session)
            .collect()
    };
    let told = |message: &str, session: &str| eventually(message, || lines(message, session).into_iter().next());
    let alice = broker.agent("alice");
    let joined = told("an agent joined", &alice.session);
    assert_eq!(joined["level"], "INFO");
    assert_eq!(
        (&joined["name"], &joined["project"]),
        (&json!("alice"), &json!("default"))
    );
    assert_eq!(
        (&joined["client"], &joined["client_version"]),
        (&json!("a test"), &json!("1"))
    );
    let bob = broker.http_modern("bob").listed().unwrap();
    assert_eq!(told("an agent joined", &bob)["name"], "bob");
    let of_agent = |line: &Value| {
        let fields = ["project", "session", "name", "client", "client_version"];
        fields.map(|field| {
            line[field]
                .as_str()
                .unwrap_or_else(|| panic!("{field}: {line}"))
                .to_owned()
        })
    };
    // One leaves by a call, the other by silence.
    alice.calls("disconnect_session", json!({}));
    assert_eq!(told("an agent left", &alice.session)["level"], "INFO");
    told("an agent left", &bob);
    for session in [&alice.session, &bob] {
        let [joined, left] = ["an agent joined", "an agent left"].map(|message| of_agent(&told(message, session)));
        assert_eq!(joined, left);
        assert_eq!(lines("an agent joined", session).len(), 1);
        assert_eq!(lines("an agent left", session).len(), 1);
    }
}
