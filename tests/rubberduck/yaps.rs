//! Yaps: all consoles show all of them, in one order, and none waits for the next.

use std::{thread, time::Duration};

use serde_json::json;

use super::program::Broker;

const YAPS: usize = 30;

#[test]
fn a_stream_of_yaps_is_shown_while_it_lasts_complete_and_in_order() {
    let broker = Broker::start(&[]);
    let (mut first, mut second) = (broker.console("one"), broker.console("two"));
    let mut alice = broker.server("alice");
    let shown = thread::scope(|scope| {
        let reader = scope.spawn(|| (0..YAPS).map(|_| first.next("yap")).collect::<Vec<_>>());
        for number in 0..YAPS {
            // An interval, not a wait: the original showed the first of such a stream after the last.
            thread::sleep(Duration::from_millis(100));
            let text = format!("yap {number}");
            alice.say(
                "yap",
                &json!({"id": "y", "message": text, "mode": "concise", "category": "neutral"}),
            );
            if number == YAPS / 2 {
                assert_eq!(
                    second.next("yap")["message"],
                    "yap 0",
                    "it is shown while the stream lasts"
                );
            }
        }
        reader.join().unwrap()
    });
    let expected: Vec<_> = (0..YAPS).map(|number| format!("yap {number}")).collect();
    let texts: Vec<_> = shown.iter().map(|yap| yap["message"].as_str().unwrap()).collect();
    assert_eq!(texts, expected);
    assert!(shown.iter().all(|yap| yap["sourceClientId"] == "rubberduck-alice"));
    let texts: Vec<_> = (1..YAPS).map(|_| second.next("yap")["message"].clone()).collect();
    assert_eq!(texts, expected[1..]);
}

#[test]
fn a_new_console_gets_the_last_yaps() {
    let broker = Broker::start(&[]);
    let mut alice = broker.server("alice");
    let mut console = broker.console("one");
    alice.say(
        "yap",
        &json!({"id": "1", "message": "before", "mode": "unknown", "category": "neutral"}),
    );
    let shown = console.next("yap");
    assert_eq!(
        (&shown["message"], &shown["mode"]),
        (&json!("before"), &json!("concise"))
    );
    let again = broker.console("two").next("yap");
    assert_eq!((&again["message"], &again["id"]), (&json!("before"), &shown["id"]));
}
