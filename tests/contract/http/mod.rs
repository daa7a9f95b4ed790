//! HTTP in every revision of MCP, and the REST API: what a request gets, what a session keeps, what a hostile client is refused.

mod cors;
mod hostile_clients;
mod listen;
mod modern;
mod replay;
mod replay_bounds;
mod rest;
mod sessions;
mod sse;
mod waits;
