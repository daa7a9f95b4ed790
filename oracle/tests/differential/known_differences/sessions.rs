//! Differences in the handling of sessions.

use super::Difference;

pub const DIFFERENCES: &[Difference] = &[
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
];
