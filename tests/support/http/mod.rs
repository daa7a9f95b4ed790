//! HTTP/1.1 requests, responses and event streams byte by byte, and an MCP client over HTTP.

mod agent;
mod request;
mod response;

pub use agent::{HttpAgent, initialize_request};
pub use request::{Request, connect, exchange, upgrade};
pub use response::{Event, Response, ResponseReader};
