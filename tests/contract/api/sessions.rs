//! `/api/v1/sessions` and `/api/v1/compatibility`.

use serde_json::{Value, json};

use super::{assert_refused, note, stranger};
use crate::support::{Broker, eventually, keys};

#[test]
fn sessions_are_listed_with_the_filters_of_the_tool() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let alice = team.agent("alice");
    let bob = team.client().registered_with(&json!({
        "name": "bob",
        "capabilities": {"supported_protocols": {"note": ["1.0.0"]}, "supported_features": ["maps"]},
    }));
    let of_tool = alice.calls("list_sessions", json!({"include_capabilities": true}));
    for path in ["/sessions", "/api/v1/sessions"] {
        let listed = broker.rest(
            &team.key,
            "GET",
            &format!("{path}?include_capabilities=true"),
            &Value::Null,
        );
        assert_eq!(listed.status, 200, "{listed:?}");
        let strip = |mut list: Value| {
            for session in list["sessions"].as_array_mut().unwrap() {
                session["last_heartbeat"] = Value::Null;
            }
            list["sessions"].take()
        };
        assert_eq!(strip(listed.json()), strip(of_tool.clone()));
    }
    let names = |query: &str| {
        let listed = team.gets(&format!("sessions?{query}"));
        let sessions = listed["sessions"].as_array().unwrap().iter();
        sessions
            .map(|session| session["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("feature=maps"), ["bob"]);
    assert_eq!(names("protocol=note"), ["bob"]);
    assert_eq!(names("status=stale"), [""; 0]);
    bob.calls("disconnect_session", json!({}));
    assert_eq!(names("status=disconnected"), ["bob"]);
    assert_eq!(names("status=all"), ["alice", "bob"]);
    assert_eq!(names("status=active"), ["alice"]);
}

#[test]
fn pages_of_a_thousand_sessions_are_complete() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let client = team.client();
    let calls: Vec<_> = (0..1100)
        .map(|at| client.begins_call("register_session", &json!({"name": format!("agent-{at}")})))
        .collect();
    for call in calls {
        client.finishes_call("register_session", &call);
    }
    for limit in [1000, 333] {
        let sessions = team.pages("sessions?status=all", "sessions", limit);
        let names: Vec<_> = sessions
            .iter()
            .map(|session| session["name"].as_str().unwrap().to_owned())
            .collect();
        let expected: Vec<_> = (0..1100).map(|at| format!("agent-{at}")).collect();
        assert_eq!(names, expected, "in pages of {limit}");
    }
}

#[test]
fn a_session_is_shown_by_id_and_by_name_and_to_its_project_alone() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let alice = team.agent("alice one");
    let by_name = team.gets("sessions/alice%20one");
    let by_id = team.gets(&format!("sessions/{}", alice.session));
    assert_eq!(by_name["session_id"], by_id["session_id"]);
    assert_eq!(by_name["session_id"], json!(alice.session));
    assert_eq!(
        keys(&by_id),
        [
            "activity",
            "capabilities",
            "connection_time",
            "last_heartbeat",
            "metadata",
            "name",
            "project_id",
            "queue_size",
            "session_id",
            "status",
            "wakes_by"
        ]
    );
    let other = stranger(&broker);
    for path in [format!("sessions/{}", alice.session), "sessions/alice%20one".to_owned()] {
        for method in ["GET", "DELETE"] {
            let refused = team.api_as(&other, method, &path, &Value::Null);
            assert_refused(&refused, 404, "session_not_found");
            assert!(!refused.body.contains("team"), "{refused:?}");
        }
    }
    assert_eq!(team.gets_as(&other, "sessions?status=all")["sessions"], json!([]));
}

#[test]
fn rest_shows_aliases_and_finds_a_session_by_each_address() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let bob = team.client().registered_with(&json!({
        "name": "bob", "aliases": ["the reviewer"], "metadata": {"conversation": "c-1"},
    }));
    for address in ["bob", "the%20reviewer", "conversation:c-1", bob.session.as_str()] {
        let shown = team.gets(&format!("sessions/{address}"));
        assert_eq!(
            (&shown["name"], &shown["aliases"]),
            (&json!("bob"), &json!(["the reviewer"]))
        );
    }
    let found = team.gets("sessions?q=REVIEW");
    assert_eq!(found["sessions"][0]["name"], "bob", "{found}");
    let alice = team.agent("alice");
    alice.sends("hi").to("the reviewer");
    let sent = team.gets("messages?session=the%20reviewer");
    assert_eq!(sent["messages"].as_array().map(Vec::len), Some(1), "{sent}");
}

