//! `/api/v1/flow` and `/api/v1/threads`.

use serde_json::{Value, json};

use super::{assert_refused, note, stranger};
use crate::support::{Broker, Tenant, eventually};

/// Thousands of copies at once take a busy machine longer than an operation of the storage may take.
const PATIENT: [&str; 1] = ["--storage-deadline=30s"];

/// A note of a thread.
fn threaded(from: &str, to: Option<&str>, thread: &str) -> Value {
    let mut message = note(from, to, "canary");
    message["headers"] = json!({"correlation_id": thread});
    message
}

/// Sender, recipient, messages and dead letters of each edge.
fn edges(flow: &Value) -> Vec<(Value, Value, u64, u64)> {
    let edges = flow["edges"].as_array().unwrap().iter();
    edges
        .map(|edge| {
            let count = |name: &str| edge[name].as_u64().unwrap();
            (
                edge["from"]["name"].clone(),
                edge["to"]["name"].clone(),
                count("messages"),
                count("dead_letters"),
            )
        })
        .collect()
}

fn edge(from: &str, to: &str, messages: u64, dead_letters: u64) -> (Value, Value, u64, u64) {
    (json!(from), json!(to), messages, dead_letters)
}

impl Tenant<'_> {
    /// The flow, once it has these edges: some storages write their history behind.
    fn awaits_flow(&self, key: &str, query: &str, expected: &[(Value, Value, u64, u64)]) -> Value {
        let mut last = Value::Null;
        eventually(&format!("the flow {expected:?}"), || {
            last = self.gets_as(key, &format!("flow{query}"));
            let mut found = edges(&last);
            found.sort_by_key(|edge| format!("{edge:?}"));
            let mut expected = expected.to_vec();
            expected.sort_by_key(|edge| format!("{edge:?}"));
            (found == expected).then_some(())
        });
        last
    }

    /// The threads of one page, once there are this many.
    fn awaits_threads(&self, key: &str, len: usize) -> Vec<Value> {
        eventually(&format!("{len} threads"), || {
            let mut page = self.gets_as(key, "threads");
            let Value::Array(threads) = page["threads"].take() else {
                panic!("no list: {page}")
            };
            (threads.len() == len).then_some(threads)
        })
    }
}

#[test]
fn the_flow_counts_messages_by_sender_and_recipient() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let (alice, bob) = (team.agent("alice"), team.agent("bob"));
    for text in ["1", "2", "3"] {
        alice.sends(text).to(&bob);
    }
    bob.sends("4").to(&alice);
    bob.sends("to all").to_everyone();
    let before = [edge("alice", "bob", 3, 0), edge("bob", "alice", 2, 0)];
    let flow = team.awaits_flow(&team.key, "", &before);
    assert_eq!(flow["edges"][0]["from"]["session_id"], json!(alice.session), "{flow}");
    assert_eq!(flow["edges"][0]["messages"], 3, "the busiest one is first: {flow}");
    assert_eq!(
        (&flow["complete"], &flow["folded"]),
        (&json!(true), &json!({"edges": 0, "messages": 0}))
    );
    assert!(flow["since"].as_str() < flow["until"].as_str(), "{flow}");
    assert!(flow["events"].as_u64().unwrap() >= 5, "{flow}");
    assert!(!flow.to_string().contains("canary"), "{flow}");
    let folded = team.gets("flow?limit=1&window=1h");
    assert_eq!(edges(&folded), [edge("alice", "bob", 3, 0)]);
    assert_eq!(folded["folded"], json!({"edges": 1, "messages": 2}));
    // The names of senders that have ended are known, the recipients of a broadcast are not.
    team.agent("gone").sends("5").to(&bob);
    alice.sends("to all again").to_everyone();
    let ended = team.api("DELETE", "sessions/gone?forget=true", &Value::Null);
    assert_eq!(ended.json()["dead_letters"], 1, "{ended:?}");
    let after = [
        edge("alice", "bob", 4, 0),
        edge("bob", "alice", 2, 0),
        edge("gone", "bob", 1, 0),
        (json!("alice"), Value::Null, 1, 1),
    ];
    let flow = team.awaits_flow(&team.key, "", &after);
    let unknown = flow["edges"].as_array().unwrap().iter();
    let unknown = unknown.filter(|edge| edge["to"]["session_id"].is_null());
    assert_eq!(unknown.count(), 1, "{flow}");
}

