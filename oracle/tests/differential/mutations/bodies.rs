//! Mutations of the body, as JSON and as a JSON-RPC message.

use super::{
    CAPABILITIES, INFO, LOG_LEVEL, Mutation,
    Step::{Body, Do, Header, Set, Unset},
    VERSION, deep, has_uri, is_call, is_completion, is_initialize, is_list, is_listen, is_prompt, is_set_level,
    is_without_modern_meta, large, mutation, named, rewritten, with_member, with_method_and_name, with_modern_meta,
    wrapped,
};

pub const MUTATIONS: &[Mutation] = &[
    // Bodies that are not a message
    mutation("no body", &[Body(b"")]),
    mutation("a body of words", &[Body(b"not JSON")]),
    mutation(
        "a body cut short",
        &[Do(|it| rewritten(it, |body| body.truncate(body.len() - 1)))],
    ),
    mutation("a body with a tail", &[Do(|it| rewritten(it, |body| body.push(b'x')))]),
    mutation(
        "two messages in a body",
        &[Do(|it| rewritten(it, |body| body.extend(body.clone())))],
    ),
    mutation(
        "two lines in a body",
        &[Do(|it| {
            rewritten(it, |body| {
                let again = body.clone();
                body.push(b'\n');
                body.extend(again);
            })
        })],
    ),
    mutation(
        "a body with space around",
        &[Do(|it| {
            rewritten(it, |body| {
                body.splice(..0, *b" \r\n\t");
                body.extend(b"\r\n ");
            })
        })],
    ),
    mutation(
        "a body with a byte order mark",
        &[Do(|it| {
            rewritten(it, |body| {
                body.splice(..0, *b"\xef\xbb\xbf");
            })
        })],
    ),
    mutation(
        "a body that is no UTF-8",
        &[Do(|it| with_member(it, b"\"x\":\"\xff\","))],
    ),
    mutation(
        "a body with a lone surrogate",
        &[Do(|it| with_member(it, b"\"x\":\"\\ud800\","))],
    ),
    mutation("a body with NaN", &[Do(|it| with_member(it, b"\"x\":NaN,"))]),
    mutation("a body with a comment", &[Do(|it| with_member(it, b"/* x */"))]),
    mutation(
        "a body with a comma too many",
        &[Do(|it| {
            rewritten(it, |body| {
                let end = body.len() - 1;
                body.insert(end, b',');
            })
        })],
    ),
    mutation(
        "a body with a raw line break in a string",
        &[Do(|it| with_member(it, b"\"x\":\"a\nb\","))],
    ),
    mutation(
        "a body with a huge number",
        &[Do(|it| with_member(it, b"\"x\":1e999,"))],
    ),
    mutation("a body 100 deep", &[Do(|it| deep(it, 100))]),
    mutation("a body 200 deep", &[Do(|it| deep(it, 200))]),
    mutation("a body 100,000 deep", &[Do(|it| deep(it, 100_000))]),
    mutation("a body of 3 MB", &[Do(is_call), Do(|it| large(it, 3_000_000))]),
    mutation("a body of 30 MB", &[Do(is_call), Do(|it| large(it, 30_000_000))]),
    mutation("jsonrpc twice", &[Do(|it| with_member(it, b"\"jsonrpc\":\"2.0\","))]),
    mutation(
        "method twice, differing",
        &[Do(|it| with_member(it, b"\"method\":\"ping\","))],
    ),
    mutation("id twice, differing", &[Do(|it| with_member(it, b"\"id\":8,"))]),
    mutation("an empty array", &[Body(b"[]")]),
    mutation("an array of it", &[Do(|it| wrapped(it, 1))]),
    mutation("an array of it twice", &[Do(|it| wrapped(it, 2))]),
    mutation("an array of numbers", &[Body(b"[1,2]")]),
    mutation("an empty object", &[Body(b"{}")]),
    mutation("a string", &[Body(b"\"x\"")]),
    mutation("a number", &[Body(b"5")]),
    mutation("null", &[Body(b"null")]),
    // JSON-RPC
    mutation("no jsonrpc", &[Unset("/jsonrpc")]),
    mutation("jsonrpc 1.0", &[Set("/jsonrpc", r#""1.0""#)]),
    mutation("jsonrpc a number", &[Set("/jsonrpc", "2.0")]),
    mutation("jsonrpc null", &[Set("/jsonrpc", "null")]),
    mutation("no id", &[Unset("/id")]),
    mutation("id null", &[Set("/id", "null")]),
    mutation("id a string", &[Set("/id", r#""abc""#)]),
    mutation("id an empty string", &[Set("/id", r#""""#)]),
    mutation("id zero", &[Set("/id", "0")]),
    mutation("id negative", &[Set("/id", "-1")]),
    mutation("id of 64 bits", &[Set("/id", "9223372036854775807")]),
    mutation("id of more than 64 bits", &[Set("/id", "18446744073709551615")]),
    mutation("id whole with a point", &[Set("/id", "7.0")]),
    mutation("id a fraction", &[Set("/id", "1.5")]),
    mutation("id a boolean", &[Set("/id", "true")]),
    mutation("id an object", &[Set("/id", "{}")]),
    mutation("id an array", &[Set("/id", "[1]")]),
    mutation("no method", &[Unset("/method")]),
    mutation("method null", &[Set("/method", "null")]),
    mutation("method a number", &[Set("/method", "5")]),
    mutation("method empty", &[Set("/method", r#""""#)]),
    mutation("no params", &[Unset("/params")]),
    mutation("params null", &[Set("/params", "null")]),
    mutation("params an array", &[Set("/params", "[]")]),
    mutation("params a string", &[Set("/params", r#""x""#)]),
    mutation("an unknown member", &[Set("/unknown", "1")]),
    mutation("a result as well", &[Set("/result", "{}")]),
    mutation("an error as well", &[Set("/error", r#"{"code": 1, "message": "x"}"#)]),
    // _meta
    mutation("no _meta", &[Unset("/params/_meta")]),
    mutation("_meta null", &[Set("/params/_meta", "null")]),
    mutation("_meta a string", &[Set("/params/_meta", r#""x""#)]),
    mutation("_meta an array", &[Set("/params/_meta", "[]")]),
    mutation("_meta empty", &[Set("/params/_meta", "{}")]),
    mutation("no version in _meta", &[Unset(VERSION)]),
    mutation("version null in _meta", &[Set(VERSION, "null")]),
    mutation("version a number in _meta", &[Set(VERSION, "20260728")]),
    mutation("version empty in _meta", &[Set(VERSION, r#""""#)]),
    mutation("version 1900-01-01 in _meta", &[Set(VERSION, r#""1900-01-01""#)]),
    mutation("version 2025-11-25 in _meta", &[Set(VERSION, r#""2025-11-25""#)]),
    mutation("version 2026-07-28 in _meta", &[Set(VERSION, r#""2026-07-28""#)]),
    mutation(
        "version 1900-01-01",
        &[
            Header("MCP-Protocol-Version", "1900-01-01"),
            Set(VERSION, r#""1900-01-01""#),
        ],
    ),
    mutation(
        "version 2099-01-01",
        &[
            Header("MCP-Protocol-Version", "2099-01-01"),
            Set(VERSION, r#""2099-01-01""#),
        ],
    ),
    mutation(
        "version 2025-11-25",
        &[
            Header("MCP-Protocol-Version", "2025-11-25"),
            Set(VERSION, r#""2025-11-25""#),
        ],
    ),
    mutation(
        "version empty",
        &[Header("MCP-Protocol-Version", ""), Set(VERSION, r#""""#)],
    ),
    mutation(
        "version 1900-01-01, no capabilities",
        &[
            Header("MCP-Protocol-Version", "1900-01-01"),
            Set(VERSION, r#""1900-01-01""#),
            Unset(CAPABILITIES),
        ],
    ),
    mutation("no capabilities", &[Unset(CAPABILITIES)]),
    mutation("capabilities null", &[Set(CAPABILITIES, "null")]),
    mutation("capabilities an array", &[Set(CAPABILITIES, "[]")]),
    mutation(
        "capabilities of wrong types",
        &[Set(CAPABILITIES, r#"{"sampling": 5}"#)],
    ),
    mutation(
        "capabilities unknown",
        &[Set(CAPABILITIES, r#"{"x": {}, "experimental": {"y": {}}}"#)],
    ),
    mutation(
        "tasks declared",
        &[Set(
            CAPABILITIES,
            r#"{"extensions": {"io.modelcontextprotocol/tasks": {}}}"#,
        )],
    ),
    mutation("no client info", &[Unset(INFO)]),
    mutation("client info null", &[Set(INFO, "null")]),
    mutation("client info a string", &[Set(INFO, r#""x""#)]),
    mutation("client info empty", &[Set(INFO, "{}")]),
    mutation("a log level", &[Set(LOG_LEVEL, r#""info""#)]),
    mutation("an unknown log level", &[Set(LOG_LEVEL, r#""loud""#)]),
    mutation("a progress token", &[Set("/params/_meta/progressToken", r#""t""#)]),
    mutation(
        "a progress token of no type",
        &[Set("/params/_meta/progressToken", "{}")],
    ),
    mutation("an unknown key in _meta", &[Set("/params/_meta/x", "1")]),
    // Params
    mutation("no name", &[Do(is_call), Unset("/params/name")]),
    mutation("name a number", &[Do(is_call), Set("/params/name", "5")]),
    mutation("name empty", &[Do(is_call), Set("/params/name", r#""""#)]),
    mutation("an unknown tool", &[Do(is_call), Do(|it| named(it, "unknown"))]),
    mutation(
        "an unknown tool beyond ASCII",
        &[Do(is_call), Do(|it| named(it, "w\u{f6}rld"))],
    ),
    mutation("no arguments", &[Unset("/params/arguments")]),
    mutation("arguments null", &[Do(is_call), Set("/params/arguments", "null")]),
    mutation("arguments an array", &[Do(is_call), Set("/params/arguments", "[]")]),
    mutation("arguments a string", &[Do(is_call), Set("/params/arguments", r#""x""#)]),
    mutation("a task asked for", &[Do(is_call), Set("/params/task", r#"{"ttl": 1}"#)]),
    mutation("input responses", &[Do(is_call), Set("/params/inputResponses", "{}")]),
    mutation("no taskId", &[Unset("/params/taskId")]),
    mutation("an unknown prompt", &[Do(is_prompt), Do(|it| named(it, "unknown"))]),
    mutation(
        "prompt arguments of wrong types",
        &[Do(is_prompt), Set("/params/arguments", r#"{"name": 5}"#)],
    ),
    mutation(
        "an unknown argument of a prompt",
        &[Do(is_prompt), Set("/params/arguments", r#"{"x": "y"}"#)],
    ),
    mutation("no ref", &[Unset("/params/ref")]),
    mutation("a ref of an unknown type", &[Set("/params/ref/type", r#""ref/tool""#)]),
    mutation(
        "an argument that is no object",
        &[Do(is_completion), Set("/params/argument", "5")],
    ),
    mutation("no level", &[Unset("/params/level")]),
    mutation(
        "an unknown level",
        &[Do(is_set_level), Set("/params/level", r#""loud""#)],
    ),
    mutation("an unknown param", &[Set("/params/unknown", "1")]),
    mutation("no uri", &[Unset("/params/uri")]),
    mutation("uri a number", &[Do(has_uri), Set("/params/uri", "5")]),
    mutation("an unknown uri", &[Do(has_uri), Do(|it| named(it, "broker://unknown"))]),
    mutation("a cursor", &[Do(is_list), Set("/params/cursor", r#""x""#)]),
    mutation("a cursor empty", &[Do(is_list), Set("/params/cursor", r#""""#)]),
    mutation("a cursor null", &[Do(is_list), Set("/params/cursor", "null")]),
    mutation("a cursor a number", &[Do(is_list), Set("/params/cursor", "5")]),
    mutation("no notifications", &[Unset("/params/notifications")]),
    mutation(
        "notifications an array",
        &[Do(is_listen), Set("/params/notifications", "[]")],
    ),
    mutation(
        "notifications empty",
        &[Do(is_listen), Set("/params/notifications", "{}")],
    ),
    mutation(
        "notifications of wrong types",
        &[Do(is_listen), Set("/params/notifications/toolsListChanged", "5")],
    ),
    mutation(
        "notifications of unknown things",
        &[
            Do(is_listen),
            Set(
                "/params/notifications",
                r#"{"x": true, "resourceSubscriptions": ["broker://unknown"]}"#,
            ),
        ],
    ),
    mutation("no protocolVersion", &[Unset("/params/protocolVersion")]),
    mutation(
        "protocolVersion a number",
        &[Do(is_initialize), Set("/params/protocolVersion", "5")],
    ),
    mutation(
        "protocolVersion null",
        &[Do(is_initialize), Set("/params/protocolVersion", "null")],
    ),
    mutation(
        "no client capabilities",
        &[Do(is_initialize), Unset("/params/capabilities")],
    ),
    mutation(
        "client capabilities an array",
        &[Do(is_initialize), Set("/params/capabilities", "[]")],
    ),
    mutation("no clientInfo", &[Do(is_initialize), Unset("/params/clientInfo")]),
    mutation(
        "clientInfo without a version",
        &[Do(is_initialize), Unset("/params/clientInfo/version")],
    ),
    mutation("with modern _meta", &[Do(is_initialize), Do(with_modern_meta)]),
    mutation(
        "in the words of 2026-07-28",
        &[
            Do(is_without_modern_meta),
            Do(with_modern_meta),
            Header("MCP-Protocol-Version", "2026-07-28"),
            Do(with_method_and_name),
        ],
    ),
];
