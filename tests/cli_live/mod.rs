//! The commands that use a running broker, against the real binary: their tables, their JSON, their exit codes, and what they
//! do when pipes and brokers end.

mod authorities;
mod console;
mod console_messages;
mod desk;
mod golden;
mod guides;
mod inboxes;
mod lists;
mod program;
mod protocols;
mod screens;
mod sending;
mod streams;
