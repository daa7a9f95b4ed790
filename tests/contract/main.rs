//! The contract from the outside: each test starts the real binary and talks to it over the network.

#[path = "../support/mod.rs"]
mod support;

mod abuse;
mod audit;
mod authorization;
mod broadcasts;
mod crossing;
mod discovery;
mod eras;
mod health;
mod http_abuse;
mod http_modern;
mod http_old;
mod http_pages;
mod http_replay;
mod http_sessions;
mod http_streams;
mod http_waits;
mod keys_abuse;
mod limits;
mod messages;
mod negotiation;
mod newcomers;
mod page_bytes;
mod paging;
mod presence;
mod projects;
mod prompts;
mod protocols;
mod push;
mod receipts;
mod receiving;
mod redelivery;
mod refusals;
mod resources;
mod rest_abuse;
mod revocation;
mod shutdown;
mod slow_clients;
mod subscriptions;
mod tasks;
mod tokens;
mod tools;
mod walkthrough;
mod walls;
