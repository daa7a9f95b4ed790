//! Several replicas act as one broker: the replica of a session makes no difference.

use std::{cell::Cell, collections::BTreeSet, thread};

use serde_json::{Value, json};

use super::{
    cluster::BrokerCluster,
    roaming_client::{CallOutcome, call_over_http},
    support::{ADMIN_KEY, Agent, Broker, HttpAgent, Redis, TIMEOUTS_OFF, eventually, texts},
};

/// Replicas in which no timer fires: every wake-up must come from an event.
fn cluster_without_timeouts(len: usize, redis: &Redis) -> BrokerCluster {
    BrokerCluster::start_with(len, &redis.url(), &TIMEOUTS_OFF)
}

fn expect_done(answer: CallOutcome) -> Value {
    match answer {
        CallOutcome::Done(object) => object,
        CallOutcome::Refused(error) => panic!("refused: {error}"),
        CallOutcome::Lost => panic!("no answer"),
    }
}

#[test]
fn messages_are_delivered_between_replicas_in_both_directions() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(2, &redis);
    let alice = cluster.replicas[0].agent("alice");
    let bob = cluster.replicas[1].push_agent("bob", &json!({"ack": "manual"}));
    let sent = alice.sends("hi").to("bob");
    let pushed = bob.is_pushed(["hi"]);
    assert_eq!(pushed[0]["message_id"], sent.id.as_str());
    alice.awaits_status(&sent.id, "delivered");
    bob.acknowledges(&pushed);
    alice.awaits_status(&sent.id, "acknowledged");
    // A tracked message learns its status from the other replica.
    bob.sends("and you").to("alice");
    alice.sees(["and you"]);
    let waiting = alice
        .sends("?")
        .with_argument("wait_for", "acknowledged")
        .begins_sending_to("bob");
    let pushed = bob.is_pushed(["?"]);
    bob.acknowledges(&pushed);
    assert_eq!(alice.finishes_call("send_message", &waiting)["status"], "acknowledged");
}

#[test]
fn a_waiting_read_is_woken_by_another_replica() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(2, &redis);
    let alice = cluster.replicas[0].agent("alice");
    let bob = cluster.replicas[1].agent("bob");
    let reading = bob.begins_call("receive_messages", &json!({"wait_seconds": 100}));
    bob.syncs();
    alice.sends("hi").to("bob");
    let read = bob.finishes_call("receive_messages", &reading);
    assert_eq!(read["messages"][0]["payload"]["text"], "hi");
}

#[test]
fn a_broadcast_counts_the_sessions_of_all_replicas() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(3, &redis);
    let alice = cluster.replicas[0].agent("alice");
    let agents: Vec<_> = (0..9)
        .map(|at| cluster.replicas[at % 3].push_agent(&format!("agent{at}"), &json!({"ack": "manual"})))
        .collect();
    let sent = alice.sends("all").to_everyone();
    assert_eq!(sent["recipients"], 9, "{sent}");
    assert_eq!(
        sent["delivered"].as_u64().unwrap() + sent["queued"].as_u64().unwrap(),
        9
    );
    assert_eq!((&sent["failed"], &sent["failures"]), (&json!(0), &json!([])));
    for agent in &agents {
        let pushed = agent.is_pushed(["all"]);
        agent.acknowledges(&pushed);
    }
    let id = sent["message_id"].as_str().unwrap();
    // Any replica can report the status.
    let carol = cluster.replicas[2].agent("carol");
    eventually("all have acknowledged", || {
        let recipients = carol.recipient_statuses(id);
        assert_eq!(recipients.len(), 9);
        recipients
            .iter()
            .all(|recipient| recipient["status"] == "acknowledged")
            .then_some(())
    });
    // A session that has just ended at one replica is counted by none.
    agents[8].calls("disconnect_session", json!({}));
    let sent = alice.sends("again").to_everyone();
    let counted = [&sent["recipients"], &sent["skipped"]].map(|count| count.as_u64().unwrap());
    assert_eq!(counted.iter().sum::<u64>(), 10, "{sent}");
}