#[test]
fn an_administrator_disconnects_a_session_and_its_client_may_come_back() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let alice = team.agent("alice");
    let bob = team.agent("bob");
    let ended = team.api("DELETE", "sessions/bob", &Value::Null);
    assert_eq!(ended.status, 200, "{ended:?}");
    assert_eq!(
        ended.json(),
        json!({"session_id": bob.session, "status": "disconnected", "queue_size": 0})
    );
    bob.wire.closes_with(4007);
    alice.awaits_presence("bob", "disconnected");
    alice.sends("for later").to(&bob);
    team.agent("bob").sees(["for later"]);
    let entries = team.gets("audit?action=session.disconnect");
    assert_eq!(entries["entries"][0]["target"], json!(bob.session), "{entries}");
}

#[test]
fn a_forgotten_session_leaves_dead_letters_and_a_free_name() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let alice = team.agent("alice");
    let bob = team.agent("bob");
    alice.sends("one").to(&bob);
    alice.sends("two").to(&bob);
    let ended = team.api("DELETE", "sessions/bob?forget=true", &Value::Null);
    assert_eq!(
        ended.json(),
        json!({"session_id": bob.session, "status": "ended", "dead_letters": 2}),
        "{ended:?}"
    );
    bob.wire.closes_with(4004);
    assert_refused(&team.api("GET", "sessions/bob", &Value::Null), 404, "session_not_found");
    assert_refused(
        &team.api("DELETE", "sessions/bob?forget=true", &Value::Null),
        404,
        "session_not_found",
    );
    assert_eq!(alice.dead_letters("recipient_gone").len(), 2);
    let again = team.client_as(&team.new_key_with_scope("member")).registered("bob");
    assert_ne!(again.session, bob.session);
    again.sees_nothing();
}

#[test]
fn a_member_ends_its_own_sessions_alone() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let [mine, yours, observer] = ["member", "member", "observer"].map(|scope| team.new_key_with_scope(scope));
    let own = team.agent_as(&mine, "own");
    team.agent_as(&yours, "foreign");
    for forget in ["", "?forget=true"] {
        let refused = team.api_as(&mine, "DELETE", &format!("sessions/foreign{forget}"), &Value::Null);
        assert_refused(&refused, 404, "session_not_found");
        let refused = team.api_as(&observer, "DELETE", &format!("sessions/own{forget}"), &Value::Null);
        assert_refused(&refused, 403, "forbidden");
    }
    let ended = team.api_as(&mine, "DELETE", "sessions/own", &Value::Null);
    assert_eq!(ended.status, 200, "{ended:?}");
    own.wire.closes_with(4007);
}

#[test]
fn bad_queries_are_refused_with_what_is_allowed() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    team.agent("alice");
    for path in [
        "sessions?status=busy",
        "sessions?limit=0",
        "sessions?limit=1001",
        "sessions?limit=-1",
        "sessions?cursor=alice",
        "sessions?protocol=Note",
        "sessions?include_capabilities=maybe",
        "sessions?nothing=1",
        "sessions/alice?limit=1",
        "compatibility?cursor=x",
        "compatibility?limit=1",
    ] {
        assert_refused(&team.api("GET", path, &Value::Null), 400, "invalid_argument");
    }
    for path in ["sessions/alice?forget=yes", "sessions/alice?replica=other"] {
        assert_refused(&team.api("DELETE", path, &Value::Null), 400, "invalid_argument");
    }
    for path in [
        "sessions/nobody",
        "sessions/%00",
        "sessions/alice@elsewhere",
        "compatibility?session_ids=nobody",
    ] {
        assert_refused(&team.api("GET", path, &Value::Null), 404, "session_not_found");
    }
}

#[test]
fn the_matrix_is_that_of_the_tool() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let speaks = |version: &str| json!({"name": format!("speaks {version}"), "capabilities": {"supported_protocols": {"note": [version]}}});
    let one = team.client().registered_with(&speaks("1.0.0"));
    let _also_one = team.client().registered_with(&speaks("1.1.0"));
    let _two = team.client().registered_with(&speaks("2.0.0"));
    let matrix = team.gets("compatibility");
    assert_eq!(matrix, one.calls("compatibility_matrix", json!({})));
    assert_eq!(matrix["rows"].as_array().unwrap().len(), 3);
    let some = team.gets("compatibility?session_ids=speaks%201.0.0,speaks%202.0.0");
    assert_eq!(some["rows"][0]["compatible"], false, "{some}");
    assert_eq!(some["rows"].as_array().unwrap().len(), 1);
}

