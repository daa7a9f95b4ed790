//! The cost of frames that are no requests, for what is not read to its end.

use super::worst_calls::{CostMeter, LARGE, list};

#[test]
fn a_frame_that_is_no_request_is_refused_before_it_is_parsed() {
    let meter = CostMeter::new();
    let members: Vec<_> = (0..LARGE / 11).map(|at| format!(r#""{at:06}":0,"#)).collect();
    let members = members.concat();
    let method = format!(r#""method":"{}","jsonrpc":"2.0""#, "\\u0061".repeat(LARGE / 6));
    let frames = [
        "[".repeat(LARGE),
        list("[]", LARGE),
        list(&list("[]", LARGE / 90), LARGE),
        format!(r#"{{"id":1,{members}"method":"ping","jsonrpc":"2.0"}}"#),
        format!(
            r#"{{"id":1,"x":{0},"y":{0},"method":"ping","jsonrpc":"2.0"}}"#,
            list("[]", LARGE)
        ),
        format!(r#"{{"id":1,"params":{{{members}"x":0}},"method":"ping","jsonrpc":"2.0"}}"#),
        format!(
            r#"{{"id":1,"params":{},"method":"ping","jsonrpc":"2.0"}}"#,
            list("[]", LARGE)
        ),
        format!(r#"{{"id":1,{method}}}"#),
    ];
    for (at, frame) in frames.iter().enumerate() {
        let (took, answer) = meter.time(|| {
            meter.alice.wire.sends_text(frame);
            meter
                .alice
                .wire
                .awaits_frame("a refusal", |frame| frame.get("error").is_some())
        });
        let code = answer["error"]["code"].as_i64().unwrap();
        assert!([-32700, -32600, -32602].contains(&code), "{at}: {answer}");
        meter.assert_bounded(&format!("frame {at}"), took, &answer);
    }
}
