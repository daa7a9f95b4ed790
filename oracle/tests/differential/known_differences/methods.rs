//! Differences for unknown methods and methods of the other era.

use super::Difference;

pub const DIFFERENCES: &[Difference] = &[
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
];
