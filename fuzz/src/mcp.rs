//! Includes the source files of the product under test. Linking the whole broker would take minutes.
#![allow(dead_code)]

#[path = "../../src/transport/websocket/frame.rs"]
pub mod frame;
#[path = "../../src/mcp/framing.rs"]
pub mod framing;
#[path = "../../src/mcp/lines.rs"]
pub mod lines;
#[path = "../../src/mcp/logging.rs"]
pub mod logging;
#[path = "../../src/mcp/forwarding/request.rs"]
pub mod request;
#[path = "../../src/mcp/forwarding/response.rs"]
pub mod response;
#[path = "../../src/mcp/rpc.rs"]
pub mod rpc;
#[path = "../../src/mcp/skipped_frame.rs"]
pub mod skipped_frame;
#[path = "../../src/mcp/version.rs"]
pub mod version;