#[test]
fn a_client_that_reconnects_at_another_replica_resumes_its_session() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(2, &redis);
    let alice = cluster.replicas[0].agent("alice");
    let older = cluster.replicas[0].push_agent("bob", &json!({"ack": "manual"}));
    alice.sends("1").to("bob");
    older.is_pushed(["1"]);
    let newer = cluster.replicas[1].push_agent("bob", &json!({"ack": "manual"}));
    assert_eq!(newer.session, older.session);
    older.wire.closes_with(4001);
    // Messages that the older connection had and did not acknowledge come again, before new ones.
    alice.sends("2").to("bob");
    let pushed = newer.is_pushed(["1", "2"]);
    assert_eq!(
        [&pushed[0]["delivery_count"], &pushed[1]["delivery_count"]],
        [&json!(2), &json!(1)]
    );
    newer.acknowledges(&pushed);
    newer.syncs();
    // And back to the first replica.
    let newest = cluster.replicas[0].push_agent("bob", &json!({"ack": "manual"}));
    newer.wire.closes_with(4001);
    alice.sends("3").to("bob");
    newest.is_pushed(["3"]);
}

#[test]
fn a_receipt_is_accepted_at_any_replica() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(3, &redis);
    let alice = cluster.replicas[0].agent("alice");
    let bob = cluster.replicas[1].http_modern("bob");
    let at = |replica: usize| {
        let mut caller = bob.clone();
        caller.address = cluster.replicas[replica].address;
        caller
    };
    let sent: Vec<_> = (0..30)
        .map(|text| alice.sends(&text.to_string()).to("bob").id)
        .collect();
    let mut receipt = Value::Null;
    for (round, id) in sent.iter().enumerate() {
        let read = at(round % 3).calls("receive_messages", json!({"limit": 1, "receipt": receipt}));
        let message = &read["messages"][0];
        assert_eq!(
            (&message["message_id"], &message["delivery_count"]),
            (&json!(id), &json!(1))
        );
        receipt = read["receipt"].clone();
    }
    for id in &sent[..29] {
        assert_eq!(alice.status_of(id), "acknowledged");
    }
    // A receipt that was returned once does not acknowledge later messages of any replica.
    let before = receipt;
    let read = at(0).calls("receive_messages", json!({"receipt": before}));
    assert_eq!(read["messages"], json!([]));
    let late = alice.sends("late").to("bob").id;
    let read = at(1).calls("receive_messages", json!({"wait_seconds": 20}));
    assert_eq!(read["messages"][0]["message_id"], late.as_str());
    let read = eventually("the message is delivered again", || {
        let read = at(2).calls("receive_messages", json!({"receipt": before}));
        read["messages"][0]["message_id"].is_string().then_some(read)
    });
    assert_eq!(read["messages"][0]["delivery_count"], 2);
    at(0).calls("receive_messages", json!({"receipt": read["receipt"]}));
    assert_eq!(alice.status_of(&late), "acknowledged");
}

#[test]
fn a_stateless_caller_is_fenced_at_every_replica() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(2, &redis);
    let alice = cluster.replicas[0].agent("alice");
    let first = cluster.replicas[0].http_modern("bob");
    let mut waiting = first.call("receive_messages", json!({"wait_seconds": 100})).sent();
    let second = cluster.replicas[1].http_modern("bob");
    // The other replica ends its wait.
    let result = waiting.answer_to(&json!(1)).unwrap();
    assert_eq!(result["structuredContent"]["code"], "session_taken_over", "{result}");
    let sent = alice.sends("hi").to("bob").id;
    for replica in &cluster.replicas {
        let at = |caller: &HttpAgent| {
            let mut caller = caller.clone();
            caller.address = replica.address;
            caller
        };
        eventually("the first caller is refused", || {
            let result = at(&first)
                .call("heartbeat", json!({}))
                .sent()
                .answer_to(&json!(1))
                .unwrap();
            (result["structuredContent"]["code"] == "session_taken_over").then_some(())
        });
        // This replica may not know the second message yet: it reads the store before it refuses.
        at(&second).calls("heartbeat", json!({}));
    }
    let read = second.reads(json!({"wait_seconds": 20}));
    assert_eq!(
        (&read[0]["message_id"], &read[0]["delivery_count"]),
        (&json!(sent), &json!(1))
    );
}

