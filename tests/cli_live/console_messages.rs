//! Messages of a person in the console, in a real terminal and against the real broker.

use serde_json::{Value, json};

use super::console::{SIZE, broker_with_agents, console, types};
use super::program::{eventually_or, get, post};

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_person_writes_to_an_agent_and_reads_its_answer() {
    let broker = broker_with_agents(&["alice"]);
    let screen = console(&broker, "mara", SIZE, "");
    screen.presses(&["w"]);
    screen.shows("write to (the name of an agent)");
    types(&screen, "alice");
    screen.presses(&["Enter"]);
    screen.shows("to alice (Enter sends");
    types(&screen, "Which port?");
    screen.presses(&["Enter"]);
    screen.shows("sent");
    let listed = |query: &str| {
        let page = get(broker.address, &format!("/api/v1/messages?{query}"));
        page["messages"].clone()
    };
    let mut thread = Value::Null;
    eventually_or(
        || "the message is in the history".to_owned(),
        || {
            thread = listed("session=alice")[0]["message_id"].clone();
            thread.is_string().then_some(())
        },
    );
    let answer = json!({"from": "alice", "recipient_id": "mara", "protocol_name": "text", "protocol_version": "1.0.0",
        "payload": {"text": "8080,\nas before"}, "headers": {"thread_id": thread}});
    post(broker.address, "/api/v1/messages", &answer);
    screen.shows("alice has written: m shows it");
    screen.shows("1 message");
    screen.presses(&["m"]);
    screen.shows("as before");
    screen.shows("you to alice");
    screen.presses(&["x"]);
    screen.shows_that("nothing is new", |text| {
        !text.contains("1 message") && text.contains("as before")
    });
    eventually_or(
        || "the agent sees that it was read".to_owned(),
        || (listed("session=mara&limit=1")[0]["status"] == "acknowledged").then_some(()),
    );
}
