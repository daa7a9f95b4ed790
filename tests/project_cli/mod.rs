//! The administration client against a fake broker: the requests that it sends, what it prints, and what it keeps secret. The
//! fake broker gives the answers that the specification of the API defines.

mod commands;
mod failures;
mod fake_broker;
mod secrets;
mod words;
