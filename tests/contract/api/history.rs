//! `GET /api/v1/messages` and `GET /api/v1/messages/{id}`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{assert_refused, note, stranger};
use crate::support::{Broker, Tenant, eventually, keys};

fn ids(messages: &[Value]) -> Vec<Value> {
    messages.iter().map(|message| message["message_id"].clone()).collect()
}

impl Tenant<'_> {
    /// The messages of the list, once there are this many: some storages write their history behind.
    fn awaits_messages(&self, key: &str, query: &str, len: usize) -> Vec<Value> {
        eventually(&format!("{len} messages with {query}"), || {
            let mut page = self.gets_as(key, &format!("messages?{query}"));
            let Value::Array(messages) = page["messages"].take() else {
                panic!("no list: {page}")
            };
            (messages.len() == len).then_some(messages)
        })
    }

    /// The events in the life of a message for its only recipient, once the last of them is this one.
    fn awaits_life(&self, message: &Value, last: &str) -> Vec<String> {
        let path = format!("messages/{}", message.as_str().unwrap());
        eventually(&format!("the life of the message ends with {last}"), || {
            let life = self.gets(&path);
            let events = life["recipients"][0]["events"].as_array()?.iter();
            let events: Vec<_> = events
                .map(|event| event["event"].as_str().unwrap().to_owned())
                .collect();
            (events.last().is_some_and(|event| event == last)).then_some(events)
        })
    }
}

#[test]
fn the_life_of_a_broadcast_has_pages_of_recipients() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let agents: Vec<_> = (0..7).map(|at| team.agent(&format!("agent-{at}"))).collect();
    let sent = team.posts(&team.key, &note("reporter", None, "to all"));
    let path = format!("messages/{}", sent["message_id"].as_str().unwrap());
    agents[0].reads(json!({"acknowledge": "immediate"}));
    let whole = eventually("the delivery is in the history", || {
        let life = team.gets(&path);
        let recipients = life["recipients"].as_array().unwrap();
        let mut events = recipients.iter().flat_map(|one| one["events"].as_array().unwrap());
        events
            .any(|event| event["event"] == "acknowledged")
            .then(|| life.clone())
    });
    let all = whole["recipients"].as_array().unwrap();
    assert_eq!((all.len(), whole.get("next_cursor")), (7, None));
    for limit in [1, 3, 6, 7] {
        assert_eq!(team.pages(&path, "recipients", limit), *all, "{limit} at a time");
        let page = team.gets(&format!("{path}?limit={limit}"));
        assert_eq!(page["recipients"].as_array().unwrap().len(), limit);
        assert_eq!(page["message"], whole["message"]);
    }
    assert_eq!(team.gets(&format!("{path}?limit=7")).get("next_cursor"), None);
}

#[test]
fn messages_are_listed_newest_first_without_payloads() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let bob = team.agent("bob");
    let mut message = note("reporter", Some("bob"), "canary one");
    message["headers"] = json!({"correlation_id": "c1"});
    let one = team.posts(&team.key, &message);
    let two = team.posts(&team.key, &note("reporter", Some("bob"), "canary two"));
    let all = team.posts(&team.key, &note("reporter", None, "canary three"));
    let newest_first = [&all, &two, &one].map(|sent| sent["message_id"].clone());
    let listed = team.awaits_messages(&team.key, "", 3);
    assert_eq!(ids(&listed), newest_first);
    assert!(!json!(listed).to_string().contains("canary"), "{listed:?}");
    assert_eq!(listed[2]["status"], "queued");
    assert_eq!(listed[2]["sender_name"], "reporter");
    assert_eq!(listed[2]["headers"]["correlation_id"], "c1");
    assert_eq!(listed[0]["recipient_id"], Value::Null);
    assert_eq!(listed[0]["recipients"]["queued"], 1);
    let one_by_one = team.pages("messages", "messages", 1);
    assert_eq!(ids(&one_by_one), newest_first);
    let found = |query: &str| ids(team.gets(&format!("messages?{query}"))["messages"].as_array().unwrap());
    assert_eq!(found("correlation_id=c1"), newest_first[2..]);
    assert_eq!(found("correlation_id=c2"), [Value::Null; 0]);
    // A message without a thread id is the first of the thread that its id names.
    assert_eq!(
        found(&format!("thread_id={}", one["message_id"].as_str().unwrap())),
        newest_first[2..]
    );
    assert_eq!(found("thread_id=c1"), [Value::Null; 0]);
    assert_eq!(found("session=bob").len(), 3);
    assert_eq!(found("session=reporter&status=queued").len(), 3);
    assert_eq!(found("since=2020-01-01T00:00:00Z").len(), 3);
    assert_eq!(found("since=2999-01-01T00:00:00Z"), [Value::Null; 0]);
    let payloads = team.gets("messages?include=payload");
    assert_eq!(payloads["payloads_kept"], false);
    assert_eq!(
        payloads["messages"][2]["payload"],
        json!({"text": "canary one"}),
        "{payloads}"
    );
    bob.sees(["canary one", "canary two", "canary three"]);
    bob.reads(json!({}));
    eventually("all are acknowledged", || {
        (found("status=acknowledged").len() == 3 && found("status=queued").is_empty()).then_some(())
    });
}

