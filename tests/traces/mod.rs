//! Black-box tests of what operators follow: traces, exported to a real receiver of OTLP in the test process, and the
//! filter of the log.

mod collector;
mod delivery;
mod faults;
mod gateway;
mod http;
mod log_level;

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{self, Agent, broker_program};

use self::collector::Collector;

/// The caller's span in these tests.
const CALLER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const CALLER_TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER_SPAN: &str = "b7ad6b7169203331";

/// A broker that exports to this collector, every 100 ms.
fn traced(collector: &Collector) -> Command {
    let mut program = broker_program();
    program
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
        .env("OTEL_EXPORTER_OTLP_PROTOCOL", collector.protocol())
        .env("OTEL_BSP_SCHEDULE_DELAY", "100");
    program
}

/// Calls a tool with this `_meta`, and returns the result.
fn calls_with_meta(agent: &Agent, tool: &str, arguments: Value, meta: &Value) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    let mut result = agent.wire.request("tools/call", params).unwrap();
    assert_eq!(result["isError"], false, "{result}");
    result["structuredContent"].take()
}

/// A message to this recipient.
fn note(text: &str, recipient: &str) -> Value {
    json!({
        "recipient_id": recipient, "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": text},
    })
}