#[test]
fn dead_letters_of_direct_messages_are_in_the_flow() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    team.agent("lost");
    for _ in 0..2 {
        team.posts(&team.key, &note("reporter", Some("lost"), "canary"));
    }
    team.api("DELETE", "sessions/lost?forget=true", &Value::Null);
    let flow = eventually("both dead letters are counted", || {
        let flow = team.gets("flow");
        (flow["edges"][0]["dead_letters"] == 2).then_some(flow)
    });
    assert_eq!(flow["edges"][0]["messages"], 2, "{flow}");
    assert_eq!(flow["edges"][0]["from"]["name"], "reporter");
    assert!(flow["edges"][0]["to"]["session_id"].is_string(), "{flow}");
}

#[test]
fn flow_and_threads_show_what_the_scope_and_the_project_allow() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let [mine, yours, observer] = ["member", "member", "observer"].map(|scope| team.new_key_with_scope(scope));
    team.agent_as(&mine, "mine");
    team.agent_as(&yours, "yours");
    team.posts(&mine, &threaded("mine", Some("yours"), "both"));
    team.posts(&yours, &threaded("yours", Some("yours"), "alone"));
    let all = [edge("mine", "yours", 1, 0), edge("yours", "yours", 1, 0)];
    team.awaits_flow(&observer, "", &all);
    team.awaits_flow(&yours, "", &all);
    team.awaits_flow(&mine, "", &all[..1]);
    assert_eq!(team.awaits_threads(&observer, 2)[0]["correlation_id"], "alone");
    assert_eq!(team.awaits_threads(&mine, 1)[0]["correlation_id"], "both");
    let other = stranger(&broker);
    assert_eq!(team.gets_as(&other, "flow")["edges"], json!([]));
    assert_eq!(team.gets_as(&other, "threads")["threads"], json!([]));
}

#[test]
fn threads_are_listed_newest_first_and_in_pages() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    team.api(
        "POST",
        "protocols",
        &json!({"name": "clock", "version": "1.0.0", "schema": {}}),
    );
    let (bob, _reporter) = (team.agent("bob"), team.agent("reporter"));
    team.posts(&team.key, &threaded("reporter", Some("bob"), "first"));
    team.posts(&team.key, &note("reporter", Some("bob"), "of no thread"));
    for at in 0..5 {
        team.posts(&team.key, &threaded("reporter", Some("bob"), &format!("middle {at}")));
    }
    team.posts(&team.key, &threaded("bob", None, "first"));
    let mut clock = threaded("bob", Some("reporter"), "first");
    clock["protocol_name"] = json!("clock");
    team.posts(&team.key, &clock);
    // A storage may write its history behind: the order holds once the last message of the thread is in it.
    let first = eventually("the thread has three messages", || {
        let first = team.gets("threads?limit=1")["threads"][0].take();
        (first["messages"] == 3).then_some(first)
    });
    let threads = team.awaits_threads(&team.key, 6);
    let ids = |threads: &[Value]| {
        threads
            .iter()
            .map(|thread| thread["correlation_id"].clone())
            .collect::<Vec<_>>()
    };
    let newest_first = ["first", "middle 4", "middle 3", "middle 2", "middle 1", "middle 0"];
    assert_eq!(ids(&threads), newest_first);
    assert_eq!(first["participants_total"], 2, "{first}");
    let names: Vec<_> = first["participants"].as_array().unwrap().iter().collect();
    assert!(
        names
            .iter()
            .any(|party| party["session_id"] == json!(bob.session) && party["name"] == "bob")
    );
    assert!(names.iter().any(|party| party["name"] == "reporter"), "{first}");
    assert_eq!(first["protocols"], json!(["clock", "note"]));
    assert!(first["first_at"].as_str() < first["last_at"].as_str(), "{first}");
    for limit in [1, 2, 4] {
        assert_eq!(
            ids(&team.pages("threads", "threads", limit)),
            newest_first,
            "pages of {limit}"
        );
    }
    // Messages that come while a client reads change no page of the list that it reads.
    let page = team.gets("threads?limit=2");
    team.posts(&team.key, &threaded("reporter", Some("bob"), "middle 1"));
    let since = first["last_at"].as_str().unwrap();
    eventually("the later message is in the history", || {
        (team.gets("threads?limit=1")["threads"][0]["correlation_id"] == "middle 1").then_some(())
    });
    let next = team.gets(&format!(
        "threads?limit=2&cursor={}",
        page["next_cursor"].as_str().unwrap()
    ));
    assert_eq!(ids(next["threads"].as_array().unwrap()), ["middle 3", "middle 2"]);
    // A fast broker accepts several messages within a millisecond.
    let is_later =
        |thread: &&Value| thread["correlation_id"] != "middle 1" && thread["last_at"].as_str() >= Some(since);
    let mut expected = vec![json!("middle 1")];
    expected.extend(
        threads
            .iter()
            .filter(is_later)
            .map(|thread| thread["correlation_id"].clone()),
    );
    assert!(expected.contains(&json!("first")), "{threads:?}");
    let later = team.gets(&format!("threads?since={since}"));
    assert_eq!(ids(later["threads"].as_array().unwrap()), expected);
}

