//! Yaps: remarks that people see and agents get no answer to.

use serde_json::{Value, json};

use crate::support::{Broker, eventually};

fn messages(yaps: &Value) -> Vec<&str> {
    let yaps = yaps["yaps"].as_array().unwrap();
    yaps.iter().map(|yap| yap["message"].as_str().unwrap()).collect()
}

#[test]
fn a_yap_is_kept_as_it_was_said() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let arguments = json!({
        "message": "hm, \u{1b}[31mred", "mode": "verbose", "category": "progress: 2 of 3", "task_context": "migration",
    });
    let said = alice.calls("yap", arguments);
    assert_eq!((&said["shown_to"], &said["kept"]), (&json!(0), &json!(true)));
    let yap = eventually("the yap has its place", || {
        let yaps = mara.sends("GET", "yaps", &Value::Null).json();
        yaps["yaps"].as_array().unwrap().first().cloned()
    });
    assert_eq!(
        (&yap["yap_id"], &yap["sender_name"]),
        (&said["yap_id"], &json!("alice"))
    );
    assert_eq!(yap["message"], "hm, \u{1b}[31mred", "the text is never changed");
    assert_eq!(
        (&yap["mode"], &yap["category"], &yap["task_context"]),
        (&json!("verbose"), &json!("progress: 2 of 3"), &json!("migration"))
    );
}

#[test]
fn a_burst_keeps_its_order_and_folds_what_is_over_the_rate() {
    let broker = Broker::without_timeouts();
    let (alice, mara) = (broker.agent("alice"), broker.person("mara"));
    let calls: Vec<_> = (0..80)
        .map(|at| alice.begins_call("yap", &json!({"message": format!("yap {at:02}")})))
        .collect();
    for call in calls {
        assert_eq!(alice.finishes_call("yap", &call)["kept"], true);
    }
    let yaps = eventually("the burst is shown", || {
        let yaps = mara.sends("GET", "yaps?limit=200", &Value::Null).json();
        (messages(&yaps).len() >= 50).then_some(yaps)
    });
    let shown = messages(&yaps);
    let mut sorted = shown.clone();
    sorted.sort_unstable();
    assert_eq!(shown, sorted, "a sender's yaps keep their order");
    assert_eq!(
        &shown[..50],
        (0..50).map(|at| format!("yap {at:02}")).collect::<Vec<_>>()
    );
    assert!(shown.len() < 80, "what is over the rate is folded");
}

#[test]
fn a_yap_out_of_bounds_is_refused() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    for (argument, arguments) in [
        ("message", json!({})),
        ("message", json!({"message": "x".repeat(4_001)})),
        ("mode", json!({"message": "x", "mode": "loud"})),
        ("category", json!({"message": "x", "category": "x".repeat(41)})),
    ] {
        let error = alice.is_refused_as("invalid_argument", "yap", arguments);
        assert_eq!(error["detail"]["argument"], argument);
    }
}