#[test]
fn a_name_is_one_session_for_all_replicas() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(3, &redis);
    for round in 0..10 {
        let arguments = json!({"name": format!("name{round}")});
        let sessions: BTreeSet<_> = thread::scope(|scope| {
            let register = |at| {
                expect_done(call_over_http(
                    cluster.addresses.pick(at),
                    "register_session",
                    &arguments,
                ))
            };
            let calls: Vec<_> = (0..3).map(|at| scope.spawn(move || register(at))).collect();
            let sessions = calls
                .into_iter()
                .map(|call| call.join().unwrap()["session_id"].as_str().unwrap().to_owned());
            sessions.collect()
        });
        let witness = cluster.replicas[0].client();
        let listed = witness.calls("list_sessions", json!({"status": "all", "limit": 1000}));
        let has_name = |session: &&Value| session["name"] == arguments["name"];
        let rows = listed["sessions"].as_array().unwrap().iter().filter(has_name).count();
        assert_eq!(rows, 1, "{arguments}");
        // Each caller has an id of its own, and every replica accepts the same one of them.
        assert_eq!(sessions.len(), 3, "{arguments}: {sessions:?}");
        eventually("one caller owns the session", || {
            let accepted = |at: usize| {
                let accepts = |id: &&String| match call_over_http(
                    cluster.addresses.pick(at),
                    "heartbeat",
                    &json!({"session_id": id}),
                ) {
                    CallOutcome::Done(_) => true,
                    CallOutcome::Refused(error) => {
                        assert_eq!(error["code"], "session_taken_over");
                        false
                    }
                    CallOutcome::Lost => panic!("no answer"),
                };
                sessions.iter().filter(accepts).collect::<Vec<_>>()
            };
            let accepted: Vec<_> = (0..3).map(accepted).collect();
            (accepted[0].len() == 1 && accepted.iter().all(|ids| *ids == accepted[0])).then_some(())
        });
    }
    // Of connections that register one name, the last one owns the session and the others are closed.
    let visitors: Vec<_> = cluster.replicas.iter().map(Broker::client).collect();
    for visitor in &visitors {
        visitor.begins_call("register_session", &json!({"name": "wanted"}));
    }
    eventually("one connection is open", || {
        (visitors.iter().filter(|agent| agent.wire.is_open()).count() == 1).then_some(())
    });
}

/// Sends the message in a batch, once for each id; each is accepted.
fn call_in_batch(from: &Agent, arguments: &Value, ids: &[&str]) {
    let params = json!({"name": "send_message", "arguments": arguments});
    let call = |id: &&str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    from.wire.sends(&ids.iter().map(call).collect());
    let answers = from.wire.awaits_frame("the answers", Value::is_array);
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), ids.len());
    for answer in answers {
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
}

#[test]
fn a_session_just_registered_at_one_replica_is_found_at_another() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(2, &redis);
    let alice = Agent::legacy(cluster.replicas[0].wire(), "2025-03-26", &json!({})).registered("alice");
    for round in 0..10 {
        // Most frames are lost from now on.
        redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let bob = cluster.replicas[1].agent(&format!("bob{round}"));
        let letter = match round % 3 {
            0 => alice.sends("hi"),
            // A message with an idempotency key is looked up first.
            _ => alice.sends("hi").with("idempotency_key", format!("key{round}")),
        };
        if round % 2 == 0 {
            letter.to(&bob);
        } else {
            call_in_batch(&alice, &letter.arguments_to(&bob), &["1", "2"]);
        }
    }
}

