//! `/api/v1/dead-letters`.

use serde_json::{Value, json};

use super::{assert_refused, note, stranger};
use crate::support::{Agent, Broker, Tenant};

/// Sends these messages from one key's session to a session that is forgotten then.
fn lose(team: &Tenant<'_>, key: &str, from: &str, texts: &[&str]) {
    team.agent("gone");
    for text in texts {
        team.posts(key, &note(from, Some("gone"), text));
    }
    let ended = team.api("DELETE", "sessions/gone?forget=true", &Value::Null);
    assert_eq!(ended.json()["dead_letters"], texts.len(), "{ended:?}");
}

fn ids(letters: &[Value]) -> Vec<Value> {
    letters
        .iter()
        .map(|letter| letter["message"]["message_id"].clone())
        .collect()
}

#[test]
fn dead_letters_are_listed_without_their_payloads() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    lose(&team, &team.key, "reporter", &["canary"]);
    let listed = team.api("GET", "dead-letters", &Value::Null);
    assert!(!listed.body.contains("canary"), "{listed:?}");
    let letter = &listed.json()["dead_letters"][0];
    assert_eq!(letter["reason"], "recipient_gone");
    assert_eq!(letter["message"]["sender_name"], "reporter");
    assert_eq!(letter["session_name"], "gone", "the name that it had");
    assert_eq!(letter["message"].get("payload"), None);
    let whole = team.gets("dead-letters?include=payload");
    assert_eq!(
        whole["dead_letters"][0]["message"]["payload"],
        json!({"text": "canary"})
    );
    for scope in ["member", "observer"] {
        let key = team.new_key_with_scope(scope);
        let refused = team.api_as(&key, "GET", "dead-letters?include=payload", &Value::Null);
        assert_refused(&refused, 403, "forbidden");
    }
    assert_eq!(team.gets("dead-letters?reason=expired")["dead_letters"], json!([]));
    assert_eq!(
        team.gets_as(&stranger(&broker), "dead-letters")["dead_letters"],
        json!([])
    );
}

#[test]
fn a_dead_letter_has_the_name_of_its_recipient_before_and_after_that_has_ended() {
    let broker = Broker::start_with(&["--delivery-limit=1"]);
    let [alice, rejecter, slow, crashing, gone] =
        ["alice", "rejecter", "slow", "crashing", "gone"].map(|name| broker.agent(name));
    let rejected = alice.sends("1").to(&rejecter);
    rejecter.reads(json!({"acknowledge": "manual"}));
    let rejects = json!({"message_ids": [rejected.id], "outcome": "rejected"});
    rejecter.calls("acknowledge_messages", rejects);
    let expired = alice.sends("2").with("ttl_seconds", 1).to(&slow);
    let undelivered = alice.sends("3").to(&crashing);
    crashing.reads(json!({"acknowledge": "manual"}));
    crashing.wire.disconnects();
    for (sent, status) in [(&expired, "expired"), (&undelivered, "dead_lettered")] {
        alice.awaits_status(&sent.id, status);
    }
    let waits = alice.sends("4").to(&gone);
    let of = |session: &Agent| format!("/api/v1/sessions/{}", session.session);
    let forgets = |session: &Agent| {
        let ended = broker.rest_with(&[], "DELETE", &(of(session) + "?forget=true"), &Value::Null);
        assert_eq!(ended.status, 200, "{ended:?}");
    };
    forgets(&gone);
    let is_named = || {
        let rest = broker
            .rest_with(&[], "GET", "/api/v1/dead-letters", &Value::Null)
            .json();
        let tool = alice.calls("list_dead_letters", json!({}));
        for listed in [rest, tool] {
            let letters = listed["dead_letters"].as_array().unwrap();
            let named: Vec<_> = letters
                .iter()
                .map(|letter| (&letter["message"]["message_id"], &letter["session_name"]))
                .collect();
            let expected = [
                (&json!(rejected.id), &json!("rejecter")),
                (&json!(expired.id), &json!("slow")),
                (&json!(undelivered.id), &json!("crashing")),
                (&json!(waits.id), &json!("gone")),
            ];
            assert_eq!(named, expected);
        }
    };
    is_named();
    [&rejecter, &slow, &crashing].into_iter().for_each(forgets);
    is_named();
}

#[test]
fn a_member_sees_the_dead_letters_of_its_own_sessions() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let [mine, yours, observer] = ["member", "member", "observer"].map(|scope| team.new_key_with_scope(scope));
    lose(&team, &mine, "my reporter", &["1", "2"]);
    lose(&team, &yours, "your reporter", &["3"]);
    let seen = |key: &str| {
        let listed = team.gets_as(key, "dead-letters");
        listed["dead_letters"].as_array().unwrap().len()
    };
    assert_eq!(
        (seen(&mine), seen(&yours), seen(&observer), seen(&team.key)),
        (2, 1, 3, 3)
    );
}

