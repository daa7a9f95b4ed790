//! The known differences between the broker and the SDK, each with its reason.

/// A group of requests that the two servers answer differently.
pub struct Difference {
    /// Patterns of the names of the requests; in patterns and answers `*` matches anything.
    pub requests: &'static [&'static str],
    pub ours: &'static str,
    pub sdk: &'static str,
    /// Why the broker's answer is right, or as right as the SDK's.
    pub why: &'static str,
    /// The section of the specification that says so.
    pub section: &'static str,
}

/// Stands for the answer of the same server without the mutation.
const SAME: &str = "=";

impl Difference {
    /// Whether this entry covers these answers. Each answer comes with the one without the mutation.
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

/// Whether a known difference has these answers, for any of the requests that `is_of` accepts.
pub fn is_known(is_of: impl Fn(&str) -> bool, ours: (&str, &str), sdk: (&str, &str)) -> bool {
    let mut known = DIFFERENCES.iter().chain(DEFECTS);
    known.any(|it| it.covers(ours, sdk) && it.requests.iter().any(|pattern| is_of(pattern)))
}

/// Differences where the SDK is right and the broker is not. Remove an entry when the broker is fixed.
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
        why: "A client must list both types, but a server need not refuse one that lists only the type of its answer. Ranges, \
              capitals and several header lines are allowed. The SDK searches the first line for two words.",
        section: "2026-07-28 Streamable HTTP, Sending Messages 2; RFC 9110, 5.2, 8.3.1, 12.5.1",
    },
    Difference {
        requests: &["* | Accept HTML", "* | Accept nothing"],
        ours: SAME,
        sdk: "406 -",
        why: "An answer without a body, or a refusal, has no type to accept.",
        section: "RFC 9110, 15.5.7",
    },
    Difference {
        requests: &["2025-* GET | Accept JSON only", "2025-* GET | no Accept"],
        ours: "405 error*",
        sdk: "406 -",
        why: "The answer to a GET is a stream of events or 405.",
        section: "2025-11-25 transports, Listening for Messages 3",
    },
    Difference {
        requests: &["modern * | Accept with a zero"],
        ours: SAME,
        sdk: "*, in a form that was not asked for",
        why: "The weight 0 excludes a type.",
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
        why: "The names of media types are case-insensitive.",
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
        why: "Another port is another origin. The SDK is configured here to accept every origin of this machine; the broker accepts only configured ones.",
        section: "2026-07-28 Streamable HTTP, Security & Endpoint 1",
    },
    Difference {
        requests: &["* | two Origins"],
        ours: "403 -",
        sdk: "*",
        why: "The server cannot know which of the two is true.",
        section: "2026-07-28 Streamable HTTP, Security & Endpoint 1",
    },
    Difference {
        requests: &["* | a Host empty", "* | a Host of no shape"],
        ours: "403 -",
        sdk: "400 -",
        why: "A malformed Host is not one of the accepted hosts.",
        section: "2026-07-28 Streamable HTTP, Security & Endpoint 1",
    },
    Difference {
        requests: &["2025-* DELETE*", "2025-* | by DELETE"],
        ours: "204 -",
        sdk: "202 -",
        why: "The session has ended, and the answer has no body.",
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
        why: "A GET without a session opens the stream of 2024-11-05, whose clients may send the header of any version.",
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
        why: "A header given twice is malformed: an intermediary may have used the other value.",
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
        why: "The header is for the requests after initialize, which negotiates the version in its params.",
        section: "2025-11-25 transports, Protocol Version Header: subsequent requests",
    },
    Difference {
        requests: &["initialize * | version header 20*"],
        ours: SAME,
        sdk: "400 error -32600",
        why: "The header is for the requests after initialize, which negotiates the version in its params.",
        section: "2025-11-25 transports, Protocol Version Header: subsequent requests",
    },
    Difference {
        requests: &["* | version 2025-11-25"],
        ours: "400 error -32022 {requested supported}",
        sdk: "*",
        why: "That revision has no stateless requests, so it is not supported in this form.",
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
        why: "The specification does not say which headers a notification needs.",
        section: "2026-07-28 Streamable HTTP, Sending Messages, Note",
    },
    Difference {
        requests: &["2025-* | version header 2026-07-28"],
        ours: "202 -",
        sdk: "400 error -32600",
        why: "A response belongs to a session, and the modern revision has none.",
        section: "2025-11-25 transports, Sending Messages 4",
    },
    // Sessions
    Difference {
        requests: &["* | a session that is no text"],
        ours: "404 error -32600",
        sdk: "400 -",
        why: "The request names a session that does not exist; it is not a request without one.",
        section: "2025-11-25 transports, Session Management 3",
    },
    Difference {
        requests: &[
            "initialize * | a session that is no text",
            "2025-* initialize again | a session that is no text",
        ],
        ours: "404 error -32600",
        sdk: "200 result*, a session",
        why: "The request names a session that does not exist; it is not a request without one.",
        section: "2025-11-25 transports, Session Management 3",
    },
    Difference {
        requests: &["2025-* | two sessions"],
        ours: "400 error -32600",
        sdk: "*",
        why: "The server cannot know which of the two is meant, and an intermediary may have used the other one.",
        section: "2025-11-25 transports, Session Management 2: in the Mcp-Session-Id header",
    },
    Difference {
        requests: &["2025-* DELETE | a* session", "2025-* DELETE | a session of no shape"],
        ours: "404 error -32600",
        sdk: "202 -",
        why: "Every request of a session that does not exist is refused as such, before its contents are checked.",
        section: "2025-11-25 transports, Session Management 3",
    },
    Difference {
        requests: &["modern a response | *session*", "modern an error | *session*"],
        ours: "404 error -32600",
        sdk: "400 error -32600",
        why: "A response belongs to a session: it is refused because that session does not exist.",
        section: "2026-07-28 Streamable HTTP, Sending Messages 4",
    },
    Difference {
        requests: &["2025-* initialize again*"],
        ours: "400 error -32600",
        sdk: "200 *",
        why: "The session is already negotiated; a second initialize would change it while it is in use.",
        section: "2025-11-25 lifecycle, Initialization: the first interaction",
    },
    Difference {
        requests: &["2025-* server/discover*"],
        ours: "200 error -32601",
        sdk: "400 error -32602",
        why: "A request of a session without modern _meta is of the revision of the session, which has no such method.",
        section: "2026-07-28 basic/versioning, Backward Compatibility",
    },
    Difference {
        requests: &["2025-* server/discover | *session*"],
        ours: "40* error -32600",
        sdk: "400 error -32602",
        why: "Its session is checked first, and refused.",
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
        why: "A request with modern _meta is of 2026-07-28, also with this method, and lacks the headers of that revision.",
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
        why: "The method does not exist in this revision, which MUST be answered with 404; Mcp-Name belongs to three other methods.",
        section: "2026-07-28 Streamable HTTP, Protocol Version Header, Standard Request Headers",
    },
    Difference {
        requests: &[
            "modern logging/setLevel*",
            "2025-* logging/setLevel | in the words of 2026-07-28",
        ],
        ours: "404 error -32601",
        sdk: "200 result*",
        why: "The method does not exist in this revision.",
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
        why: "A body that is not JSON is a parse error; 415 is about the Content-Type, which is correct.",
        section: "2026-07-28 basic/index, Error Codes; RFC 9110, 15.5.16",
    },
    Difference {
        requests: &["* | a body with a lone surrogate", "* | a body with a huge number"],
        ours: SAME,
        sdk: "415 -",
        why: "The body is JSON by its grammar, and values that are not used need not be decoded.",
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
        why: "JSON that is not a JSON-RPC message is an invalid request; 415 is about the Content-Type, which is correct.",
        section: "2026-07-28 basic/index, Error Codes; JSON-RPC 2.0, 5.1",
    },
    Difference {
        requests: &["2025-* an error | id null"],
        ours: "400 error -32600",
        sdk: "202 -",
        why: "An id is a string or a number, or absent.",
        section: "2025-11-25 schema, JSONRPCErrorResponse",
    },
    Difference {
        requests: &["* | id whole with a point"],
        ours: "400 error -32600",
        sdk: "*",
        why: "The specification does not say whether 7.0 is an integer. The SDK answers to 7, which the client may not recognize.",
        section: "2026-07-28 basic/index, Requests",
    },
    Difference {
        requests: &["* | id of more than 64 bits"],
        ours: SAME,
        sdk: "415 -",
        why: "An integer may have any size and is echoed unchanged.",
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
        why: "A notification with an id is a request, either of an unknown method or without the required _meta.",
        section: "2026-07-28 basic/index, Notifications",
    },
    Difference {
        requests: &["* | a result as well", "* | an error as well"],
        ours: SAME,
        sdk: "415 -",
        why: "A message with a method is a request; the schema does not forbid further members.",
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
        why: "A message with a method is a request; the schema does not forbid further members.",
        section: "2026-07-28 schema, JSONRPCRequest",
    },
    Difference {
        requests: &[
            "2025-* a response | method twice, differing",
            "2025-* an error | method twice, differing",
        ],
        ours: "200 result {}",
        sdk: "415 -",
        why: "The message is a ping with further members.",
        section: "2025-11-25 schema, JSONRPCRequest",
    },
    Difference {
        requests: &["2025-* a response | no id"],
        ours: "202 -",
        sdk: "415 -",
        why: "The message is a response to an unknown request and may be ignored.",
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
        why: "Only 2025-03-26 has batches, and a batch must not be empty.",
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
        why: "Batches MUST be received, and a batch of notifications or responses has no answer.",
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
        why: "The params are invalid; 415 is about the Content-Type, which is correct.",
        section: "2026-07-28 basic/index, Error Codes",
    },
    Difference {
        requests: &[
            "2025-* initialize again | params a*",
            "2025-* initialize again | _meta a*",
        ],
        ours: SAME,
        sdk: "415 -",
        why: "The refusal names the actual fault.",
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
        why: "Params are an object, or absent.",
        section: "2025-11-25 schema, JSONRPCRequest",
    },
    Difference {
        requests: &["* | _meta null"],
        ours: "200 error -32602",
        sdk: SAME,
        why: "_meta is an object, or absent.",
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
        why: "The method exists and its params are wrong. The SDK treats a request that does not fit its types as an unknown method.",
        section: "2026-07-28 basic/index, Error Codes",
    },
    Difference {
        requests: &["modern tasks/* | no taskId"],
        ours: "400 error -32021 {requiredCapabilities}",
        sdk: "404 error -32601",
        why: "The method exists; its params and the capabilities of the client are wrong.",
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
        why: "The request is an initialize with wrong params. The SDK treats it as a request without a session.",
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
        why: "A client should send these members, but the broker does not depend on them. The SDK treats it as a request without a session.",
        section: "2025-11-25 schema, InitializeRequest",
    },
    Difference {
        requests: &["* | a cursor", "* | a cursor empty", "* | a cursor a number"],
        ours: "200 error -32602",
        sdk: SAME,
        why: "The server has issued no cursor. The SDK leaves the check to the author of the server.",
        section: "2026-07-28 server/utilities/pagination, Error Handling",
    },
    Difference {
        requests: &[
            "* | prompt arguments of wrong types",
            "* | an unknown argument of a prompt",
        ],
        ours: "200 error -32602",
        sdk: SAME,
        why: "Arguments of a prompt are strings with the names that it declares. The SDK leaves the check to the author of the server.",
        section: "2026-07-28 server/prompts, Error Handling",
    },
    Difference {
        requests: &["modern * | an unknown log level"],
        ours: "200 error -32602",
        sdk: SAME,
        why: "The specification says SHOULD.",
        section: "2026-07-28 server/utilities/logging, Error Handling",
    },
    Difference {
        requests: &["modern * | capabilities of wrong types"],
        ours: SAME,
        sdk: "400 error -32602",
        why: "The value is an object, as required; the broker reads only the members that it uses.",
        section: "2026-07-28 basic/index, _meta",
    },
    Difference {
        requests: &["modern subscriptions/listen | notifications an array"],
        ours: "200 error -32602",
        sdk: "200 stream*",
        why: "An array is not an object.",
        section: "2026-07-28 schema, SubscriptionsListenRequest",
    },
];

/// Whether a name matches a pattern.
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
fn every_known_difference_has_a_reason() {
    for it in DIFFERENCES.iter().chain(DEFECTS) {
        assert!(!it.why.is_empty() && !it.section.is_empty(), "{:?}", it.requests);
        assert_ne!(it.ours, it.sdk, "{:?}", it.requests);
    }
}

#[test]
fn a_star_matches_any_text() {
    for pattern in ["modern x | y", "*", "modern * | y", "* | *", "*x | y*", "modern x | y*"] {
        assert!(matches_pattern(pattern, "modern x | y"), "{pattern}");
    }
    for pattern in ["modern x", "* | z", "x*", "modern x | y*z"] {
        assert!(!matches_pattern(pattern, "modern x | y"), "{pattern}");
    }
}
