//! An idle agent is woken: a client that acts as the real ones do, the front and the broker as they are.

use std::{fs, path::PathBuf, time::Duration};

use serde_json::{Value, json};

use super::{
    harness::{Client, ClientBuilder},
    home::Home,
    mail::{calls, sender, sends},
    support::{Request, Wire, eventually},
    ways::{InboxRule, Prompt},
};

const TEXT: &str = "mcp-broker: 1 message waits, from bob, protocol chat. Call receive_messages.";
const MINUTE_MS: u64 = 60_000;

/// The value of a metric of the broker of a user.
fn metric(user: &Home, name: &str) -> u64 {
    let info: Value = serde_json::from_slice(&fs::read(user.runtime().join("broker.json")).unwrap()).unwrap();
    let address = info["http"]
        .as_str()
        .unwrap()
        .trim_start_matches("http://")
        .parse()
        .unwrap();
    let body = Request::get(address).with_path("/metrics").answered().body;
    let line = body
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    line.unwrap_or(0)
}

/// Wakes by a rung with a result.
fn wakes(user: &Home, rung: &str, result: &str) -> u64 {
    metric(
        user,
        &format!("mcp_broker_wakes_total{{rung=\"{rung}\",result=\"{result}\"}}"),
    )
}

/// Waits until so many wakes were written by a rung.
fn were_written(user: &Home, rung: &str, len: u64) {
    eventually(&format!("{len} wakes by {rung}"), || {
        (wakes(user, rung, "written") == len).then_some(())
    });
}

/// The row of the only recipient of a message.
fn status(bob: &mut Wire, message: &str) -> Value {
    calls(bob, "get_message_status", &json!({"message_id": message}))["recipients"][0].clone()
}