#[test]
fn thousands_of_dead_letters_come_in_pages() {
    const LEN: usize = 1200;
    let broker = Broker::secured();
    let team = broker.project("team", &json!({"queue_capacity": 5000}));
    let alice = team.agent("alice");
    team.agent("gone");
    for batch in 0..LEN / 100 {
        let calls: Vec<_> = (0..100)
            .map(|at| {
                let text = format!("{batch} {at}");
                let message = json!({
                    "recipient_id": "gone", "protocol_name": "note", "protocol_version": "1.0.0",
                    "payload": {"text": text},
                });
                alice.begins_call("send_message", &message)
            })
            .collect();
        for call in calls {
            alice.finishes_call("send_message", &call);
        }
    }
    let ended = team.api("DELETE", "sessions/gone?forget=true", &Value::Null);
    assert_eq!(ended.json()["dead_letters"], LEN, "{ended:?}");
    let all = ids(&team.pages("dead-letters", "dead_letters", 500));
    assert_eq!(all.len(), LEN);
    assert_eq!(ids(&team.pages("dead-letters", "dead_letters", 70)), all);
    let mut sorted = all.clone();
    sorted.sort_by_key(|id| id.as_str().unwrap().to_owned());
    sorted.dedup();
    assert_eq!(sorted, all, "in their order, each once");
}

#[test]
fn dead_letters_are_sent_again() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    lose(&team, &team.key, "reporter", &["one", "two"]);
    let letters = team.gets("dead-letters")["dead_letters"].take();
    let ids = ids(letters.as_array().unwrap());
    let redrive = |body: &Value| team.api("POST", "dead-letters/redrive", body);
    let done = redrive(&json!({"message_ids": [ids[0], ids[0], "nonsense"]}));
    assert_eq!(done.json()["redriven"], 0, "its recipient is gone: {done:?}");
    assert_eq!(done.json()["failures"][0]["code"], "session_not_found");
    assert_eq!(done.json()["unknown"], json!(["nonsense", ids[0]]));
    let heir = team.agent("heir");
    let done = redrive(&json!({"message_ids": ids, "recipient_id": "heir"}));
    assert_eq!(done.json(), json!({"redriven": 2, "unknown": [], "failures": []}));
    heir.sees(["one", "two"]);
    assert_eq!(team.gets("dead-letters")["dead_letters"], json!([]));
}

#[test]
fn bad_queries_and_redrives_are_refused() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    for path in [
        "dead-letters?reason=bored",
        "dead-letters?limit=501",
        "dead-letters?cursor=1",
        "dead-letters?include=all",
        "dead-letters?all",
    ] {
        assert_refused(&team.api("GET", path, &Value::Null), 400, "invalid_argument");
    }
    for body in [
        json!({}),
        json!({"message_ids": "x"}),
        json!({"message_ids": [1]}),
        json!({"message_ids": [], "more": 1}),
        json!({"message_ids": vec!["x"; 10_001]}),
    ] {
        assert_refused(
            &team.api("POST", "dead-letters/redrive", &body),
            400,
            "invalid_argument",
        );
    }
    let nowhere = json!({"message_ids": [], "recipient_id": "nobody"});
    assert_refused(
        &team.api("POST", "dead-letters/redrive", &nowhere),
        404,
        "session_not_found",
    );
    let observer = team.new_key_with_scope("observer");
    let refused = team.api_as(&observer, "POST", "dead-letters/redrive", &json!({"message_ids": []}));
    assert_refused(&refused, 403, "forbidden");
}

#[test]
fn dead_letters_are_found_by_session_and_protocol() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let clock = json!({"name": "clock", "version": "1.0.0", "schema": {}});
    assert_eq!(team.api("POST", "protocols", &clock).status, 201);
    lose(&team, &team.key, "reporter", &["1", "2"]);
    let gone = team.gets("dead-letters")["dead_letters"][0]["session_id"].clone();
    let gone = gone.as_str().unwrap();
    team.agent("gone");
    let mut timed = note("timer", Some("gone"), "3");
    timed["protocol_name"] = json!("clock");
    team.posts(&team.key, &timed);
    team.api("DELETE", "sessions/gone?forget=true", &Value::Null);
    let count = |query: &str| team.pages(&format!("dead-letters?{query}"), "dead_letters", 1).len();
    assert_eq!(count(""), 3);
    assert_eq!(count("session=reporter"), 2);
    assert_eq!(count("session=timer"), 1);
    assert_eq!(count(&format!("session={gone}")), 2);
    assert_eq!(count("protocol=clock"), 1);
    assert_eq!(count("protocol=note&session=timer"), 0);
    assert_eq!(count("reason=recipient_gone&protocol=note"), 2);
    let refused = team.api("GET", "dead-letters?session=nobody", &Value::Null);
    assert_refused(&refused, 404, "session_not_found");
    let refused = team.api("GET", "dead-letters?protocol=No", &Value::Null);
    assert_refused(&refused, 400, "invalid_argument");
}
