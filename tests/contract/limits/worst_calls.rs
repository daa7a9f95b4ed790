//! The cost of one request: the largest and most hostile arguments of every tool and method. The processor time of each is
//! bounded by a multiple of the time for a plain message of the same size.

use serde_json::{Map, Value, json};

use super::{worst_administration::worst_administration, worst_questions::worst_questions};
use crate::support::{Agent, Broker};

/// The worst call may take this many times as long as a plain message of [`LARGE`] bytes.
const RATIO_MAX: u64 = 12;
/// Bytes of the largest answer.
const ANSWER_LEN_MAX: usize = 1024 * 1024;
pub(super) const LARGE: usize = 4_000_000;

pub(super) struct CostMeter {
    broker: Broker,
    pub(super) alice: Agent,
    /// Processor time of a plain message of [`LARGE`] bytes.
    plain: u64,
}

impl CostMeter {
    pub(super) fn new() -> Self {
        let broker = Broker::start();
        let alice = broker.agent("alice");
        broker.agent("bob");
        let mut meter = Self {
            broker,
            alice,
            plain: 0,
        };
        let plain = message("note", &format!(r#"{{"text":"{}"}}"#, "x".repeat(LARGE)));
        meter.plain = (0..3).map(|_| meter.time_of("send_message", &plain).0).min().unwrap();
        meter
    }

    /// The processor time of a call in nanoseconds, and its result.
    pub(super) fn time_of(&self, tool: &str, arguments: &str) -> (u64, Value) {
        self.time(|| {
            let id = json!(format!("worst-{tool}"));
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
            );
            self.alice.wire.sends_text(&call);
            self.alice.wire.answer_to(&id).unwrap_or_else(|error| error)
        })
    }

    /// Runs a call and takes its processor time in nanoseconds. One that took too long is repeated: work of the broker
    /// that does not belong to the call counts too, and does not come each time.
    pub(super) fn time<T>(&self, run: impl Fn() -> T) -> (u64, T) {
        let mut attempts = 3;
        loop {
            let before = self.broker.processor_time();
            let result = run();
            // Work beside the answer is done before the next answer.
            self.alice.syncs();
            // A thread that has ended takes its time along.
            let Some(took) = self.broker.processor_time().checked_sub(before) else {
                continue;
            };
            attempts -= 1;
            if attempts == 0 || self.ratio(took) <= RATIO_MAX {
                return (took, result);
            }
        }
    }

    /// How many times as long as a plain message.
    fn ratio(&self, took: u64) -> u64 {
        took.checked_div(self.plain).unwrap_or_default()
    }

    pub(super) fn assert_bounded(&self, what: &str, took: u64, answer: &Value) {
        let times = self.ratio(took);
        assert!(
            times <= RATIO_MAX,
            "{what} takes {times} times as long as a large plain message: {took} ns"
        );
        let len = answer.to_string().len();
        assert!(len <= ANSWER_LEN_MAX, "{what} answers {len} bytes");
    }

    fn register(&self, name: &str, schema: &Value) {
        let protocol = json!({"name": name, "version": "1.0.0", "schema": schema});
        self.alice.calls("register_protocol", protocol);
    }
}

pub(super) fn message(protocol: &str, payload: &str) -> String {
    format!(r#"{{"recipient_id":"bob","protocol_name":"{protocol}","protocol_version":"1.0.0","payload":{payload}}}"#)
}

pub(super) fn text(len: usize) -> String {
    format!("\"{}\"", "x".repeat(len))
}

pub(super) fn list(item: &str, len: usize) -> String {
    format!("[{}{item}]", format!("{item},").repeat(len / (item.len() + 1)))
}

/// The most expensive arguments of each tool.
fn worst_arguments(tool: &str) -> Vec<String> {
    let ids = list("\"01890000-0000-7000-8000-000000000000\"", 390_000);
    let words = list("\"w\"", LARGE);
    match tool {
        "register_session" => {
            let versions: Vec<_> = (0..7000).map(|patch| format!("1.0.{patch}")).collect();
            let declared = json!({"supported_protocols": {"chat": versions}});
            vec![
                format!(r#"{{"name":{}}}"#, text(LARGE)),
                format!(r#"{{"capabilities":{declared}}}"#),
                format!(r#"{{"metadata":{{"a":{words}}}}}"#),
            ]
        }
        "heartbeat" | "disconnect_session" => vec![
            format!(r#"{{"x":{words}}}"#),
            format!("{{{}\"y\":0}}", "\"x\":0,".repeat(LARGE / 6)),
        ],
        "list_sessions" => vec![
            format!(r#"{{"feature":{}}}"#, text(LARGE)),
            r#"{"limit":1000}"#.to_owned(),
        ],
        "register_protocol" | "discover_protocols" | "transform_message" => worst_protocols(tool, &words),
        "negotiate_capabilities" => {
            let one = r#"{"name":"chat","version":">=1, <2"}"#;
            let call = |len| {
                format!(
                    r#"{{"target_session_id":"bob","required_protocols":{}}}"#,
                    list(one, len)
                )
            };
            vec![call(255 * 36), call(LARGE)]
        }
        "compatibility_matrix" => vec![
            "{}".to_owned(),
            format!(r#"{{"session_ids":{}}}"#, list("\"alice\"", 60_000)),
            format!(r#"{{"session_ids":{}}}"#, list("\"alice\"", LARGE)),
        ],
        "send_message" => vec![
            format!(
                r#"{{"recipient_id":{},"protocol_name":"note","protocol_version":"1.0.0","payload":{{}}}}"#,
                text(LARGE)
            ),
            message("note", &format!(r#"{{"text":"","more":{}}}"#, list("1", LARGE))),
            message("note", &format!(r#"{{"text":1,"more":{}}}"#, list("[]", LARGE))),
        ],
        "broadcast_message" => vec![
            format!(
                r#"{{"protocol_name":"note","protocol_version":"1.0.0","payload":{{"text":""}},"capability_filter":{{"features":{words}}}}}"#
            ),
            format!(r#"{{"protocol_name":"note","protocol_version":"1.0.0","payload":{{"text":"","more":{words}}}}}"#),
        ],
        "acknowledge_messages" | "redrive_dead_letters" => vec![
            format!(r#"{{"message_ids":{ids}}}"#),
            format!(r#"{{"message_ids":{words}}}"#),
        ],
        "receive_messages" => vec![
            r#"{"limit":100,"acknowledge":"manual"}"#.to_owned(),
            format!(r#"{{"limit":{words}}}"#),
        ],
        "get_message_status" => vec![format!(r#"{{"message_id":{}}}"#, text(LARGE))],
        "get_thread" | "search_messages" => worst_history_arguments(tool),
        "list_dead_letters" => vec![
            format!(r#"{{"cursor":{}}}"#, text(LARGE)),
            r#"{"limit":500}"#.to_owned(),
        ],
        "clarify" | "get_answer" | "cancel_question" | "yap" | "permission_prompt" => worst_questions(tool, &words),
        _ => worst_administration(tool, &words),
    }
}

/// The same for the tools about protocols.
fn worst_protocols(tool: &str, words: &str) -> Vec<String> {
    match tool {
        "register_protocol" => vec![
            format!(r#"{{"name":"worst","version":"1.0.0","schema":{{"enum":{words}}}}}"#),
            format!(r#"{{"name":"worst","version":"1.0.0","schema":{{}},"metadata":{{"tags":{words}}}}}"#),
            format!(r#"{{"name":"worst","version":{},"schema":{{}}}}"#, text(LARGE)),
        ],
        "discover_protocols" => vec![
            format!(r#"{{"tags":{words}}}"#),
            format!(r#"{{"version":"{}"}}"#, ">=1,".repeat(LARGE / 4)),
        ],
        _ => {
            let note = |more: &str| {
                format!(
                    r#"{{"protocol_name":"note","from_version":"1.0.0","to_version":"1.0.0","payload":{{"text":1,"more":{more}}}}}"#
                )
            };
            vec![note(&list("1", LARGE)), note(&list("[]", LARGE)), note(&text(LARGE))]
        }
    }
}

/// The same for the tools that read the history.
fn worst_history_arguments(tool: &str) -> Vec<String> {
    match tool {
        "get_thread" => vec![
            r#"{"thread_id":"t","include_payloads":true,"limit":100}"#.to_owned(),
            format!(r#"{{"thread_id":{}}}"#, text(LARGE)),
        ],
        _ => vec![
            format!(r#"{{"query":"{}"}}"#, "\u{130}".repeat(128)),
            format!(r#"{{"query":{}}}"#, text(LARGE)),
            format!(r#"{{"query":"a","from":{}}}"#, text(LARGE)),
        ],
    }
}

#[test]
fn the_worst_call_of_every_tool_is_bounded() {
    let meter = CostMeter::new();
    // Sessions with the largest declarations, so that comparing them costs most.
    for at in 0..30 {
        let features: Vec<_> = (0..3500).map(|feature| format!("feature-{feature}")).collect();
        let versions: Vec<_> = (0..100).map(|patch| format!("1.0.{patch}")).collect();
        let capabilities =
            json!({"supported_protocols": {"chat": versions, "note": ["1.0.0"]}, "supported_features": features});
        let declared = json!({"name": format!("agent-{at}"), "capabilities": capabilities});
        meter.broker.client().registered_with(&declared);
    }
    let tools = meter.alice.request("tools/list", json!({})).unwrap();
    for tool in tools["tools"].as_array().unwrap() {
        let tool = tool["name"].as_str().unwrap();
        for (at, arguments) in worst_arguments(tool).iter().enumerate() {
            let (took, answer) = meter.time_of(tool, arguments);
            meter.assert_bounded(&format!("{tool}, number {at},"), took, &answer);
        }
    }
    // The connection is still usable.
    meter.alice.calls("heartbeat", json!({}));
}

/// Bytes that a method other than `tools/call` may read.
const PARAMS_LEN: usize = 500_000;
/// Makes a request one of 2026-07-28.
const MODERN: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"a test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

/// The most expensive requests of each method in this many bytes. A unit test beside the dispatcher compares the list with
/// the methods that exist.
fn worst_params(len: usize) -> Vec<(&'static str, String)> {
    let words = list("\"w\"", len);
    vec![
        ("ping", format!(r#"{{"x":{words}}}"#)),
        ("initialize", format!(r#"{{"protocolVersion":{}}}"#, text(len))),
        ("tools/list", format!(r#"{{"cursor":{words}}}"#)),
        ("tools/call", format!(r#"{{"name":{},"arguments":{{}}}}"#, text(len))),
        (
            "tools/call",
            format!(r#"{{"name":"none","arguments":{{"x":{words}}}}}"#),
        ),
        (
            "tools/call",
            format!(r#"{{"name":"heartbeat","_meta":{{"x":{words}}}}}"#),
        ),
        ("resources/list", format!(r#"{{"cursor":{words}}}"#)),
        ("resources/templates/list", format!(r#"{{"cursor":{words}}}"#)),
        ("resources/read", format!(r#"{{"uri":{}}}"#, text(len))),
        ("resources/subscribe", format!(r#"{{"uri":{}}}"#, text(len))),
        ("resources/unsubscribe", format!(r#"{{"uri":{}}}"#, text(len))),
        ("prompts/list", format!(r#"{{"cursor":{words}}}"#)),
        (
            "prompts/get",
            format!(r#"{{"name":"join","arguments":{{"name":{}}}}}"#, text(len)),
        ),
        (
            "completion/complete",
            format!(
                r#"{{"ref":{{"type":"ref/prompt","name":"hand_over"}},"argument":{{"name":"to","value":"a"}},"context":{{"arguments":{{"x":{words}}}}}}}"#
            ),
        ),
        ("logging/setLevel", format!(r#"{{"level":{}}}"#, text(len))),
        ("tasks/get", format!(r#"{{"taskId":{}}}"#, text(len))),
        // Methods of 2026-07-28 only.
        ("server/discover", format!(r#"{{{MODERN},"x":{words}}}"#)),
        ("tasks/get", format!(r#"{{{MODERN},"taskId":{}}}"#, text(len))),
        (
            "tasks/update",
            format!(r#"{{{MODERN},"taskId":"none","inputResponses":{words}}}"#),
        ),
        ("tasks/cancel", format!(r#"{{{MODERN},"taskId":{}}}"#, text(len))),
        (
            "subscriptions/listen",
            format!(r#"{{{MODERN},"notifications":{{"resourceSubscriptions":{words}}}}}"#),
        ),
        ("none", format!(r#"{{"x":{words}}}"#)),
        ("notifications/cancelled", format!(r#"{{"requestId":{}}}"#, text(len))),
        (
            "notifications/dev.mcp-broker/ack",
            format!(
                r#"{{"message_ids":{}}}"#,
                list("\"01890000-0000-7000-8000-000000000000\"", len)
            ),
        ),
    ]
}

#[test]
fn the_worst_request_of_every_method_is_bounded() {
    let meter = CostMeter::new();
    let sizes = [LARGE, PARAMS_LEN];
    for (at, (method, params)) in sizes.into_iter().flat_map(worst_params).enumerate() {
        let wire = &meter.alice.wire;
        let (took, answer) = meter.time(|| {
            if method.starts_with("notifications/") {
                wire.sends_text(&format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#));
                return Value::Null;
            }
            let id = json!(format!("worst {method} {at}"));
            wire.sends_text(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
            ));
            // A subscription is acknowledged first and answered at its end.
            wire.awaits_frame(&format!("an answer to {id}"), |frame| {
                frame["id"] == id || frame["method"] == "notifications/subscriptions/acknowledged"
            })
        });
        meter.assert_bounded(method, took, &answer);
    }
}

/// What is expensive, a schema, and its most expensive payload.
type Case = (&'static str, Value, String);

fn hostile_payloads() -> Vec<Case> {
    let a = |schema: Value| json!({"properties": {"a": schema}});
    let given = |value: &str| format!(r#"{{"a":{value}}}"#);
    let colliding: Vec<_> = (0..4_000)
        .map(|at| format!("[{}[]]", "[],".repeat(at % 64) + &"[[]],".repeat(at / 64)))
        .collect();
    let expressions: Map<String, Value> = (0..100).map(|at| (format!("[ab]*a[ab]{{{at}}}c"), json!({}))).collect();
    let members: Vec<_> = (0..300_000).map(|at| format!("\"ab{at}\":0")).collect();
    let divided = json!({"allOf": vec![json!({"multipleOf": 0.01}); 40]});
    let old =
        |schema: Value| json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": schema}});
    vec![
        (
            "expression",
            a(json!({"pattern": "[ab]*a[ab]{2500}c"})),
            given(&format!("\"{}\"", "ab".repeat(2_000_000))),
        ),
        (
            "expressions",
            json!({"patternProperties": expressions, "additionalProperties": false}),
            format!("{{{}}}", members.join(",")),
        ),
        (
            "names",
            json!({"propertyNames": {"pattern": "[ab]*a[ab]{500}c"}}),
            format!("{{{}}}", members.join(",")),
        ),
        ("division", a(json!({"items": divided})), given(&list("1e300", 100_000))),
        (
            "uniqueness",
            a(json!({"uniqueItems": true})),
            given(&format!("[{}]", colliding.join(","))),
        ),
        (
            "choices",
            a(json!({"items": {"enum": (0..4000).collect::<Vec<_>>()}})),
            given(&list("3999", LARGE)),
        ),
        (
            "choices of objects",
            a(json!({"items": {"enum": (0..1000).map(|at| json!({"x": at})).collect::<Vec<_>>()}})),
            given(&list(r#"{"x":999}"#, LARGE)),
        ),
        (
            "alternatives",
            a(json!({"items": {"oneOf": vec![json!({"type": "integer"}); 100]}})),
            given(&list("1", LARGE)),
        ),
        (
            "values",
            a(json!({"not": {"type": "string"}})),
            given(&list(r#"{"":0}"#, LARGE)),
        ),
        (
            "JSON in text",
            old(json!({"contentMediaType": "application/json"})),
            given(&text(10).replace('x', "[[],[]],")),
        ),
        (
            "JSON in a long text",
            old(json!({"contentMediaType": "application/json"})),
            given(&format!("\"[{}[]]\"", "[],".repeat(LARGE / 3))),
        ),
        (
            "format",
            old(json!({"format": "regex"})),
            given(&format!("\"{}\"", "(a".repeat(LARGE / 2))),
        ),
    ]
}

#[test]
fn a_hostile_schema_and_its_worst_payload_cost_no_more_than_a_large_message() {
    let meter = CostMeter::new();
    for (at, (what, schema, payload)) in hostile_payloads().into_iter().enumerate() {
        let name = format!("hostile-{at}");
        meter.register(&name, &schema);
        let (took, answer) = meter.time_of("send_message", &message(&name, &payload));
        meter.assert_bounded(what, took, &answer);
    }
}

#[test]
fn ordinary_schemas_take_large_payloads() {
    let meter = CostMeter::new();
    let large = format!(r#"{{"text":"{}"}}"#, "x".repeat(LARGE));
    meter.register("plain", &json!({"properties": {"text": {"type": "string"}}}));
    let either = json!({"properties": {"text": {"anyOf": [{"type": "string"}, {"type": "null"}]}}, "$defs": {"x": {}}});
    meter.register("either", &either);
    meter.register("word", &json!({"properties": {"text": {"pattern": "^[a-z]*$"}}}));
    for (protocol, payload) in [
        ("plain", large.clone()),
        ("either", large),
        ("word", format!(r#"{{"text":"{}"}}"#, "x".repeat(1_000_000))),
        ("plain", format!(r#"{{"more":{}}}"#, list("0.25", 400_000))),
    ] {
        let (_, answer) = meter.time_of("send_message", &message(protocol, &payload));
        assert_eq!(answer["isError"], false, "{protocol}: {answer}");
    }
}

#[test]
fn a_payload_that_costs_too_much_is_refused_with_advice() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let register = |schema: Value| {
        alice.calls(
            "register_protocol",
            json!({"name": "dear", "version": "1.0.0", "schema": schema}),
        );
    };
    register(json!({"properties": {"a": {"pattern": "[ab]*a[ab]{2500}c"}, "b": {"multipleOf": 0.01}}}));
    let sends = |payload: Value| {
        alice
            .sends("")
            .with_argument("protocol_name", "dear")
            .with_argument("payload", payload)
    };
    sends(json!({"a": "abc", "b": 0.25})).fails_as("payload_invalid", &alice);
    sends(json!({"b": 1e20})).to(&alice);
    for (payload, reason) in [
        (json!({"a": "ab".repeat(100_000)}), "shorter strings"),
        (json!({"b": 1e300}), "multipleOf"),
    ] {
        let error = sends(payload).fails_as("payload_invalid", &alice);
        assert!(
            error["detail"]["failures"][0]["reason"]
                .as_str()
                .unwrap()
                .contains(reason),
            "{error}"
        );
    }
    for divisor in [json!(1e-300), json!(1e300), json!(0.000_000_000_1)] {
        let schema = json!({"properties": {"a": {"multipleOf": divisor}}});
        let error = alice.is_refused_as(
            "invalid_schema",
            "register_protocol",
            json!({"name": "divides", "version": "1.0.0", "schema": schema}),
        );
        assert!(error["message"].as_str().unwrap().contains("multipleOf"), "{error}");
    }
}

#[test]
fn a_schema_is_compiled_on_a_thread_that_serves_no_connection() {
    let broker = Broker::start();
    let alice = broker.agent("alice");
    let properties: Map<String, Value> = (0..120)
        .map(|at| {
            (
                format!("p{at}"),
                json!({"pattern": format!("[a-f]*a[a-f]{{{}}}c", 150 + at)}),
            )
        })
        .collect();
    let protocol = json!({"name": "slow", "version": "1.0.0", "schema": {"properties": properties}});
    let before = broker.processor_times();
    alice.calls("register_protocol", protocol);
    let after = broker.processor_times();
    let of = |times: &[(String, u64)], compiles: bool| -> u64 {
        let fitting = times.iter().filter(|(name, _)| name.starts_with("tokio-r") == compiles);
        fitting.map(|(_, time)| time).sum()
    };
    let [serving, compiling] = [false, true].map(|compiles| of(&after, compiles) - of(&before, compiles));
    assert!(
        compiling > 4 * serving,
        "{compiling} ns where schemas are compiled, {serving} ns elsewhere"
    );
}

#[test]
fn many_expensive_messages_of_one_connection_leave_time_for_others() {
    let broker = Broker::start();
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    // Each value is checked 2048 times.
    let mut definitions = json!({"d11": {"type": "integer"}});
    for at in 0..11 {
        let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
        definitions[format!("d{at}")] = json!({"allOf": [next, next]});
    }
    let schema = json!({"properties": {"a": {"items": {"$ref": "#/$defs/d0"}}}, "$defs": definitions});
    let protocol = json!({"name": "dear", "version": "1.0.0", "schema": schema});
    alice.calls("register_protocol", protocol);
    let call = |id: usize| {
        let arguments = message("dear", &format!(r#"{{"a":{}}}"#, list("1", 76)));
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"send_message","arguments":{arguments}}}}}"#
        )
    };
    let ids: Vec<usize> = (10_000..10_020).collect();
    // All of them arrive in one read.
    let frames: Vec<Value> = ids.iter().map(|&id| serde_json::from_str(&call(id)).unwrap()).collect();
    alice.wire.sends_together(&frames);
    alice.wire.answer_to(&json!(ids[0])).unwrap();
    bob.syncs();
    assert!(
        !alice.wire.has_received(&json!(ids[19])),
        "all messages were checked before bob was served"
    );
    for id in &ids[1..] {
        alice.wire.answer_to(&json!(id)).unwrap();
    }
}

#[test]
fn a_matrix_has_pages_and_compares_each_pair_once() {
    let broker = Broker::start();
    let features: Vec<_> = (0..3000).map(|at| format!("feature-{at}")).collect();
    let agents: Vec<Agent> = (0..8)
        .map(|at| {
            let declared = json!({"name": format!("agent-{at}"), "capabilities": {"supported_features": features}});
            broker.client().registered_with(&declared)
        })
        .collect();
    let ids: Vec<_> = agents.iter().map(|agent| agent.session.clone()).collect();
    let mut twice = ids.clone();
    twice.extend(agents.iter().map(|agent| agent.name.clone()));
    let (mut seen, mut pages) = (Vec::new(), 0);
    let mut arguments = json!({"session_ids": twice});
    loop {
        let page = agents[0].calls("compatibility_matrix", arguments.clone());
        pages += 1;
        assert!(page.to_string().len() < 600_000, "{}", page.to_string().len());
        for row in page["rows"].as_array().unwrap() {
            assert_eq!(row["common_features"].as_array().unwrap().len(), features.len());
            seen.push((row["session_a"].clone(), row["session_b"].clone()));
        }
        match page.get("next_cursor") {
            Some(cursor) => arguments["cursor"] = cursor.clone(),
            None => break,
        }
    }
    let expected = (0..ids.len()).flat_map(|a| (a + 1..ids.len()).map(move |b| (a, b)));
    let expected: Vec<_> = expected.map(|(a, b)| (json!(ids[a]), json!(ids[b]))).collect();
    assert_eq!(seen, expected);
    assert!(pages > 1);
    let error = agents[0].is_refused_as(
        "invalid_argument",
        "compatibility_matrix",
        json!({"session_ids": [ids[1], ids[2]], "cursor": format!("{}_{}", ids[0], ids[1])}),
    );
    assert_eq!(error["detail"]["argument"], "cursor");
}

#[test]
fn each_argument_is_bounded() {
    let broker = Broker::start();
    let (alice, _bob) = (broker.agent("alice"), broker.agent("bob"));
    let required = |len: usize| {
        let required: Vec<_> = (0..len).map(|_| json!({"name": "chat", "version": "^1"})).collect();
        json!({"target_session_id": "bob", "required_protocols": required})
    };
    let negotiation = alice.calls("negotiate_capabilities", required(256));
    assert_eq!(
        negotiation["incompatibilities"].as_array().unwrap().len(),
        1,
        "the incompatibility is reported once"
    );
    let versions: Vec<_> = (0..101).map(|patch| format!("1.0.{patch}")).collect();
    for (tool, arguments, field) in [
        ("negotiate_capabilities", required(257), "required_protocols"),
        (
            "register_session",
            json!({"capabilities": {"supported_protocols": {"chat": versions}}}),
            "capabilities",
        ),
        ("discover_protocols", json!({"tags": vec!["word"; 20_000]}), "tags"),
        ("list_sessions", json!({"feature": "x".repeat(70_000)}), "feature"),
    ] {
        let error = alice.is_refused_as("invalid_argument", tool, arguments);
        assert_eq!(error["detail"]["argument"], field, "{tool}");
    }
}