#[test]
fn the_life_of_a_message_tells_every_change() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let bob = team.push_agent_as(&team.key, "bob", &json!({"ack": "manual"}));
    let sent = team.posts(&team.key, &note("reporter", Some("bob"), "canary"));
    let pushed = bob.is_pushed(["canary"]);
    assert_eq!(
        team.awaits_life(&sent["message_id"], "delivered"),
        ["queued", "delivered"]
    );
    bob.acknowledges(&pushed);
    let events = team.awaits_life(&sent["message_id"], "acknowledged");
    assert_eq!(events, ["queued", "delivered", "acknowledged"]);
    let path = format!("messages/{}", sent["message_id"].as_str().unwrap());
    let life = team.gets(&path);
    assert_eq!(
        keys(&life),
        [
            "accepted_at",
            "incomplete",
            "message",
            "message_id",
            "payloads_kept",
            "recipients",
            "thread_id"
        ]
    );
    let recipient = &life["recipients"][0];
    assert_eq!(
        (&recipient["status"], &recipient["name"]),
        (&json!("acknowledged"), &json!("bob"))
    );
    assert_eq!(recipient["events"][1]["delivery"], 1);
    assert!(!life.to_string().contains("canary"), "{life}");
}

#[test]
fn dead_letters_and_redrives_are_in_the_life_of_a_message() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    team.agent("gone");
    let sent = team.posts(&team.key, &note("reporter", Some("gone"), "hi"));
    team.api("DELETE", "sessions/gone?forget=true", &Value::Null);
    assert_eq!(
        team.awaits_life(&sent["message_id"], "dead_lettered"),
        ["queued", "dead_lettered"]
    );
    let path = format!("messages/{}", sent["message_id"].as_str().unwrap());
    let life = team.gets(&format!("{path}?include=payload"));
    assert_eq!(life["recipients"][0]["reason"], "recipient_gone");
    assert_eq!(life["message"]["payload"], json!({"text": "hi"}));
    team.agent("heir");
    let redrive = json!({"message_ids": [sent["message_id"]], "recipient_id": "heir"});
    assert_eq!(team.api("POST", "dead-letters/redrive", &redrive).json()["redriven"], 1);
    eventually("the heir has it", || {
        let life = team.gets(&path);
        let mut recipients = life["recipients"].as_array().unwrap().iter();
        let heir = recipients.find(|recipient| recipient["name"] == "heir")?;
        (heir["events"][0]["event"] == "redriven").then_some(())
    });
}

#[test]
fn a_member_sees_the_messages_of_its_own_sessions_and_an_observer_all() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let [mine, yours, observer] = ["member", "member", "observer"].map(|scope| team.new_key_with_scope(scope));
    team.agent_as(&mine, "mine");
    team.agent_as(&yours, "yours");
    let to_me = team.posts(&yours, &note("yours", Some("mine"), "1"));
    let to_them = team.posts(&team.key, &note("reporter", Some("yours"), "2"));
    let to_all = team.posts(&team.key, &note("reporter", None, "3"));
    team.awaits_messages(&observer, "", 3);
    let of = |sent: &Value| sent["message_id"].clone();
    assert_eq!(ids(&team.awaits_messages(&mine, "", 2)), [of(&to_all), of(&to_me)]);
    assert_eq!(ids(&team.awaits_messages(&yours, "", 3)).len(), 3);
    let path = |sent: &Value| format!("messages/{}", sent["message_id"].as_str().unwrap());
    let refused = team.api_as(&mine, "GET", &path(&to_them), &Value::Null);
    assert_refused(&refused, 404, "invalid_argument");
    assert_eq!(team.gets_as(&mine, &path(&to_me))["message_id"], to_me["message_id"]);
    for key in [&mine, &observer] {
        for path in [
            "messages?include=payload".to_owned(),
            format!("{}?include=payload", path(&to_me)),
        ] {
            assert_refused(&team.api_as(key, "GET", &path, &Value::Null), 403, "forbidden");
        }
    }
    let other = stranger(&broker);
    assert_eq!(team.gets_as(&other, "messages")["messages"], json!([]));
    assert_refused(
        &team.api_as(&other, "GET", &path(&to_me), &Value::Null),
        404,
        "invalid_argument",
    );
}