#[test]
fn threads_have_a_thread_id_or_else_a_correlation_id() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    team.agent("bob");
    let post = |headers: Value| {
        let mut message = note("reporter", Some("bob"), "canary");
        message["headers"] = headers;
        team.posts(&team.key, &message)["message_id"].clone()
    };
    post(json!({"correlation_id": "plan"}));
    let first = post(json!({"correlation_id": "plan", "subject": "first"}));
    post(json!({"thread_id": first, "subject": "second", "correlation_id": "plan"}));
    post(json!({"thread_id": "plan"}));
    let threads = team.awaits_threads(&team.key, 3);
    let described: Vec<_> = threads
        .iter()
        .map(|thread| {
            let [id, correlation, subject, messages] =
                ["thread_id", "correlation_id", "subject", "messages"].map(|name| thread[name].clone());
            (id, correlation, subject, messages)
        })
        .collect();
    let expected = [
        (json!("plan"), Value::Null, Value::Null, json!(1)),
        (first.clone(), Value::Null, json!("first"), json!(2)),
        (Value::Null, json!("plan"), Value::Null, json!(1)),
    ];
    assert_eq!(described, expected);
    let path = format!("messages?thread_id={}", first.as_str().unwrap());
    assert_eq!(team.pages(&path, "messages", 1).len(), 2);
    assert_eq!(
        team.pages("messages?q=FIRST", "messages", 1).len(),
        1,
        "subjects are searched"
    );
}

#[test]
fn a_thread_lists_at_most_twenty_participants() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let _agents: Vec<_> = (0..25).map(|at| team.agent(&format!("agent-{at}"))).collect();
    team.posts(&team.key, &threaded("reporter", None, "all"));
    let thread = team.awaits_threads(&team.key, 1)[0].take();
    assert_eq!(thread["participants"].as_array().unwrap().len(), 20, "{thread}");
    assert_eq!(thread["participants_total"], 26, "{thread}");
}

#[test]
fn one_answer_looks_at_a_bounded_number_of_recipients() {
    const SESSIONS: usize = 500;
    const BROADCASTS: usize = 600;
    let broker = Broker::secured_with(&PATIENT);
    let team = broker.project("team", &json!({}));
    let alice = team.agent("alice");
    let names: Vec<_> = (1..SESSIONS).map(|at| format!("agent-{at}")).collect();
    for names in names.chunks(100) {
        let client = team.client();
        let calls: Vec<_> = names
            .iter()
            .map(|name| client.begins_call("register_session", &json!({"name": name})))
            .collect();
        for call in calls {
            client.finishes_call("register_session", &call);
        }
    }
    for batch in 0..BROADCASTS / 20 {
        let calls: Vec<_> = (0..20)
            .map(|_| {
                let note = alice
                    .sends("to all")
                    .with("correlation_id", format!("thread-{batch:02}"));
                note.begins_broadcast()
            })
            .collect();
        for call in calls {
            alice.finishes_call("broadcast_message", &call);
        }
    }
    let all = team.pages("messages", "messages", 500);
    let flow = eventually("the history has all", || {
        let sum: usize = team
            .pages("threads", "threads", 200)
            .iter()
            .map(|thread| thread["messages"].as_u64().unwrap() as usize)
            .sum();
        assert!(sum <= BROADCASTS, "each message is in one page: {sum}");
        (sum == BROADCASTS).then(|| team.gets("flow?window=1h&limit=1000"))
    });
    assert!(all.len() <= BROADCASTS);
    assert_eq!(flow["complete"], false, "{}", flow["since"]);
    let edges = edges(&flow);
    let counted = edges[0].2 as usize;
    assert!(
        (200..BROADCASTS).contains(&counted),
        "{counted} broadcasts were counted"
    );
    assert_eq!(edges.len(), SESSIONS - 1);
    assert!(edges.iter().all(|edge| edge.2 as usize == counted), "{edges:?}");
    // The first page of a search that finds nothing ends early, and the last one ends the list.
    let page = team.gets("messages?q=nothing");
    assert_eq!(page["messages"], json!([]));
    assert!(page["next_cursor"].is_string(), "{page}");
    assert_eq!(team.pages("messages?q=nothing", "messages", 500), [Value::Null; 0]);
    assert_eq!(team.pages("messages?q=THREAD-03", "messages", 500).len(), 20);
}