#[test]
fn a_session_that_only_sends_over_rest_becomes_stale() {
    let broker = Broker::secured_with(&crate::support::FAST_TIMEOUTS);
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    team.posts(&team.key, &note("reporter", Some("bob"), "hi"));
    bob.sees(["hi"]);
    eventually("the session of the sender ends", || {
        (team.api("GET", "sessions/reporter", &Value::Null).status == 404).then_some(())
    });
}

#[test]
fn sessions_are_sorted_searched_and_counted() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let agents = ["delta", "Alpha", "charlie", "bravo"].map(|name| team.agent(name));
    agents[0].sends("1").to(&agents[2]);
    agents[0].sends("2").to(&agents[2]);
    agents[0].sends("3").to(&agents[1]);
    agents[3].calls("disconnect_session", json!({}));
    let names = |sessions: &[Value]| {
        let names = sessions
            .iter()
            .map(|session| session["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let listed = |query: &str| team.pages(&format!("sessions?status=all&{query}"), "sessions", 1000);
    for (sort, expected) in [
        ("", ["delta", "Alpha", "charlie", "bravo"]),
        ("sort=connection_time", ["delta", "Alpha", "charlie", "bravo"]),
        ("sort=name", ["Alpha", "bravo", "charlie", "delta"]),
        ("sort=status", ["delta", "Alpha", "charlie", "bravo"]),
        ("sort=queue_size", ["delta", "bravo", "Alpha", "charlie"]),
    ] {
        assert_eq!(names(&listed(sort)), expected, "{sort}");
        let mut reversed = names(&listed(&format!("{sort}&order=desc")));
        reversed.reverse();
        assert_eq!(reversed, expected, "{sort} and back");
        for order in ["asc", "desc"] {
            let query = format!("{sort}&order={order}");
            let whole = names(&listed(&query));
            let one_by_one = team.pages(&format!("sessions?status=all&{query}"), "sessions", 1);
            assert_eq!(names(&one_by_one), whole, "{query}, one by one");
        }
    }
    assert_eq!(listed("sort=last_heartbeat").len(), 4);
    let found = |query: &str| {
        let page = team.gets(&format!("sessions?status=all&limit=1&{query}"));
        page["total"].as_u64().unwrap()
    };
    for (query, total) in [
        ("", 4),
        ("q=a", 4),
        ("q=ALPHA", 1),
        ("q=lph", 1),
        ("q=nothing", 0),
        (&format!("q={}", agents[3].session), 1),
    ] {
        assert_eq!(found(query), total, "{query}");
    }
    assert_eq!(team.gets("sessions")["total"], 3, "the active ones");
    assert_eq!(team.gets_as(&stranger(&broker), "sessions?status=all&q=a")["total"], 0);
    // A cursor belongs to its order.
    let page = team.gets("sessions?sort=name&limit=1");
    let cursor = page["next_cursor"].as_str().unwrap();
    for query in ["", "sort=name&order=desc&", "sort=status&"] {
        let refused = team.api("GET", &format!("sessions?{query}cursor={cursor}"), &Value::Null);
        assert_refused(&refused, 400, "invalid_argument");
    }
    let long = format!("sessions?q={}", "x".repeat(129));
    for path in ["sessions?q=", &long, "sessions?sort=size", "sessions?order=up"] {
        assert_refused(&team.api("GET", path, &Value::Null), 400, "invalid_argument");
    }
}

#[test]
fn rest_acts_by_a_name_of_the_key_or_by_the_id_of_a_registration() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let member = team.new_key_with_scope("member");
    let bob = team.agent_as(&member, "bob");
    let letter = |from: &str| {
        json!({"from": from, "recipient_id": "bob", "protocol_name": "note", "protocol_version": "1.0.0",
            "payload": {"text": "hi"}})
    };
    let refused = team.api_as(&member, "POST", "messages", &letter(&bob.session));
    assert_eq!(refused.problem(), (400, "invalid_argument".to_owned()), "{refused:?}");
    assert_eq!(team.api_as(&member, "POST", "messages", &letter(&bob.held)).status, 201);
    let path = |id: &str| format!("sessions/{id}");
    let refused = team.api_as(&member, "DELETE", &path(&bob.session), &Value::Null);
    assert_eq!(refused.problem(), (403, "forbidden".to_owned()), "{refused:?}");
    bob.sees(["hi"]);
    let ended = team.api_as(&member, "DELETE", &path(&bob.held), &Value::Null);
    assert_eq!(ended.status, 200, "{ended:?}");
    // An administrator disconnects whom the list shows.
    let carol = team.agent_as(&member, "carol");
    assert_eq!(team.api("DELETE", &path(&carol.session), &Value::Null).status, 200);
    carol.wire.closes_with(4007);
}