/// A client that the rung wakes, and no other one.
fn client_of<'a>(user: &'a Home, rung: &str) -> Client<'a> {
    let claude = || ClientBuilder::claude(user, "alice");
    let builder = match rung {
        "inbox" => claude().with_inbox(),
        "channel" => claude().with_channel().with_inbox(),
        "hook" => claude().with_hooks(),
        "queue" => ClientBuilder::codex(user, "alice"),
        "call" => claude().with_background_after(Duration::from_millis(300)),
        "tmux" => claude().with_prompt(Prompt::of(user)),
        other => panic!("{other}"),
    };
    builder.starts()
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn every_rung_wakes_an_idle_agent_exactly_once_for_a_message() {
    for rung in ["inbox", "channel", "hook", "queue", "tmux", "call"] {
        let user = Home::new();
        let mut alice = client_of(&user, rung);
        let mut bob = sender(&user, "bob");
        for round in 0..2 {
            if rung == "call" {
                alice.calls_in_the_background("receive_messages", &json!({"wait_seconds": 100}));
            }
            if rung == "hook" {
                let mut waits = || {
                    let listed = calls(&mut bob, "list_sessions", &json!({})).to_string();
                    listed.contains(r#""wakes_by":["hook"]"#)
                };
                eventually("the hook waits", || waits().then_some(()));
            }
            let sent = sends(&mut bob, "alice");
            let turn = alice.begins_turn();
            assert_eq!(turn.by, rung, "{turn:?}");
            if rung == "call" {
                assert!(turn.text.contains(&sent), "the result of the call: {turn:?}");
            } else {
                assert_eq!(turn.text, TEXT, "{rung}");
                let row = eventually("the wake is in the status", || {
                    let row = status(&mut bob, &sent);
                    row["wakes"].is_array().then_some(row)
                });
                assert_eq!(row["status"], "queued", "a wake is no delivery: {row}");
                let wakes = row["wakes"].as_array().unwrap();
                assert_eq!(
                    (wakes.len(), &wakes[0]["rung"], &wakes[0]["result"]),
                    (1, &json!(rung), &json!("written"))
                );
                assert_eq!(alice.reads().len(), 1);
            }
            assert_eq!(
                alice.ends_turn(),
                [Value::Null; 0],
                "{rung}, round {round}: nothing is left"
            );
            alice.rests();
        }
        let written = if rung == "call" { 0 } else { 2 };
        assert_eq!(wakes(&user, rung, "written"), written, "{rung}");
        alice.rests();
    }
}

#[test]
fn what_waits_at_the_end_of_a_turn_continues_it() {
    let user = Home::new();
    let mut alice = ClientBuilder::claude(&user, "alice").with_hooks().starts();
    let mut bob = sender(&user, "bob");
    sends(&mut bob, "alice");
    alice.begins_turn();
    let said = alice.ends_turn();
    assert_eq!(said, [json!({"decision": "block", "reason": TEXT})]);
    assert_eq!(alice.reads().len(), 1);
    assert_eq!(alice.ends_turn(), [Value::Null; 0]);
}

#[test]
fn a_wake_that_a_rung_does_not_take_goes_to_the_next() {
    let user = Home::new();
    let mut alice = ClientBuilder::claude(&user, "alice").with_inbox().with_hooks().starts();
    let mut bob = sender(&user, "bob");
    eventually("both are seen", || {
        let listed = calls(&mut bob, "list_sessions", &json!({})).to_string();
        listed.contains(r#""wakes_by":["inbox","hook"]"#).then_some(())
    });
    alice.loses_its_inbox();
    let sent = sends(&mut bob, "alice");
    let turn = alice.begins_turn();
    assert_eq!((turn.by, turn.text.as_str()), ("hook", TEXT));
    let tried = [("inbox", "absent"), ("hook", "written")].map(|(rung, result)| (json!(rung), json!(result)));
    eventually("both are in the status", || {
        let row = status(&mut bob, &sent);
        let wakes = row["wakes"].as_array().into_iter().flatten();
        let seen: Vec<_> = wakes
            .map(|wake| (wake["rung"].clone(), wake["result"].clone()))
            .collect();
        (seen == tried).then_some(())
    });
    assert_eq!(alice.reads().len(), 1);
    alice.rests();
}

/// The clocks of the broker of a user, which a test can move.
struct Clocks {
    file: PathBuf,
    moved_ms: u64,
}

impl Clocks {
    /// Starts the broker with these clocks. No presence changes while they are moved.
    fn of(user: &Home) -> Self {
        let file = user.path.join("clocks");
        fs::write(&file, "0 0").unwrap();
        let mut start = user.command("local start");
        start.env("FAULT_CLOCK_FILE", &file);
        assert!(start.status().unwrap().success());
        Self { file, moved_ms: 0 }
    }

    fn passes(&mut self, ms: u64) {
        self.moved_ms += ms;
        let new = self.file.with_extension("new");
        fs::write(&new, format!("{0} {0}", self.moved_ms)).unwrap();
        fs::rename(new, &self.file).unwrap();
    }
}

/// A user whose broker takes no agent for gone within three hours.
fn patient_user() -> Home {
    Home::new()
        .with("MCP_BROKER_HEARTBEAT_INTERVAL", "1h")
        .with("MCP_BROKER_STALE_THRESHOLD", "4h")
        .with("MCP_BROKER_DISCONNECT_THRESHOLD", "5h")
}

#[test]
fn a_wake_that_is_lost_is_repeated_three_times() {
    let user = patient_user();
    let mut clocks = Clocks::of(&user);
    let mut alice = ClientBuilder::claude(&user, "alice").with_inbox().starts();
    let mut bob = sender(&user, "bob");
    *alice.rule.lock().unwrap() = InboxRule::Holds;
    let sent = sends(&mut bob, "alice");
    were_written(&user, "inbox", 1);
    for (repeat, minutes) in [2, 10, 60].into_iter().enumerate() {
        clocks.passes(minutes * MINUTE_MS);
        were_written(&user, "inbox", repeat as u64 + 2);
    }
    clocks.passes(120 * MINUTE_MS);
    // An urgent message wakes in any case: by then a fourth repeat would have come.
    *alice.rule.lock().unwrap() = InboxRule::Takes;
    let urgent = json!({"recipient_id": "alice", "protocol_name": "chat", "protocol_version": "1.0.0", "payload": {},
        "headers": {"priority": "urgent"}});
    calls(&mut bob, "send_message", &urgent);
    let turn = alice.begins_turn();
    assert!(turn.text.contains("2 messages wait (1 urgent)"), "{turn:?}");
    were_written(&user, "inbox", 5);
    assert_eq!(
        status(&mut bob, &sent)["status"],
        "queued",
        "no wake was taken for a delivery"
    );
    assert_eq!(alice.reads().len(), 2);
    alice.rests();
}

#[test]
fn a_wake_that_is_refused_is_repeated() {
    let user = patient_user();
    let mut clocks = Clocks::of(&user);
    let mut alice = ClientBuilder::codex(&user, "alice").starts();
    let mut bob = sender(&user, "bob");
    alice.codex.as_ref().unwrap().does("exit 1");
    sends(&mut bob, "alice");
    eventually("it is refused", || {
        (wakes(&user, "queue", "refused") == 1).then_some(())
    });
    // The run that failed began no turn.
    alice.begins_turn();
    alice.codex.as_ref().unwrap().does("");
    clocks.passes(2 * MINUTE_MS);
    let turn = alice.begins_turn();
    assert_eq!((turn.by, turn.text.as_str()), ("queue", TEXT));
    assert_eq!(alice.reads().len(), 1);
    were_written(&user, "queue", 1);
    alice.rests();
}

#[test]
fn agents_that_answer_each_other_for_ever_come_to_rest() {
    let user = Home::new();
    let agents = ["alice", "bob"].map(|name| ClientBuilder::claude(&user, name).with_inbox().starts());
    let _protocol = sender(&user, "setup");
    let [mut one, mut other] = agents;
    let answer = |agent: &mut Client<'_>, to: &str| {
        let message = json!({"recipient_id": to, "protocol_name": "chat", "protocol_version": "1.0.0", "payload": {}});
        agent.calls("send_message", &message);
    };
    answer(&mut one, "bob");
    let held = || metric(&user, "mcp_broker_wakes_held_total{reason=\"hop_limit\"}");
    let mut turns = 0;
    loop {
        let (agent, peer) = if turns % 2 == 0 {
            (&mut other, "alice")
        } else {
            (&mut one, "bob")
        };
        let began = eventually("a turn, or rest", || match agent.turn_that_began() {
            Some(turn) => Some(Some(turn)),
            None => (held() > 0).then_some(None),
        });
        let Some(turn) = began else { break };
        assert_eq!(turn.by, "inbox");
        turns += 1;
        assert_eq!(agent.reads().len(), 1);
        answer(agent, peer);
        assert!(turns < 40, "they go on");
    }
    // The first message has no hops, the last that wakes has 16.
    assert_eq!((turns, held()), (17, 1));
    one.rests();
    other.rests();
    let waiting = if turns % 2 == 0 { &mut other } else { &mut one };
    assert_eq!(waiting.reads().len(), 1, "the last message waits");
}

#[test]
fn a_storm_of_a_thousand_messages_is_one_wake() {
    let user = Home::new().with("MCP_BROKER_QUEUE_CAPACITY", "2000");
    let mut alice = ClientBuilder::claude(&user, "alice").with_inbox().starts();
    let mut bob = sender(&user, "bob");
    for _ in 0..1000 {
        sends(&mut bob, "alice");
    }
    let turn = alice.begins_turn();
    assert_eq!(turn.by, "inbox");
    let mut read = 0;
    while read < 1000 {
        read += alice.reads().len();
    }
    // The next message wakes: by then a second wake of the storm would have come.
    sends(&mut bob, "alice");
    assert_eq!(alice.begins_turn().text, TEXT);
    were_written(&user, "inbox", 2);
    alice.rests();
}

#[test]
fn a_delivery_report_wakes_the_sender() {
    let user = Home::new();
    let mut alice = ClientBuilder::claude(&user, "alice").with_inbox().starts();
    let mut bob = sender(&user, "bob");
    let message = json!({"recipient_id": "bob", "protocol_name": "chat", "protocol_version": "1.0.0", "payload": {}});
    let sent = alice.calls("send_message", &message);
    let id =
        calls(&mut bob, "receive_messages", &json!({"acknowledge": "manual"}))["messages"][0]["message_id"].clone();
    assert_eq!(id, sent["message_id"]);
    let reject = json!({"message_ids": [id], "outcome": "rejected", "note": "not mine"});
    calls(&mut bob, "acknowledge_messages", &reject);
    let turn = alice.begins_turn();
    let text = "mcp-broker: 1 message waits, from mcp-broker, protocol delivery-report. Call receive_messages.";
    assert_eq!((turn.by, turn.text.as_str()), ("inbox", text));
    let shown = user.does("inbox alice");
    assert!(
        shown.contains("mcp-broker") && shown.contains("delivery-report"),
        "{shown}"
    );
    let entry = alice.reads()[0]["payload"]["messages"][0].clone();
    assert_eq!(
        (&entry["message_id"], &entry["note"]),
        (&sent["message_id"], &json!("not mine"))
    );
}
