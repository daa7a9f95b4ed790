//! Starts that meet each other, or a broker that ends.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    net::TcpListener,
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    front::Front,
    home::{Done, Home, kill},
    runtime::{START, STATUS, pids, start_at_once},
    support::eventually,
};

#[test]
fn twenty_starts_at_once_give_one_broker() {
    let home = Home::new();
    let starts = start_at_once(&home, START, 20);
    assert_eq!(pids(&starts).len(), 1);
    assert_eq!(home.brokers().len(), 1);
    // The same over what a killed broker has left.
    kill(home.brokers()[0], Signal::KILL);
    let starts = start_at_once(&home, START, 8);
    assert_eq!(pids(&starts).len(), 1);
    eventually("one broker is there", || (home.brokers().len() == 1).then_some(()));
}

/// The processes of the brokers to which fronts have attached, and how often they have.
fn attachments(home: &Home) -> (BTreeSet<String>, usize) {
    let log = home.connect_log();
    let pids = log
        .lines()
        .filter(|line| line.contains("attached to broker"))
        .map(|line| line.rsplit("pid ").next().unwrap().to_owned());
    let pids: Vec<String> = pids.collect();
    (pids.iter().cloned().collect(), pids.len())
}

#[test]
fn twenty_fronts_at_once_share_one_broker_and_lose_no_call() {
    let home = Home::new();
    let mut fronts: Vec<Front> = (0..20).map(|_| home.front().start()).collect();
    let initialize =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
    // All of them ask before any is answered.
    let ask = |(number, front): (usize, &mut Front)| {
        let first = front.asks("initialize", &initialize);
        front.notifies("notifications/initialized", &json!({}));
        let named = front.asks_tool("register_session", &json!({"name": format!("agent-{number}")}));
        [first, named]
    };
    let asked: Vec<_> = fronts.iter_mut().enumerate().map(ask).collect();
    for (front, [first, named]) in fronts.iter_mut().zip(asked) {
        assert_eq!(front.answer(first)["result"]["protocolVersion"], "2025-11-25");
        let answer = front.answer(named);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    let names = |front: &mut Front| -> BTreeSet<String> {
        let listed = front.calls("list_sessions", &json!({"limit": 100}));
        let sessions = listed["sessions"].as_array().unwrap().iter();
        sessions
            .map(|session| session["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let expected: BTreeSet<String> = (0..20).map(|number| format!("agent-{number}")).collect();
    assert_eq!(names(&mut fronts[0]), expected);
    let brokers = home.brokers();
    assert_eq!(brokers.len(), 1, "{brokers:?}");
    assert_eq!(home.holders_of(&home.runtime().join("life.lock")), brokers);
    let (of, times) = attachments(&home);
    assert_eq!((of.len(), times), (1, 20), "{of:?}");
    // None started a broker beside another, which would have been refused.
    assert!(!home.connect_log().contains("runs already"), "{}", home.connect_log());
    // The same for all of them over what a killed broker has left.
    home.kill_broker();
    let asked: Vec<u64> = fronts
        .iter_mut()
        .map(|front| front.asks_tool("heartbeat", &json!({})))
        .collect();
    for (front, id) in fronts.iter_mut().zip(asked) {
        let answer = front.answer(id);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    assert_eq!(names(&mut fronts[0]), expected);
    assert_eq!(home.holders_of(&home.runtime().join("life.lock")), home.brokers());
    assert_eq!(home.brokers().len(), 1);
    let (of, times) = attachments(&home);
    assert_eq!((of.len(), times), (2, 40), "{of:?}");
}

#[test]
fn a_start_waits_for_the_process_that_has_the_data_folder() {
    let home = Home::new();
    home.does("local start");
    home.does("local stop");
    // As a broker has it that ends.
    let has_data = || {
        let file = File::options()
            .write(true)
            .open(home.state().join("data/lock"))
            .unwrap();
        file.lock().unwrap();
        file
    };
    let data = has_data();
    let mut start = home.command(START);
    let start = start.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the broker waits", || {
        let log = fs::read_to_string(home.state().join("broker.log")).unwrap_or_default();
        log.contains("waiting for the process that uses it").then_some(())
    });
    drop(data);
    let done = Done::of(start.wait_with_output().unwrap());
    assert_eq!(done.code, 0, "{done:?}");
    home.client().syncs();
    home.does("local stop");
    let _data = has_data();
    let refused = home.runs("local start");
    let line = refused.refusal(2);
    assert!(
        line.contains("another process uses it") && line.contains("in use for 5 s") && line.contains("broker.log"),
        "{line}"
    );
    assert_eq!(home.runs(STATUS).code, 3, "nothing is left of it");
}

#[test]
fn a_usual_port_that_is_taken_is_replaced_by_a_free_one() {
    let home = Home::new();
    // Another program may have it already.
    let taken = TcpListener::bind("127.0.0.1:8000");
    let mut command = home.command(START);
    let done = Done::of(command.env_remove("MCP_BROKER_PORT").output().unwrap());
    assert_eq!(done.code, 0, "{done:?}");
    let shown: Value = serde_json::from_str(&done.stdout).unwrap();
    let http = shown["http"].as_str().unwrap();
    assert!(taken.is_err() || http != "http://127.0.0.1:8000", "{http}");
}
