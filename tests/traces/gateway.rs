//! Calls of backends as spans, and the trace that a backend is told.

use std::{env, fs, path::PathBuf};

use serde_json::{Value, json};

use super::{
    CALLER, CALLER_SPAN, CALLER_TRACE,
    collector::Collector,
    support::{Broker, TIMEOUTS_OFF, broker_program},
    traced,
};

/// A configuration file with a backend of each era.
struct File(PathBuf);

impl File {
    fn new() -> Self {
        let file = env::temp_dir().join(format!("traces-{}.toml", uuid::Uuid::new_v4().simple()));
        let program = PathBuf::from(broker_program().get_program()).with_file_name("fake-backend");
        assert!(program.exists(), "cargo build -p mcp-broker-fake-backend makes it");
        let table = |era: &str| {
            let program = program.display();
            format!("[backends.{era}]\ncommand = \"{program}\"\nargs = [\"--era\", \"{era}\"]\n")
        };
        fs::write(&file, table("legacy") + &table("modern")).unwrap();
        Self(file)
    }

    fn flags(&self) -> Vec<String> {
        let file = format!("--config={}", self.0.display());
        let flags = TIMEOUTS_OFF.iter().map(|&flag| flag.to_owned());
        flags.chain([file, "--gateway-list-wait=20s".to_owned()]).collect()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The `_meta` with which a backend got a call, by its answer.
fn told(result: &Value) -> Value {
    let last = result["structuredContent"]["lines"].as_array().unwrap().last().unwrap();
    let mut frame: Value = serde_json::from_str(last.as_str().unwrap()).unwrap();
    frame["params"]["_meta"].take()
}

#[test]
fn a_call_of_a_backend_is_a_span_and_the_backend_continues_it() {
    let (collector, file) = (Collector::http(), File::new());
    let flags = file.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let broker = Broker::with_program(traced(&collector), &flags);
    let alice = broker.agent("alice");
    for era in ["legacy", "modern"] {
        alice.request("tools/list", json!({})).unwrap();
        let meta = json!({"traceparent": CALLER, "tracestate": "a=1"});
        let params = json!({"name": format!("{era}__received"), "arguments": {}, "_meta": meta});
        let told = told(&alice.wire.request("tools/call", params).unwrap());
        let spans = collector.awaits_where(|span| span.attribute("mcp_broker.backend") == Some(era));
        let span = &spans[0];
        assert_eq!(
            (spans.len(), span.name.as_str(), span.is_failed),
            (1, "tools/call", false)
        );
        assert_eq!(span.attribute("gen_ai.tool.name"), Some("received"));
        assert_eq!(told["traceparent"], format!("00-{CALLER_TRACE}-{}-01", span.id));
        assert_eq!(
            (span.trace.as_str(), &told["tracestate"]),
            (CALLER_TRACE, &json!("a=1"))
        );
        let request = collector.awaits_where(|request| request.id == span.parent);
        assert_eq!(request[0].parent, CALLER_SPAN);
    }
    let params = json!({"name": "legacy__die", "arguments": {}, "_meta": {"traceparent": CALLER}});
    alice.wire.request("tools/call", params).unwrap();
    let failed = collector.awaits_where(|span| span.attribute("gen_ai.tool.name") == Some("die"));
    assert_eq!(
        (failed[0].is_failed, failed[0].attribute("error.type")),
        (true, Some("died"))
    );
}

#[test]
fn a_broker_that_does_not_trace_hands_the_trace_of_the_caller_on() {
    let file = File::new();
    let flags = file.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let broker = Broker::with_program(broker_program(), &flags);
    let alice = broker.agent("alice");
    let meta = json!({"traceparent": CALLER, "tracestate": "a=1,b=2", "x": [1]});
    for meta in [meta, json!({"x": 1})] {
        let params = json!({"name": "legacy__received", "arguments": {}, "_meta": meta});
        assert_eq!(told(&alice.wire.request("tools/call", params).unwrap()), meta);
    }
    let client = broker.http_modern("bob").with("traceparent", CALLER);
    let result = client
        .request("tools/call", json!({"name": "legacy__received", "arguments": {}}))
        .unwrap();
    assert_eq!(told(&result)["traceparent"], CALLER);
}
