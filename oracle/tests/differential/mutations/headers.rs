//! Mutations of the HTTP method and headers.

use super::{
    Mutation,
    Step::{Also, Body, Do, Header, Method, Without},
    encoded, encoded_otherwise, in_capitals, in_chunks, mutation, names, padded, repeated,
};
use crate::requests::ORIGIN;

pub const MUTATIONS: &[Mutation] = &[
    // Accept
    mutation("no Accept", &[Without("Accept")]),
    mutation("Accept JSON only", &[Header("Accept", "application/json")]),
    mutation("Accept events only", &[Header("Accept", "text/event-stream")]),
    mutation(
        "Accept events first",
        &[Header("Accept", "text/event-stream, application/json")],
    ),
    mutation("Accept anything", &[Header("Accept", "*/*")]),
    mutation("Accept ranges", &[Header("Accept", "application/*, text/*")]),
    mutation("Accept HTML", &[Header("Accept", "text/html")]),
    mutation("Accept nothing", &[Header("Accept", "")]),
    mutation(
        "Accept with weights",
        &[Header("Accept", "application/json;q=0.9, text/event-stream;q=0.1")],
    ),
    mutation(
        "Accept with a zero",
        &[Header("Accept", "application/json;q=0, text/event-stream")],
    ),
    mutation(
        "Accept in capitals",
        &[Header("Accept", "Application/JSON, Text/Event-Stream")],
    ),
    mutation(
        "Accept longer names",
        &[Header("Accept", "application/jsonx, text/event-streamx")],
    ),
    mutation(
        "Accept in two lines",
        &[
            Header("Accept", "application/json"),
            Also("Accept", "text/event-stream"),
        ],
    ),
    // Content-Type
    mutation("no Content-Type", &[Without("Content-Type")]),
    mutation(
        "Content-Type with a charset",
        &[Header("Content-Type", "application/json; charset=utf-8")],
    ),
    mutation(
        "Content-Type in capitals",
        &[Header("Content-Type", "Application/JSON")],
    ),
    mutation("Content-Type text", &[Header("Content-Type", "text/plain")]),
    mutation(
        "Content-Type of a longer name",
        &[Header("Content-Type", "application/jsonx")],
    ),
    mutation("Content-Type twice", &[Also("Content-Type", "text/plain")]),
    // MCP-Protocol-Version
    mutation("no version header", &[Without("MCP-Protocol-Version")]),
    mutation(
        "version header 1900-01-01",
        &[Header("MCP-Protocol-Version", "1900-01-01")],
    ),
    mutation(
        "version header 2099-01-01",
        &[Header("MCP-Protocol-Version", "2099-01-01")],
    ),
    mutation(
        "version header 2026-07-28",
        &[Header("MCP-Protocol-Version", "2026-07-28")],
    ),
    mutation(
        "version header 2025-11-25",
        &[Header("MCP-Protocol-Version", "2025-11-25")],
    ),
    mutation(
        "version header 2025-06-18",
        &[Header("MCP-Protocol-Version", "2025-06-18")],
    ),
    mutation(
        "version header 2024-11-05",
        &[Header("MCP-Protocol-Version", "2024-11-05")],
    ),
    mutation("version header empty", &[Header("MCP-Protocol-Version", "")]),
    mutation(
        "version header no text",
        &[Header("MCP-Protocol-Version", "2026-07-2\u{f8}")],
    ),
    mutation("version header twice", &[Do(|it| repeated(it, "MCP-Protocol-Version"))]),
    mutation(
        "version header twice, differing",
        &[Also("MCP-Protocol-Version", "1900-01-01")],
    ),
    // Mcp-Method
    mutation("no Mcp-Method", &[Without("Mcp-Method")]),
    mutation("another Mcp-Method", &[Header("Mcp-Method", "another")]),
    mutation("Mcp-Method in capitals", &[Do(|it| in_capitals(it, "Mcp-Method"))]),
    mutation("Mcp-Method padded", &[Do(|it| padded(it, "Mcp-Method"))]),
    mutation("Mcp-Method in base64", &[Do(|it| encoded(it, "Mcp-Method"))]),
    mutation("Mcp-Method empty", &[Header("Mcp-Method", "")]),
    mutation("Mcp-Method no text", &[Header("Mcp-Method", "\u{f8}")]),
    mutation("Mcp-Method twice", &[Do(|it| repeated(it, "Mcp-Method"))]),
    mutation("Mcp-Method twice, differing", &[Also("Mcp-Method", "another")]),
    // Mcp-Name
    mutation("no Mcp-Name", &[Without("Mcp-Name")]),
    mutation("another Mcp-Name", &[Header("Mcp-Name", "another")]),
    mutation("Mcp-Name in capitals", &[Do(|it| in_capitals(it, "Mcp-Name"))]),
    mutation("Mcp-Name padded", &[Do(|it| padded(it, "Mcp-Name"))]),
    mutation("Mcp-Name in base64", &[Do(|it| encoded(it, "Mcp-Name"))]),
    mutation(
        "Mcp-Name in base64, another",
        &[Header("Mcp-Name", "=?base64?YW5vdGhlcg==?=")],
    ),
    mutation("Mcp-Name in broken base64", &[Header("Mcp-Name", "=?base64?%%%?=")]),
    mutation(
        "Mcp-Name in unpadded base64",
        &[Do(|it| encoded_otherwise(it, "=", ""))],
    ),
    mutation(
        "Mcp-Name in BASE64",
        &[Do(|it| encoded_otherwise(it, "base64", "BASE64"))],
    ),
    mutation(
        "Mcp-Name in base64 of no UTF-8",
        &[Header("Mcp-Name", "=?base64?/w==?=")],
    ),
    mutation("Mcp-Name empty", &[Header("Mcp-Name", "")]),
    mutation("Mcp-Name no text", &[Header("Mcp-Name", "\u{f8}")]),
    mutation("Mcp-Name twice", &[Do(|it| repeated(it, "Mcp-Name"))]),
    mutation("Mcp-Name twice, differing", &[Also("Mcp-Name", "another")]),
    mutation("an unknown Mcp-Param", &[Also("Mcp-Param-Unknown", "x")]),
    // Sessions
    mutation("no session", &[Without("Mcp-Session-Id")]),
    mutation(
        "an unknown session",
        &[Header("Mcp-Session-Id", "00000000-0000-4000-8000-000000000000")],
    ),
    mutation("a session of no shape", &[Header("Mcp-Session-Id", "a b/c")]),
    mutation("an empty session", &[Header("Mcp-Session-Id", "")]),
    mutation("a session that is no text", &[Header("Mcp-Session-Id", "\u{f8}")]),
    mutation(
        "two sessions",
        &[Also("Mcp-Session-Id", "00000000-0000-4000-8000-000000000000")],
    ),
    mutation("the last event", &[Header("Last-Event-ID", "0")]),
    // Origin and Host
    mutation("an Origin elsewhere", &[Header("Origin", "http://evil.example")]),
    mutation("an Origin here", &[Header("Origin", "http://127.0.0.1:1")]),
    mutation("its own Origin", &[Header("Origin", ORIGIN)]),
    mutation("an Origin called localhost", &[Header("Origin", "http://localhost")]),
    mutation("an Origin null", &[Header("Origin", "null")]),
    mutation("an Origin of no shape", &[Header("Origin", "not an origin")]),
    mutation("an Origin empty", &[Header("Origin", "")]),
    mutation(
        "two Origins",
        &[
            Header("Origin", "http://127.0.0.1:1"),
            Also("Origin", "http://evil.example"),
        ],
    ),
    mutation("a Host elsewhere", &[Header("Host", "evil.example")]),
    mutation("a Host called localhost", &[Header("Host", "localhost")]),
    mutation("a Host of another port", &[Header("Host", "127.0.0.1:1")]),
    mutation("a Host of no shape", &[Header("Host", "a b")]),
    mutation("a Host empty", &[Header("Host", "")]),
    // HTTP
    mutation(
        "header names in small letters",
        &[Do(|it| names(it, str::to_ascii_lowercase))],
    ),
    mutation(
        "header names in capitals",
        &[Do(|it| names(it, str::to_ascii_uppercase))],
    ),
    mutation("in chunks", &[Do(in_chunks)]),
    mutation("expecting 100", &[Header("Expect", "100-continue")]),
    mutation("closing", &[Header("Connection", "close")]),
    mutation("with an unknown header", &[Header("X-Unknown", "x")]),
    mutation("by GET", &[Method("GET"), Body(b"")]),
    mutation("by DELETE", &[Method("DELETE"), Body(b"")]),
    mutation("by PUT", &[Method("PUT")]),
    mutation("by PATCH", &[Method("PATCH")]),
    mutation("by OPTIONS", &[Method("OPTIONS"), Body(b"")]),
    mutation("by HEAD", &[Method("HEAD"), Body(b"")]),
    mutation("by post", &[Method("post")]),
];