#[test]
fn one_answer_looks_at_a_bounded_number_of_events() {
    const AGENTS: usize = 50;
    const BROADCASTS: usize = 520;
    let broker = Broker::secured_with(&PATIENT);
    let team = broker.project("team", &json!({}));
    // Each copy is delivered and acknowledged, which makes two events more.
    let _agents: Vec<_> = (0..AGENTS)
        .map(|at| team.push_agent_as(&team.key, &format!("agent-{at}"), &json!({"ack": "auto"})))
        .collect();
    let alice = team.agent("alice");
    for _ in 0..BROADCASTS / 40 {
        let calls: Vec<_> = (0..40)
            .map(|_| alice.sends("to all").with("correlation_id", "all").begins_broadcast())
            .collect();
        for call in calls {
            alice.finishes_call("broadcast_message", &call);
        }
    }
    let flow = eventually("the history is longer than one answer looks at", || {
        let flow = team.gets("flow?window=1h");
        (flow["complete"] == false).then_some(flow)
    });
    assert_eq!(flow["events"], 50_000);
    assert_eq!(edges(&flow).len(), AGENTS);
    assert!(edges(&flow)[0].2 < BROADCASTS as u64, "{flow}");
    eventually("all messages are found in pages", || {
        let threads = team.pages("threads", "threads", 200);
        let messages: Vec<_> = threads
            .iter()
            .map(|thread| thread["messages"].as_u64().unwrap())
            .collect();
        assert!(
            messages.len() >= 2,
            "the thread is longer than one page looks at: {messages:?}"
        );
        (messages.iter().sum::<u64>() == BROADCASTS as u64).then_some(())
    });
    assert_eq!(
        team.pages("messages?correlation_id=all", "messages", 500).len(),
        BROADCASTS
    );
    // A thread and a search that find nothing end after as many events, and their last page says so.
    for (tool, mut arguments) in [
        ("get_thread", json!({"thread_id": "none"})),
        ("search_messages", json!({"query": "none"})),
    ] {
        let mut pages = 0;
        loop {
            let mut page = alice.calls(tool, arguments.clone());
            assert_eq!(page["messages"], json!([]), "{tool}");
            pages += 1;
            match page["next_cursor"].take() {
                Value::Null => break,
                cursor => arguments["cursor"] = cursor,
            }
        }
        assert_eq!(pages, 2, "{tool}");
    }
}

#[test]
fn bad_queries_of_flow_and_threads_are_refused() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    for query in [
        "flow?window=5s",
        "flow?window=2h",
        "flow?window=x",
        "flow?limit=0",
        "flow?limit=1001",
        "flow?cursor=x",
        "threads?since=yesterday",
        "threads?limit=0",
        "threads?limit=201",
        "threads?cursor=x",
        "threads?cursor=1-2-3",
        "threads?cursor=a.1-2-3.",
        "threads?q=x",
    ] {
        assert_refused(&team.api("GET", query, &Value::Null), 400, "invalid_argument");
    }
    // A position that the log does not have.
    assert_eq!(team.gets("threads?cursor=b.1-2-3")["threads"], json!([]));
}
