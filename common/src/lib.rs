//! What the broker, its command line and the front of an agent share.
//!
//! `config` is the settings, `telemetry` the log and the traces, `local` the way to the broker of a user, `tls` the trusted
//! authorities, `json` the scanning of frames. It imports neither a transport nor a command.

pub mod config;
pub mod environment;
pub mod exit;
pub mod hang_up;
pub mod http_client;
pub mod json;
pub mod listen;
pub mod refusal;
pub mod seal;
pub mod stop_signal;
pub mod telemetry;
pub mod tls;
pub mod token_file;
pub mod user_broker;