#[test]
fn a_session_just_registered_by_a_stateless_caller_is_known_at_every_replica() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(2, &redis);
    let carol = cluster.replicas[1].agent("carol");
    // Registered at one replica; the other cannot have heard of it.
    let registered = |name: &str| {
        redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let here = cluster.replicas[1].http_modern(name);
        let mut elsewhere = here.clone();
        elsewhere.address = cluster.replicas[0].address;
        (here, elsewhere)
    };
    let inbox_of = |caller: &HttpAgent| format!("broker://sessions/{}/inbox", caller.session.as_ref().unwrap());
    for round in 0..3 {
        let (_, reader) = registered(&format!("reader{round}"));
        let inbox = inbox_of(&reader);
        let read = reader.request("resources/read", json!({"uri": inbox})).unwrap();
        assert_eq!(read["contents"][0]["uri"], inbox);

        let (_, listener) = registered(&format!("listener{round}"));
        let inbox = inbox_of(&listener);
        let filter = json!({"notifications": {"resourceSubscriptions": [inbox]}});
        let mut stream = listener.asks("subscriptions/listen", filter).sent().streams();
        let honored = stream.next_notification("notifications/subscriptions/acknowledged");
        assert_eq!(honored["notifications"]["resourceSubscriptions"], json!([inbox]));

        let (here, elsewhere) = registered(&format!("bob{round}"));
        let sent = carol.sends("hi").to(here.name.as_str());
        assert_eq!(here.reads(json!({"acknowledge": "manual"})).len(), 1);
        let params = json!({"message_ids": [sent.id], "session_id": elsewhere.session});
        elsewhere.notifies("notifications/dev.mcp-broker/ack", params);
        carol.awaits_status(&sent.id, "acknowledged");
    }
}

/// Replicas with authentication.
fn secured<const N: usize>(redis: &Redis) -> [Broker; N] {
    let redis_url = format!("--redis-url={}", redis.url());
    [(); N].map(|()| Broker::secured_with(&["--storage=redis", &redis_url]))
}

#[test]
fn a_session_just_registered_in_another_project_is_found_from_another_replica() {
    let redis = Redis::start();
    let [first, second]: [Broker; 2] = secured(&redis);
    let [here, there] = ["here", "there"].map(|id| first.project(id, &json!({"allow_cross_project": true})));
    // The limit equals the number of messages: the lookup of a recipient does not count.
    here.allow_sending_to("there", &json!({"message_rate_limit": 6}));
    let alice = Agent::legacy(here.wire(), "2025-03-26", &json!({})).registered("alice");
    eventually("the second knows the key", || {
        (second.upgrade(&[("X-API-Key", &there.key)]).status == 101).then_some(())
    });
    for round in 0..6 {
        redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let wire = second.wire_with(&[("X-API-Key", &there.key)]);
        let bob = Agent::legacy(wire, "2025-11-25", &json!({})).registered(&format!("bob{round}"));
        let address = format!("{}@there", bob.name);
        if round % 2 == 0 {
            alice.sends("hi").to(address.as_str());
        } else {
            call_in_batch(&alice, &alice.sends("hi").arguments_to(address.as_str()), &["1"]);
        }
        bob.sees(["hi"]);
    }
}

#[test]
fn a_stateless_caller_may_use_another_replica_for_each_request() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(3, &redis);
    let turn = Cell::new(0);
    let call = |tool: &str, arguments: Value| {
        turn.set(turn.get() + 1);
        expect_done(call_over_http(cluster.addresses.pick(turn.get()), tool, &arguments))
    };
    let session = |object: &Value| object["session_id"].as_str().unwrap().to_owned();
    for round in 0..5 {
        let alice = session(&call("register_session", json!({"name": format!("alice{round}")})));
        let bob = session(&call("register_session", json!({"name": format!("bob{round}")})));
        let schema = json!({"type": "object", "required": ["n"]});
        let name = format!("count{round}");
        call(
            "register_protocol",
            json!({"name": name, "version": "1.0.0", "schema": schema, "session_id": alice}),
        );
        let mut ids = Vec::new();
        for n in 0..5 {
            let sent = call(
                "send_message",
                json!({"session_id": alice, "recipient_id": format!("bob{round}"), "protocol_name": name,
                       "protocol_version": "1.0.0", "payload": {"n": n}}),
            );
            assert_eq!(sent["queue_size"], n + 1, "{sent}");
            ids.push(sent["message_id"].clone());
        }
        // Each read acknowledges the result of the previous one, at any replica.
        let mut got = Vec::new();
        eventually("all are read and acknowledged", || {
            let read = call("receive_messages", json!({"session_id": bob, "limit": 2}));
            let messages = read["messages"].as_array().unwrap();
            got.extend(messages.iter().map(|message| message["payload"]["n"].as_u64().unwrap()));
            let is_done = |id: &Value| {
                let status = call("get_message_status", json!({"session_id": alice, "message_id": id}));
                status["recipients"][0]["status"] == "acknowledged"
            };
            ids.iter().all(is_done).then_some(())
        });
        assert_eq!(got, [0, 1, 2, 3, 4]);
        let done = call("acknowledge_messages", json!({"session_id": bob, "message_ids": ids}));
        assert_eq!(
            (&done["acknowledged"], &done["unknown"]),
            (&json!(0), &json!(ids)),
            "{done}"
        );
        let gone = call("disconnect_session", json!({"session_id": bob}));
        assert_eq!(gone["queue_size"], 0, "{gone}");
    }
}

