//! Where the broker and the SDK differ, and why.

/// Requests that the two answer differently.
pub struct Difference {
    /// Their names; here and in the answers `*` stands for anything.
    pub requests: &'static [&'static str],
    pub ours: &'static str,
    pub sdk: &'static str,
    /// Why ours is right, or as right as the other.
    pub why: &'static str,
    /// Where the specification says so.
    pub section: &'static str,
}

/// What the same server answers without the mutation.
const SAME: &str = "=";

impl Difference {
    /// Whether these answers are the ones that it is about, each given with the one without the mutation.
    pub fn covers(&self, ours: (&str, &str), sdk: (&str, &str)) -> bool {
        let is = |pattern, (answer, base)| {
            if pattern == SAME {
                answer == base
            } else {
                matches_pattern(pattern, answer)
            }
        };
        is(self.ours, ours) && is(self.sdk, sdk)
    }
}

/// Whether a difference of these requests is known, whatever it is in them that makes it.
pub fn is_known(is_of: impl Fn(&str) -> bool, ours: (&str, &str), sdk: (&str, &str)) -> bool {
    let mut known = DIFFERENCES.iter().chain(DEFECTS);
    known.any(|it| it.covers(ours, sdk) && it.requests.iter().any(|pattern| is_of(pattern)))
}

/// Where the SDK is right and the broker is not. What is mended goes from this list.
pub const DEFECTS: &[Difference] = &[];

