//! Who is there after a restart of the broker: those who were, and those who are away are as long away as they were.

use serde_json::{Value, json};

use super::{
    front::Front,
    home::Home,
    support::{Redis, eventually},
};

/// Each storage that outlives the broker, and what has to live as long.
fn homes() -> Vec<(Home, Option<Redis>)> {
    let redis = Redis::start();
    let on_redis = Home::new()
        .with("MCP_BROKER_STORAGE", "redis")
        .with("MCP_BROKER_REDIS_URL", &redis.url());
    vec![(hasty(Home::new()), None), (hasty(on_redis), Some(redis))]
}

/// With short thresholds.
fn hasty(home: Home) -> Home {
    home.with("MCP_BROKER_HEARTBEAT_INTERVAL", "200ms")
        .with("MCP_BROKER_STALE_THRESHOLD", "600ms")
        .with("MCP_BROKER_DISCONNECT_THRESHOLD", "1200ms")
}

fn agent(home: &Home, name: &str) -> Front {
    let mut front = home.front().args(&["--name", name]).start();
    front.initialize("x");
    front.calls("heartbeat", &json!({}));
    front
}

/// What the broker says of a session; `None` if it has none.
fn session(home: &Home, name: &str) -> Option<Value> {
    let done = home.runs(&format!("sessions {name} --json"));
    (done.code == 0).then(|| serde_json::from_str(&done.stdout).unwrap())
}

fn is_away(home: &Home, name: &str) -> Option<Value> {
    session(home, name).filter(|session| session["status"] == "disconnected")
}

/// The milliseconds between the last signs of life in two answers.
fn apart_ms(one: &Value, other: &Value) -> i64 {
    let [one, other] = [one, other].map(|answer| {
        let time = answer["last_heartbeat"].as_str().unwrap();
        // The same day, but for one test in many years: hours, minutes, seconds, milliseconds.
        let number = |at: std::ops::Range<usize>| time[at].parse::<i64>().unwrap();
        ((number(11..13) * 60 + number(14..16)) * 60 + number(17..19)) * 1000 + number(20..23)
    });
    (one - other).abs()
}

#[test]
fn a_session_that_is_away_is_not_back_after_a_restart() {
    for (home, _redis) in homes() {
        let mut alice = agent(&home, "alice");
        let bob = agent(&home, "bob");
        drop(bob);
        let before = eventually("bob is away", || is_away(&home, "bob"));
        for ends in [
            (|home: &Home| drop(home.does("local restart"))) as fn(&Home),
            |home: &Home| {
                home.kill_broker();
                home.start_broker();
            },
        ] {
            ends(&home);
            let after = eventually("the sessions are loaded", || session(&home, "bob"));
            assert_eq!(after["status"], "disconnected", "{before} {after}");
            let apart = apart_ms(&before, &after);
            assert!(apart < 200, "{apart} ms: {before} {after}");
            alice.calls("heartbeat", &json!({}));
            assert_eq!(session(&home, "alice").unwrap()["status"], "active");
        }
    }
}

#[test]
fn the_retention_goes_on_over_restarts() {
    for (home, _redis) in homes() {
        let home = home.with("MCP_BROKER_SESSION_RETENTION", "2s");
        drop(agent(&home, "ghost"));
        eventually("the ghost is away", || is_away(&home, "ghost"));
        // Each run is much shorter than the retention.
        eventually("the ghost is forgotten", || {
            home.does("local restart");
            let listed = home.does("sessions --status all --json");
            (!listed.contains("ghost")).then_some(())
        });
    }
}