#[test]
fn three_replicas_together_do_not_exceed_the_protocol_limit_of_a_project() {
    let redis = Redis::start();
    let replicas: [Broker; 3] = secured(&redis);
    // One of them is `note`.
    let team = replicas[0].project("team", &json!({"max_protocols": 6}));
    let key = team.new_key_with_scope("member");
    let agents: Vec<_> = (0..15)
        .map(|at| {
            let replica = &replicas[at % 3];
            eventually("the replica knows the key", || {
                (replica.upgrade(&[("X-API-Key", &key)]).status == 101).then_some(())
            });
            let wire = replica.wire_with(&[("X-API-Key", &key)]);
            Agent::legacy(wire, "2025-11-25", &json!({})).registered(&format!("agent{at}"))
        })
        .collect();
    let protocol = |at: usize| json!({"name": format!("talk{at}"), "version": "1.0.0", "schema": {}});
    let begin = |(at, agent): (usize, &Agent)| agent.begins_call("register_protocol", &protocol(at));
    let calls: Vec<_> = agents.iter().enumerate().map(begin).collect();
    let results: Vec<_> = agents
        .iter()
        .zip(&calls)
        .map(|(agent, id)| agent.wire.answer_to(id).unwrap())
        .collect();
    let (full, taken): (Vec<_>, Vec<_>) = results.iter().partition(|result| result["isError"] == true);
    assert_eq!((taken.len(), full.len()), (5, 10), "{results:?}");
    for result in full {
        assert_eq!(result["structuredContent"]["code"], "forbidden", "{result}");
    }
    // Every replica registers an existing protocol again, whichever replica accepted it.
    let taken = taken[0]["structuredContent"]["name"].as_str().unwrap();
    let again = json!({"name": taken, "version": "1.0.0", "schema": {}});
    for agent in &agents {
        assert_eq!(agent.calls("register_protocol", again.clone())["existed"], true);
    }
}

#[test]
fn aliases_and_conversations_are_addresses_at_every_replica() {
    let redis = Redis::start();
    let cluster = cluster_without_timeouts(2, &redis);
    let alice = cluster.replicas[0].agent("alice");
    let of_conversation = |at: usize, name: &str| {
        let arguments =
            json!({"name": name, "aliases": [format!("alias of {name}")], "metadata": {"conversation": "c-1"}});
        cluster.replicas[at].client().registered_with(&arguments)
    };
    let bob = of_conversation(1, "bob");
    for address in ["alias of bob", "conversation:c-1"] {
        alice.sends(address).to(address);
        bob.sees([address]);
    }
    for arguments in [
        json!({"name": "alias of bob"}),
        json!({"aliases": ["free", "alias of bob"]}),
    ] {
        let refused = alice.is_refused_as("forbidden", "register_session", arguments);
        assert!(
            refused["message"].as_str().unwrap().contains("session `bob`"),
            "{refused}"
        );
    }
    // Of several callers who want an alias at the same time, one gets it, and the others are told who has it.
    let agents: Vec<_> = (0..8)
        .map(|at| cluster.replicas[at % 2].agent(&format!("agent {at}")))
        .collect();
    let wanted = json!({"aliases": ["leader"]});
    let calls: Vec<_> = agents
        .iter()
        .map(|agent| agent.begins_call("register_session", &wanted))
        .collect();
    let answers = agents
        .iter()
        .zip(calls)
        .map(|(agent, call)| agent.wire.answer_to(&call).unwrap());
    let answers: Vec<_> = answers.map(|answer| answer["structuredContent"].clone()).collect();
    let winners: Vec<_> = answers.iter().filter_map(|answer| answer["name"].as_str()).collect();
    assert_eq!(winners.len(), 1, "{answers:?}");
    for refused in answers.iter().filter(|answer| answer["code"] == "forbidden") {
        let text = refused["message"].as_str().unwrap();
        assert!(text.contains(&format!("session `{}`", winners[0])), "{text}");
    }
    assert_eq!(answers.iter().filter(|answer| answer["code"] == "forbidden").count(), 7);
    // The newest session of the conversation is meant, and an alias moves.
    let carol = of_conversation(0, "carol");
    bob.calls("register_session", json!({"aliases": []}));
    eventually("the other replica knows that the alias is free", || {
        let listed = carol.calls("list_sessions", json!({"status": "all"})).to_string();
        (!listed.contains("alias of bob")).then_some(())
    });
    carol.calls("register_session", json!({"aliases": ["alias of bob"]}));
    for replica in &cluster.replicas {
        let asking = replica.client().registered_with(&json!({}));
        for address in ["alias of bob", "conversation:c-1"] {
            asking.sends(address).to(address);
            carol.sees([address]);
        }
    }
}

