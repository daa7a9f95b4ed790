//! WebSocket: frames and clients that break the rules or do not read.

mod hostile_clients;
mod slow_clients;
