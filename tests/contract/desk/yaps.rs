//! Yaps over REST and in the stream.

use serde_json::{Value, json};

use super::{Desk, awaits};
use crate::support::{Broker, eventually};

impl Desk<'_> {
    fn yaps(&self, from: &str, message: &str) {
        let yap = json!({"from": from, "message": message, "mode": "concise", "category": "neutral"});
        let accepted = self.request(&self.agent, "POST", "yaps", &yap);
        assert_eq!(accepted.status, 201, "{accepted:?}");
        assert_eq!(accepted.json()["kept"], true);
    }

    fn shown_yaps(&self, key: &str, query: &str) -> Vec<Value> {
        self.gets(key, &format!("yaps{query}"))["yaps"]
            .as_array()
            .unwrap()
            .clone()
    }
}

#[test]
fn yaps_are_kept_in_one_order_and_a_stream_continues_behind_the_last_one() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let (mut first, _) = desk.follows(&desk.mara, "topics=yaps");
    for at in 0..5 {
        desk.yaps("bob", &at.to_string());
    }
    let told: Vec<_> = (0..5).map(|_| awaits(&mut first, "yap", |_| true)).collect();
    let messages: Vec<_> = told.iter().map(|yap| yap["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["0", "1", "2", "3", "4"]);
    assert_eq!(
        told.iter().map(|yap| yap["seq"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    assert_eq!(
        (&told[0]["sender_name"], &told[0]["mode"]),
        (&json!("bob"), &json!("concise"))
    );
    assert_eq!(desk.shown_yaps(&desk.mara, ""), told);
    assert_eq!(desk.shown_yaps(&desk.mara, "?limit=2"), told[3..]);
    assert_eq!(desk.shown_yaps(&desk.mara, "?after=3"), told[3..]);
    // A console that is new gets the last ones, one that returns those behind the last that it has got.
    let (mut second, _) = desk.follows(&desk.lena, "topics=yaps");
    assert_eq!(awaits(&mut second, "yap", |_| true), told[0]);
    let mut returned = desk
        .stream_request(&desk.lena, "topics=yaps")
        .with("Last-Event-ID", "y4")
        .sent();
    let event = loop {
        let event = returned.next_event().unwrap();
        if event.kind.as_deref() == Some("yap") {
            break event;
        }
    };
    assert_eq!((event.json(), event.id.as_deref()), (told[4].clone(), Some("y5")));
    // Of a broker that has lost its yaps since, it gets what there is, and is told that there was more.
    let mut stranded = desk
        .stream_request(&desk.lena, "topics=yaps")
        .with("Last-Event-ID", "y9999999")
        .sent();
    awaits(&mut stranded, "gap", |_| true);
    assert_eq!(awaits(&mut stranded, "yap", |_| true), told[0]);
    // Each agent sees its own.
    let other = desk.team.new_key_with_scope("member");
    assert_eq!(desk.shown_yaps(&other, ""), [] as [Value; 0]);
    assert_eq!(desk.shown_yaps(&desk.agent, ""), told);
}

#[test]
fn a_yap_is_bounded_and_waits_for_no_person() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    for wrong in [
        json!({"from": "bob"}),
        json!({"from": "bob", "message": ""}),
        json!({"from": "bob", "message": "x".repeat(4001)}),
        json!({"from": "bob", "message": "x", "mode": "loud"}),
        json!({"from": "bob", "message": "x", "to": "mara"}),
    ] {
        let refused = desk.request(&desk.agent, "POST", "yaps", &wrong);
        assert_eq!(
            refused.problem(),
            (400, "invalid_argument".to_owned()),
            "{:.80}",
            wrong.to_string()
        );
    }
    desk.yaps("bob", "kept");
    eventually("the yap is shown", || {
        let yaps = desk.shown_yaps(&desk.mara, "");
        (yaps.len() == 1 && yaps[0]["message"] == "kept").then_some(())
    });
}