#[test]
fn thousands_of_messages_come_in_pages_and_each_page_is_bounded() {
    const LEN: usize = 3000;
    let broker = Broker::secured();
    let team = broker.project("team", &json!({"queue_capacity": 100_000}));
    let alice = team.agent("alice");
    team.agent("bob");
    for batch in 0..LEN / 100 {
        let calls: Vec<_> = (0..100)
            .map(|at| alice.sends(&format!("{batch} {at}")).begins_sending_to("bob"))
            .collect();
        for call in calls {
            alice.finishes_call("send_message", &call);
        }
    }
    eventually("the history has all", || {
        (team.pages("messages", "messages", 500).len() == LEN).then_some(())
    });
    let listed = team.pages("messages?session=alice", "messages", 170);
    let distinct: BTreeSet<_> = ids(&listed).iter().map(Value::to_string).collect();
    assert_eq!((distinct.len(), listed.len()), (LEN, LEN), "each once");
    // Pages that find nothing end after a bounded search, and the last of them says so.
    assert_eq!(
        team.pages("messages?correlation_id=none", "messages", 500),
        [Value::Null; 0]
    );
}

#[test]
fn bad_queries_are_refused() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    for path in [
        "messages?status=lost",
        "messages?since=yesterday",
        "messages?limit=501",
        "messages?limit=0",
        "messages?cursor=1",
        "messages?cursor=01-1-1",
        "messages?thread_id=a%0Ab",
        "messages?include=all",
        "messages?order=asc",
        "messages/0190a5d2-c000-7000-8000-00000000002a?cursor=x",
        "messages/0190a5d2-c000-7000-8000-00000000002a?limit=0",
        "messages/0190a5d2-c000-7000-8000-00000000002a?limit=1001",
    ] {
        assert_refused(&team.api("GET", path, &Value::Null), 400, "invalid_argument");
    }
    assert_refused(
        &team.api("GET", "messages?session=nobody", &Value::Null),
        404,
        "session_not_found",
    );
    for id in ["x", "0190a5d2-c000-7000-8000-00000000002a", "%00"] {
        let refused = team.api("GET", &format!("messages/{id}"), &Value::Null);
        assert_refused(&refused, 404, "invalid_argument");
    }
}

#[test]
fn messages_are_found_by_text_protocol_priority_and_time() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let clock = json!({"name": "clock", "version": "1.0.0", "schema": {}});
    assert_eq!(team.api("POST", "protocols", &clock).status, 201);
    for name in ["Bob the builder", "carol", "reporter"] {
        team.agent(name);
    }
    let sent = |from: &str, to: Option<&str>, changes: &Value| {
        let mut message = note(from, to, "canary");
        for (member, value) in changes.as_object().unwrap() {
            message[member] = value.clone();
        }
        team.posts(&team.key, &message)["message_id"].clone()
    };
    let direct = sent("reporter", Some("Bob the builder"), &json!({}));
    let urgent = sent(
        "reporter",
        Some("carol"),
        &json!({"headers": {"priority": "urgent", "correlation_id": "Order-17"}}),
    );
    let timed = sent("carol", Some("reporter"), &json!({"protocol_name": "clock"}));
    let to_all = sent("carol", None, &json!({}));
    let listed = team.awaits_messages(&team.key, "", 4);
    assert_eq!(listed[3]["recipient_name"], "Bob the builder");
    assert_eq!(listed[0]["recipient_name"], Value::Null);
    let found = |query: &str| ids(team.gets(&format!("messages?{query}"))["messages"].as_array().unwrap());
    for (query, expected) in [
        ("q=BUILD", vec![&to_all, &direct]),
        ("q=report", vec![&to_all, &timed, &urgent, &direct]),
        ("q=clo", vec![&timed]),
        ("q=order-17", vec![&urgent]),
        ("q=canary", vec![]),
        ("q=carol&session=reporter&protocol=note", vec![&to_all, &urgent]),
        ("protocol=clock", vec![&timed]),
        ("priority=urgent", vec![&urgent]),
        ("priority=normal&protocol=note", vec![&to_all, &direct]),
        ("priority=low", vec![]),
        ("until=2020-01-01T00:00:00Z", vec![]),
        ("until=2120-01-01T00:00:00Z&q=order", vec![&urgent]),
    ] {
        let expected: Vec<_> = expected.into_iter().cloned().collect();
        assert_eq!(found(query), expected, "{query}");
    }
    let at = listed[1]["timestamp"].as_str().unwrap();
    // Messages of one millisecond have one time.
    let earlier = listed
        .iter()
        .filter(|message| message["timestamp"].as_str().unwrap() < at);
    let earlier: Vec<_> = earlier.map(|message| message["message_id"].clone()).collect();
    assert_eq!(found(&format!("until={at}")), earlier, "until {at}");
    let one_by_one = ids(&team.pages("messages?q=report&until=2120-01-01T00:00:00Z", "messages", 1));
    assert_eq!(one_by_one, [to_all, timed, urgent, direct]);
    let long = format!("messages?q={}", "x".repeat(129));
    for path in [
        "messages?q=",
        &long,
        "messages?priority=x",
        "messages?protocol=No",
        "messages?until=x",
    ] {
        assert_refused(&team.api("GET", path, &Value::Null), 400, "invalid_argument");
    }
}

