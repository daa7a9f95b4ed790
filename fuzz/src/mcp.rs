//! Includes the source files of the product under test. Linking the whole broker would take minutes.
#![allow(dead_code)]

#[path = "../../src/transport/websocket/frame.rs"]
pub mod frame;
#[path = "../../api/src/mcp/lines.rs"]
pub mod lines;
#[path = "../../api/src/mcp/logging.rs"]
pub mod logging;
#[path = "../../api/src/mcp/forwarding/request.rs"]
pub mod request;
#[path = "../../api/src/mcp/forwarding/response.rs"]
pub mod response;
#[path = "../../api/src/mcp/rpc.rs"]
pub mod rpc;
#[path = "../../api/src/mcp/skipped_frame.rs"]
pub mod skipped_frame;
#[path = "../../api/src/mcp/version.rs"]
pub mod version;
