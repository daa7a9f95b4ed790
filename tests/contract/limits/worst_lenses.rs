//! The cost of the most expensive lens: of its check, of a payload that it transforms, and of a message to a session of another
//! version.

use serde_json::{Value, json};

use super::worst_calls::{CostMeter, LARGE, list};

/// A version of a protocol with a list of texts.
fn wide(version: &str) -> Value {
    let texts = json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}});
    json!({"name": "wide", "version": version, "schema": texts})
}

/// The second version with a lens of nearly 32 KiB, whose operations look at each text.
fn wide_with_lens() -> Value {
    let pairs: Vec<_> = (10..38)
        .map(|at| json!([format!("old{at}"), format!("new{at}")]))
        .collect();
    let mut wanted = wide("2.0.0");
    wanted["lens"] = json!(vec![json!({"op": "map", "path": "/l/*", "values": pairs}); 60]);
    wanted["from"] = json!("1.0.0");
    wanted["allow_loss"] = json!(true);
    wanted
}

#[test]
fn the_worst_lens_is_bounded() {
    let meter = CostMeter::new();
    meter.alice.calls("register_protocol", wide("1.0.0"));
    let mut dry = wide_with_lens();
    dry["dry_run"] = json!(true);
    let (took, answer) = meter.time_of("register_protocol", &dry.to_string());
    assert_eq!(answer["isError"], false, "{answer}");
    meter.assert_bounded("the check of a lens", took, &answer);
    meter.alice.calls("register_protocol", wide_with_lens());
    let capabilities = json!({"supported_protocols": {"wide": ["1.0.0"]}});
    meter.alice.calls(
        "register_session",
        json!({"name": "alice", "capabilities": capabilities}),
    );
    for len in [100_000, LARGE] {
        let payload = format!("{{\"l\":{}}}", list("\"a\"", len));
        for (tool, more) in [
            ("transform_message", r#""from_version":"2.0.0","to_version":"1.0.0""#),
            ("send_message", r#""recipient_id":"alice","protocol_version":"2.0.0""#),
        ] {
            let arguments = format!(r#"{{"protocol_name":"wide",{more},"payload":{payload}}}"#);
            let (took, answer) = meter.time_of(tool, &arguments);
            meter.assert_bounded(&format!("{tool} of {len} bytes"), took, &answer);
        }
    }
}
