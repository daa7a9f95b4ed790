//! How the gateway gets running instances of backends: what it asks for, and which events it gets. The program brings the
//! processes and sockets.

use std::{
    any::Any,
    fmt,
    sync::{Arc, atomic::AtomicU32},
};

use serde::{Deserialize, Serialize};

use super::{
    asked_urls::AskedUrls,
    call::{Link, LinkEnded},
    lists::BackendLists,
    log::BackendLog,
    open_calls::BackendCounters,
    profile::Profile,
    subscribed::Subscribed,
};
use crate::model::{BackendAddress, BackendConfig, BackendEra, ProjectId};

/// Starts instances of backends.
pub trait Launcher: fmt::Debug + Send + Sync {
    /// Starts an instance on this thread's arbiter. What becomes of it is reported; the last report is
    /// [`InstanceEvent::Ended`] or [`InstanceEvent::NotStarted`].
    fn launch(&self, order: LaunchOrder) -> Box<dyn Instance>;

    /// Watches the files that a configuration names, on this thread's arbiter, until the returned value is dropped. Changes
    /// that come in quick succession are reported once. `log` takes what cannot be watched.
    fn watch(&self, config: &BackendConfig, log: Arc<BackendLog>, changed: Arc<dyn Fn() + Send + Sync>)
    -> Box<dyn Any>;
}

/// The number of the process behind a link, whose ids another process may use again; 0 for a server at a URL, which outlives its
/// connections.
pub fn process_number(address: &BackendAddress, link: &dyn Link) -> u64 {
    match address {
        BackendAddress::Command { .. } => link.number(),
        BackendAddress::Url { .. } => 0,
    }
}

/// A running instance. Dropping it ends it.
pub trait Instance {
    /// Ends it: its input is closed, and what does not end by itself is killed.
    fn end(&self);
}

/// What is to be started.
pub struct LaunchOrder {
    pub project: ProjectId,
    pub config: Arc<BackendConfig>,
    /// The client capabilities that an instance of the pool gets; `None` for the main instance.
    pub profile: Option<Profile>,
    /// The era that an earlier instance spoke.
    pub known_era: Option<BackendEra>,
    /// Attempts in a row in which an instance of an unknown era has ended with each opening that it got.
    pub failed_openings: Arc<AtomicU32>,
    /// What an earlier instance offered.
    pub known_lists: Option<Arc<BackendLists>>,
    /// Takes what it writes to stderr.
    pub log: Arc<BackendLog>,
    /// The subscriptions of the callers of this instance. `None` for one of the pool without an owner: the main one serves
    /// its callers.
    pub subscribed: Option<Subscribed>,
    /// The URLs that callers were asked to open.
    pub urls: Arc<AskedUrls>,
    /// Counts what reaches no caller.
    pub counters: Arc<BackendCounters>,
    pub report: Report,
}

/// Tells the backend's actor what becomes of an instance.
pub type Report = Arc<dyn Fn(InstanceEvent) + Send + Sync>;

/// What becomes of an instance.
#[derive(Debug)]
pub enum InstanceEvent {
    /// It has a process: that of its program.
    Running { pid: u32 },
    /// It has answered the handshake and takes calls.
    Ready(ReadyInstance),
    /// What it offers, after the start and after each change.
    Lists(ReadLists),
    /// It has ended.
    Ended(Arc<LinkEnded>),
    /// It could not be started: why.
    NotStarted(String),
}

/// The lists of an instance, as far as they could be read.
#[derive(Debug)]
pub struct ReadLists {
    pub lists: BackendLists,
    /// All of them could be read.
    pub are_complete: bool,
    /// What it lists or should list and is not among them, and why.
    pub problems: Vec<String>,
}

/// An instance that takes calls.
#[derive(Debug)]
pub struct ReadyInstance {
    pub link: Arc<dyn Link>,
    pub server: Arc<ServerInfo>,
    /// Its configuration lets it ask its callers, and its questions do not say which call they belong to.
    pub asks_without_call: bool,
}

/// What a backend has said of itself in its handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerInfo {
    /// The protocol version that is spoken with it.
    pub protocol_version: String,
    pub name: String,
    pub version: String,
    pub instructions: Option<String>,
    /// Its capabilities, as JSON.
    pub capabilities: String,
}