#[test]
fn a_key_is_valid_at_every_replica_until_it_is_revoked() {
    let redis = Redis::start();
    let [first, second]: [Broker; 2] = secured(&redis);
    let team = first.project("team", &json!({}));
    let key = team.new_key_with_scope("member");
    eventually("the second knows the key", || {
        (second.upgrade(&[("X-API-Key", &key)]).status == 101).then_some(())
    });
    let wire = second.wire_with(&[("X-API-Key", &key)]);
    let bob = Agent::legacy(wire, "2025-11-25", &json!({})).registered("bob");
    let alice = Agent::legacy(team.wire(), "2025-11-25", &json!({})).registered("alice");
    alice.sends("hi").to("bob");
    bob.sees(["hi"]);
    team.revoke_key(&key);
    bob.wire.awaits_close();
    let refused = second.upgrade(&[("X-API-Key", &key)]);
    assert_eq!(refused.status, 401, "{refused:?}");
    // A change at one replica shows at the other.
    let path = "/api/v1/projects/team";
    let changed = second.rest(ADMIN_KEY, "PATCH", path, &json!({"description": "seen"}));
    assert_eq!(changed.status, 200, "{changed:?}");
    eventually("the first replica shows the change", || {
        let shown = first.rest(ADMIN_KEY, "GET", path, &Value::Null).json();
        shown.to_string().contains("seen").then_some(())
    });
}

#[test]
fn the_sessions_of_a_killed_replica_become_stale_and_end_exactly_once() {
    let redis = Redis::start();
    // Each state lasts long enough that both witnesses are asked within it on a busy machine.
    let flags = [
        "--heartbeat-interval=100ms",
        "--stale-threshold=1s",
        "--disconnect-threshold=4s",
        "--session-retention=3s",
    ];
    let mut cluster = BrokerCluster::start_with(3, &redis.url(), &flags);
    let alice = cluster.replicas[0].agent("alice");
    let carol = cluster.replicas[1].agent("carol");
    let bob = cluster.replicas[2].push_agent("bob", &json!({"ack": "manual"}));
    let held = alice.sends("held").to("bob");
    bob.is_pushed(["held"]);
    cluster.replicas[2].kill();
    for witness in [&alice, &carol] {
        witness.awaits_presence("bob", "stale");
    }
    // A message that was delivered there and not acknowledged waits again.
    carol.awaits_status(&held.id, "queued");
    for witness in [&alice, &carol] {
        witness.awaits_presence("bob", "disconnected");
    }
    for witness in [&alice, &carol] {
        witness.awaits_end_of("bob");
        assert_eq!(witness.status_of(&held.id), "dead_lettered");
        let dead = witness.dead_letters("recipient_gone");
        let letters: Vec<_> = dead.iter().map(|letter| letter["message"].clone()).collect();
        assert_eq!(texts(&letters), ["held"]);
    }
}