#[test]
fn a_payload_of_several_megabytes_has_a_page_of_its_own() {
    const LARGE: usize = 4 << 20;
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    team.agent("bob");
    let texts = ["first", &"x".repeat(LARGE), "last"];
    for text in texts {
        team.posts(&team.key, &note("reporter", Some("bob"), text));
    }
    team.awaits_messages(&team.key, "", 3);
    let (mut pages, mut query) = (Vec::new(), "messages?include=payload".to_owned());
    loop {
        let page = team.gets(&query);
        let found = page["messages"].as_array().unwrap().iter();
        pages.push(
            found
                .map(|message| message["payload"]["text"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
        );
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        query = format!("messages?include=payload&cursor={cursor}");
    }
    assert_eq!(pages.concat(), [texts[2], texts[1], texts[0]]);
    let alone = pages.iter().filter(|page| page.iter().any(|text| text.len() == LARGE));
    assert_eq!(alone.map(Vec::len).collect::<Vec<_>>(), [1]);
    // The list without payloads is as short as ever.
    assert!(team.gets("messages").to_string().len() < 10_000);
}

#[test]
fn a_list_shows_first_words_and_the_thread_of_its_first_message_too() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    for name in ["alice", "bob"] {
        team.agent(name);
    }
    let sent = |from: &str, to: &str, text: &str, headers: Value| {
        let mut message = note(from, Some(to), text);
        message["headers"] = headers;
        team.posts(&team.key, &message)["message_id"].clone()
    };
    let first = sent("alice", "bob", "Which endpoint\n lists orders?", json!({}));
    let answer = sent("bob", "alice", "GET /orders", json!({"thread_id": first}));
    let asked = sent("alice", "bob", "And invoices?", json!({}));
    let correlated = sent("bob", "alice", "none yet", json!({"correlation_id": asked}));
    let listed = team.awaits_messages(&team.key, "include=excerpt", 4);
    let words = |of: &str| listed.iter().map(|message| message[of].clone()).collect::<Vec<_>>();
    assert_eq!(
        words("excerpt"),
        [
            "none yet",
            "And invoices?",
            "GET /orders",
            "Which endpoint lists orders?"
        ]
    );
    assert_eq!(
        words("thread_id"),
        [&correlated, &asked, &first, &first].map(Value::clone)
    );
    let found = |query: &str| ids(&team.awaits_messages(&team.key, query, 2));
    let id = |message: &Value| message.as_str().unwrap().to_owned();
    assert_eq!(
        found(&format!("thread_id={}", id(&first))),
        [answer.clone(), first.clone()]
    );
    assert_eq!(
        found(&format!("correlation_id={}", id(&asked))),
        [correlated, asked.clone()]
    );
    let threads = team.gets("threads?include=excerpt");
    let shown: Vec<_> = threads["threads"].as_array().unwrap().iter().collect();
    let of = |thread: &Value| (thread["messages"].clone(), thread["excerpt"].clone());
    assert_eq!(shown[0]["correlation_id"], asked, "{threads}");
    assert_eq!(shown[1]["thread_id"], first, "{threads}");
    assert_eq!(of(shown[0]), (json!(2), json!("And invoices?")));
    assert_eq!(of(shown[1]), (json!(2), json!("Which endpoint lists orders?")));
    let life = team.gets(&format!("messages/{}", id(&first)));
    assert_eq!(life["thread_id"], first);
    // Who may not read payloads gets no words of them, and no refusal.
    let observer = team.new_key_with_scope("observer");
    for path in ["messages?include=excerpt", "threads?include=excerpt"] {
        let page = team.gets_as(&observer, path);
        let has_words = page.to_string().contains("orders");
        assert!(!has_words, "{path}: {page}");
    }
    let member = team.new_key_with_scope("member");
    let own = note("carol", Some("bob"), "from carol");
    team.posts(&member, &own);
    let of_member = team.awaits_messages(&member, "include=excerpt", 1);
    assert_eq!(of_member[0]["excerpt"], "from carol");
    assert_refused(
        &team.api("GET", "threads?include=payload", &Value::Null),
        400,
        "invalid_argument",
    );
}
