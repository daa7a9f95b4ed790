//! Differences in the negotiation and the header of the protocol version.

use super::{Difference, SAME};

pub const DIFFERENCES: &[Difference] = &[
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
];