pub const DIFFERENCES: &[Difference] = &[
    // HTTP
    Difference {
        requests: &[
            "* | no Accept",
            "* | Accept JSON only",
            "* | Accept events only",
            "* | Accept anything",
            "* | Accept ranges",
            "* | Accept in capitals",
            "* | Accept in two lines",
        ],
        ours: SAME,
        sdk: "406 -",
        why: "A client must list both types, but no server must refuse one that does not, and it gets what it takes. Ranges, \
              capitals and several lines are its right. The SDK looks for two words in the first line.",
        section: "2026-07-28 Streamable HTTP, Sending Messages 2; RFC 9110, 5.2, 8.3.1, 12.5.1",
    },
    Difference {
        requests: &["* | Accept HTML", "* | Accept nothing"],
        ours: SAME,
        sdk: "406 -",
        why: "What has no body, or is refused anyway, needs no type.",
        section: "RFC 9110, 15.5.7",
    },
    Difference {
        requests: &["2025-* GET | Accept JSON only", "2025-* GET | no Accept"],
        ours: "405 error*",
        sdk: "406 -",
        why: "A GET gets events, or 405.",
        section: "2025-11-25 transports, Listening for Messages 3",
    },
    Difference {
        requests: &["modern * | Accept with a zero"],
        ours: SAME,
        sdk: "*, in a form that was not asked for",
        why: "The weight 0 means: not this.",
        section: "RFC 9110, 12.4.2",
    },
    Difference {
        requests: &["* | Accept longer names"],
        ours: "406 error*",
        sdk: "*",
        why: "application/jsonx is not application/json.",
        section: "RFC 9110, 8.3.1",
    },
    Difference {
        requests: &["* | Content-Type in capitals"],
        ours: SAME,
        sdk: "415 -",
        why: "The names of media types have no case.",
        section: "RFC 9110, 8.3.1",
    },
    Difference {
        requests: &["* | Content-Type of a longer name"],
        ours: "415 error*",
        sdk: "*",
        why: "application/jsonx is not application/json.",
        section: "RFC 9110, 8.3.1",
    },
    Difference {
        requests: &["* | an Origin here", "* | an Origin called localhost"],
        ours: "403 -",
        sdk: "*",
        why: "Another port is another origin. The SDK here lets in all of this machine, the broker only those that it is told of.",
        section: "2026-07-28 Streamable HTTP, Security & Endpoint 1",
    },
    Difference {
        requests: &["* | two Origins"],
        ours: "403 -",
        sdk: "*",
        why: "Which of the two is true cannot be known.",
        section: "2026-07-28 Streamable HTTP, Security & Endpoint 1",
    },
    Difference {
        requests: &["* | a Host empty", "* | a Host of no shape"],
        ours: "403 -",
        sdk: "400 -",
        why: "A Host that is none is none of those that are let in.",
        section: "2026-07-28 Streamable HTTP, Security & Endpoint 1",
    },
    Difference {
        requests: &["2025-* DELETE*", "2025-* | by DELETE"],
        ours: "204 -",
        sdk: "202 -",
        why: "The session is gone, and there is nothing to say.",
        section: "2025-11-25 transports, Session Management 5 names no status",
    },
    Difference {
        requests: &[
            "modern GET | no version header",
            "modern GET | version header 1900-01-01",
            "modern GET | version header 2024-11-05",
            "modern GET | version header 2025-06-18",
            "modern GET | version header 2025-11-25",
            "modern GET | version header 2099-01-01",
            "modern GET | version header empty",
            "modern GET | version header no text",
            "2025-* GET | no session",
            "initialize * | by GET",
        ],
        ours: "200 stream",
        sdk: "400 -",
        why: "A GET without a session opens the stream of 2024-11-05: its clients send the header of any version.",
        section: "2026-07-28 Streamable HTTP, Backward Compatibility, HTTP+SSE Transport",
    },
    // Versions
    Difference {
        requests: &[
            "modern * | version header twice",
            "modern * | version header twice, differing",
        ],
        ours: "400 error -32020",
        sdk: SAME,
        why: "A header given twice is malformed: others on the way may have read the other one.",
        section: "2026-07-28 Streamable HTTP, Server Validation",
    },
    Difference {
        requests: &[
            "initialize * | version header 1900-01-01",
            "initialize * | version header 2099-01-01",
            "initialize * | version header empty",
            "initialize * | version header no text",
            "initialize * | version header twice, differing",
        ],
        ours: SAME,
        sdk: "400 -",
        why: "The header is for the requests after initialize, which agrees on a version by its params.",
        section: "2025-11-25 transports, Protocol Version Header: subsequent requests",
    },
    Difference {
        requests: &["initialize * | version header 20*"],
        ours: SAME,
        sdk: "400 error -32600",
        why: "The header is for the requests after initialize, which agrees on a version by its params.",
        section: "2025-11-25 transports, Protocol Version Header: subsequent requests",
    },
    Difference {
        requests: &["* | version 2025-11-25"],
        ours: "400 error -32022 {requested supported}",
        sdk: "*",
        why: "That revision has no requests that stand for themselves, so it is not implemented in this form.",
        section: "2026-07-28 Streamable HTTP, Protocol Version Header",
    },
    Difference {
        requests: &[
            "modern *notification | *Mcp-Method*",
            "modern *notification | method empty",
            "2025-* | version header 2026-07-28",
        ],
        ours: "202 -",
        sdk: "400 error -32020",
        why: "What headers a notification needs is left open.",
        section: "2026-07-28 Streamable HTTP, Sending Messages, Note",
    },
    Difference {
        requests: &["2025-* | version header 2026-07-28"],
        ours: "202 -",
        sdk: "400 error -32600",
        why: "A response is for the session that it names: the modern revision has none.",
        section: "2025-11-25 transports, Sending Messages 4",
    },
    // Sessions
    Difference {
        requests: &["* | a session that is no text"],
        ours: "404 error -32600",
        sdk: "400 -",
        why: "It is a session that is not there, not a request without one.",
        section: "2025-11-25 transports, Session Management 3",
    },
    Difference {
        requests: &[
            "initialize * | a session that is no text",
            "2025-* initialize again | a session that is no text",
        ],
        ours: "404 error -32600",
        sdk: "200 result*, a session",
        why: "It is a session that is not there, not a request without one.",
        section: "2025-11-25 transports, Session Management 3",
    },
    Difference {
        requests: &["2025-* | two sessions"],
        ours: "400 error -32600",
        sdk: "*",
        why: "Which of the two is meant cannot be known; others on the way may have read the other one.",
        section: "2025-11-25 transports, Session Management 2: in the Mcp-Session-Id header",
    },
    Difference {
        requests: &["2025-* DELETE | a* session", "2025-* DELETE | a session of no shape"],
        ours: "404 error -32600",
        sdk: "202 -",
        why: "Requests of a session that is not there are told so, whatever they want.",
        section: "2025-11-25 transports, Session Management 3",
    },
    Difference {
        requests: &["modern a response | *session*", "modern an error | *session*"],
        ours: "404 error -32600",
        sdk: "400 error -32600",
        why: "Responses are only of sessions: it is refused for the one that it names.",
        section: "2026-07-28 Streamable HTTP, Sending Messages 4",
    },
    Difference {
        requests: &["2025-* initialize again*"],
        ours: "400 error -32600",
        sdk: "200 *",
        why: "The session has agreed on everything; a second agreement would change it under way.",
        section: "2025-11-25 lifecycle, Initialization: the first interaction",
    },
    Difference {
        requests: &["2025-* server/discover*"],
        ours: "200 error -32601",
        sdk: "400 error -32602",
        why: "What a session sends without modern _meta is of its revision, which has no such method.",
        section: "2026-07-28 basic/versioning, Backward Compatibility",
    },
    Difference {
        requests: &["2025-* server/discover | *session*"],
        ours: "40* error -32600",
        sdk: "400 error -32602",
        why: "Likewise: it is refused for its session first.",
        section: "2026-07-28 basic/versioning, Backward Compatibility",
    },
    Difference {
        requests: &["2025-* tasks/get*", "2025-* tasks/cancel*"],
        ours: "200 error -32601",
        sdk: "200 error -32021*",
        why: "The extension is offered to clients of 2026-07-28 only, and -32021 is a code of that revision.",
        section: "2026-07-28 basic/index, Error Codes",
    },
    // Methods
    Difference {
        requests: &["*initialize* | with modern _meta"],
        ours: "400 error -32020",
        sdk: "200 result*",
        why: "A request with modern _meta is of 2026-07-28, whatever it asks for, and this one lacks the headers of that.",
        section: "2026-07-28 basic/versioning, Backward Compatibility; Streamable HTTP, Server Validation",
    },
    Difference {
        requests: &["*initialize* | in the words of 2026-07-28"],
        ours: "404 error -32601",
        sdk: "*",
        why: "A request that names 2026-07-28 in its headers and its _meta is of that revision, which has no initialize.",
        section: "2026-07-28 basic/versioning, Backward Compatibility; changelog, 2",
    },
    Difference {
        requests: &[
            "modern resources/*subscribe*",
            "2025-* resources/*subscribe | in the words of 2026-07-28",
        ],
        ours: "*",
        sdk: "400 error -32020*",
        why: "The method is not one of this revision, which MUST be 404; Mcp-Name is for three others.",
        section: "2026-07-28 Streamable HTTP, Protocol Version Header, Standard Request Headers",
    },
    Difference {
        requests: &[
            "modern logging/setLevel*",
            "2025-* logging/setLevel | in the words of 2026-07-28",
        ],
        ours: "404 error -32601",
        sdk: "200 result*",
        why: "The method is not one of this revision.",
        section: "2026-07-28 changelog, 5",
    },
    // JSON
    Difference {
        requests: &[
            "* | no body",
            "* | a body of words",
            "* | a body cut short",
            "* | a body with a tail",
            "* | two * in a body",
            "* | a body with a byte order mark",
            "* | a body that is no UTF-8",
            "* | a body with NaN",
            "* | a body with a comment",
            "* | a body with a comma too many",
            "* | a body with a raw line break in a string",
            "* | a body 200 deep",
            "* | a body 100,000 deep",
        ],
        ours: "400 error -32700",
        sdk: "415 -",
        why: "What is no JSON is a parse error; 415 is about the Content-Type, which is right.",
        section: "2026-07-28 basic/index, Error Codes; RFC 9110, 15.5.16",
    },
    Difference {
        requests: &["* | a body with a lone surrogate", "* | a body with a huge number"],
        ours: SAME,
        sdk: "415 -",
        why: "It is JSON by its grammar, and what is not read need not be understood.",
        section: "RFC 8259, 6, 8.2",
    },
    Difference {
        requests: &[
            "* | an empty object",
            "* | a string",
            "* | a number",
            "* | null",
            "* | * jsonrpc",
            "* | jsonrpc *",
            "* | no method",
            "* | method null",
            "* | method a number",
            "* | method twice, differing",
            "* | id twice, differing",
            "* | id null",
            "* | id a fraction",
            "* | id a boolean",
            "* | id an object",
            "* | id an array",
            "modern a response | no id",
        ],
        ours: "400 error -32600",
        sdk: "415 -",
        why: "What is JSON and no message of JSON-RPC is an invalid request; 415 is about the Content-Type, which is right.",
        section: "2026-07-28 basic/index, Error Codes; JSON-RPC 2.0, 5.1",
    },
    Difference {
        requests: &["2025-* an error | id null"],
        ours: "400 error -32600",
        sdk: "202 -",
        why: "An id is a string or a number, or not there.",
        section: "2025-11-25 schema, JSONRPCErrorResponse",
    },
    Difference {
        requests: &["* | id whole with a point"],
        ours: "400 error -32600",
        sdk: "*",
        why: "Whether 7.0 is an integer is left open. An answer to 7, which is what the SDK sends, may find nobody.",
        section: "2026-07-28 basic/index, Requests",
    },
    Difference {
        requests: &["* | id of more than 64 bits"],
        ours: SAME,
        sdk: "415 -",
        why: "An integer may be of any size; it comes back as it was.",
        section: "2026-07-28 schema, RequestId",
    },
    Difference {
        requests: &[
            "* notification | id of more than 64 bits",
            "2025-* roots/list_changed | id of more than 64 bits",
            "2025-* initialized again | id of more than 64 bits",
        ],
        ours: "* error -3260*",
        sdk: "415 -",
        why: "A notification with an id is a request, of a method that there is not or without the _meta of one.",
        section: "2026-07-28 basic/index, Notifications",
    },
    Difference {
        requests: &["* | a result as well", "* | an error as well"],
        ours: SAME,
        sdk: "415 -",
        why: "A message with a method is a request; no schema forbids it to have more members.",
        section: "2026-07-28 schema, JSONRPCRequest",
    },
    Difference {
        requests: &[
            "* a response | method empty",
            "* an error | method empty",
            "modern a response | method twice, differing",
            "modern an error | method twice, differing",
        ],
        ours: "* error -3260*",
        sdk: "415 -",
        why: "A message with a method is a request; no schema forbids it to have more members.",
        section: "2026-07-28 schema, JSONRPCRequest",
    },
    Difference {
        requests: &[
            "2025-* a response | method twice, differing",
            "2025-* an error | method twice, differing",
        ],
        ours: "200 result {}",
        sdk: "415 -",
        why: "It is a ping, with more members.",
        section: "2025-11-25 schema, JSONRPCRequest",
    },
    Difference {
        requests: &["2025-* a response | no id"],
        ours: "202 -",
        sdk: "415 -",
        why: "It is a response to nothing that was asked: it may be ignored.",
        section: "2025-11-25 transports, Sending Messages 4",
    },
    Difference {
        requests: &[
            "2025-11-25 * | an *array*",
            "modern * | an *array*",
            "initialize * | an *array*",
            "* | an empty array",
        ],
        ours: "400 error -32600",
        sdk: "415 -",
        why: "Only 2025-03-26 has batches, and none is empty.",
        section: "2025-06-18 changelog, 1; JSON-RPC 2.0, 6",
    },
    Difference {
        requests: &["2025-03-26 * | an array of it*", "2025-03-26 * | an array of numbers"],
        ours: "200 [*",
        sdk: "415 -",
        why: "Batches MUST be received.",
        section: "2025-03-26 basic/index, Batching",
    },
    Difference {
        requests: &["2025-03-26 * | an array of it*"],
        ours: "202 -",
        sdk: "415 -",
        why: "Batches MUST be received, and one of notifications or responses has no answer.",
        section: "2025-03-26 transports, Sending Messages 4",
    },
    // Params
    Difference {
        requests: &[
            "* | params a string",
            "* | params an array",
            "* | _meta a string",
            "* | _meta an array",
        ],
        ours: "*error -32602",
        sdk: "415 -",
        why: "They are invalid params; 415 is about the Content-Type, which is right.",
        section: "2026-07-28 basic/index, Error Codes",
    },
    Difference {
        requests: &[
            "2025-* initialize again | params a*",
            "2025-* initialize again | _meta a*",
        ],
        ours: SAME,
        sdk: "415 -",
        why: "It is refused for what it is.",
        section: "2025-11-25 lifecycle, Initialization: the first interaction",
    },
    Difference {
        requests: &[
            "* | params a string",
            "* | params an array",
            "* | _meta a string",
            "* | _meta an array",
        ],
        ours: "202 -",
        sdk: "415 -",
        why: "A malformed notification is ignored.",
        section: "2026-07-28 basic/patterns/cancellation, Error Handling",
    },
    Difference {
        requests: &["* | params null"],
        ours: "200 error -32602",
        sdk: "*",
        why: "Params are an object, or not there.",
        section: "2025-11-25 schema, JSONRPCRequest",
    },
    Difference {
        requests: &["* | _meta null"],
        ours: "200 error -32602",
        sdk: SAME,
        why: "_meta is an object, or not there.",
        section: "2025-11-25 schema, Request",
    },
    Difference {
        requests: &[
            "* | no params",
            "* | no name",
            "* | name a number",
            "* | arguments a*",
            "* | no uri",
            "* | uri a number",
            "* | no notifications",
            "* | notifications of wrong types",
            "* | no ref",
            "* | a ref of an unknown type",
            "* | an argument that is no object",
            "* | no level",
            "* | an unknown level",
        ],
        ours: "200 error -32602",
        sdk: "* error -32601",
        why: "The method is there; its params are wrong. To the SDK a request that does not fit is one that it does not know.",
        section: "2026-07-28 basic/index, Error Codes",
    },
    Difference {
        requests: &["modern tasks/* | no taskId"],
        ours: "400 error -32021 {requiredCapabilities}",
        sdk: "404 error -32601",
        why: "The method is there; its params are wrong, and so are the capabilities of the client.",
        section: "2026-07-28 basic/index, Error Codes",
    },
    Difference {
        requests: &[
            "initialize * | no params",
            "initialize * | params null",
            "initialize * | no protocolVersion",
            "initialize * | protocolVersion a number",
            "initialize * | protocolVersion null",
            "initialize * | client capabilities an array",
        ],
        ours: "200 error -32602",
        sdk: "400 -",
        why: "It is an initialize, and its params are wrong. To the SDK it is a request without a session.",
        section: "2025-11-25 lifecycle, Initialization; schema, InitializeRequest",
    },
    Difference {
        requests: &[
            "*initialize* | no client capabilities",
            "*initialize* | no clientInfo",
            "*initialize* | clientInfo without a version",
        ],
        ours: "200 result*, a session",
        sdk: "400 -",
        why: "A client should say these things, but nothing here depends on them. To the SDK it is a request without a session.",
        section: "2025-11-25 schema, InitializeRequest",
    },
    Difference {
        requests: &["* | a cursor", "* | a cursor empty", "* | a cursor a number"],
        ours: "200 error -32602",
        sdk: SAME,
        why: "No cursor has been given to anybody. The SDK leaves them to whoever writes the server.",
        section: "2026-07-28 server/utilities/pagination, Error Handling",
    },
    Difference {
        requests: &[
            "* | prompt arguments of wrong types",
            "* | an unknown argument of a prompt",
        ],
        ours: "200 error -32602",
        sdk: SAME,
        why: "Arguments of a prompt are strings, and those that it names. The SDK leaves them to whoever writes the server.",
        section: "2026-07-28 server/prompts, Error Handling",
    },
    Difference {
        requests: &["modern * | an unknown log level"],
        ours: "200 error -32602",
        sdk: SAME,
        why: "SHOULD.",
        section: "2026-07-28 server/utilities/logging, Error Handling",
    },
    Difference {
        requests: &["modern * | capabilities of wrong types"],
        ours: SAME,
        sdk: "400 error -32602",
        why: "It is an object, as it must be; of what is in it, only that is read which something depends on.",
        section: "2026-07-28 basic/index, _meta",
    },
    Difference {
        requests: &["modern subscriptions/listen | notifications an array"],
        ours: "200 error -32602",
        sdk: "200 stream*",
        why: "An array is no object.",
        section: "2026-07-28 schema, SubscriptionsListenRequest",
    },
];

/// Whether a name is of a pattern.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            let mut ends = (0..=name.len()).filter(|at| name.is_char_boundary(*at));
            ends.any(|at| matches_pattern(rest, &name[at..]))
        }),
    }
}

#[test]
fn every_difference_has_its_reason() {
    for it in DIFFERENCES.iter().chain(DEFECTS) {
        assert!(!it.why.is_empty() && !it.section.is_empty(), "{:?}", it.requests);
        assert_ne!(it.ours, it.sdk, "{:?}", it.requests);
    }
}

#[test]
fn a_star_stands_for_anything() {
    for pattern in ["modern x | y", "*", "modern * | y", "* | *", "*x | y*", "modern x | y*"] {
        assert!(matches_pattern(pattern, "modern x | y"), "{pattern}");
    }
    for pattern in ["modern x", "* | z", "x*", "modern x | y*z"] {
        assert!(!matches_pattern(pattern, "modern x | y"), "{pattern}");
    }
}
