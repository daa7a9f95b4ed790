//! The state that the routes share, and the lifecycle of the process.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use actix_web::web;
use actors::{broker::BrokerHandle, clock::mono_ms, locked::Locked, model::BrokerError, storage::StorageHealth};
use rest::stats::{Stats, Warning};
use serde::Serialize;
use utoipa::ToSchema;

use super::{events::Followers, kept_totals::KeptTotals, last_silent::LastSilent};
use crate::{
    edge::Admission,
    metrics::{Metrics, Problems, warnings},
    targets::LinkSigner,
    transport::TransportContext,
};
use api::{auth::Authenticator, budget::ByteBudget, verbs::administration::Administration};
use common::token_file::TokenFile;

/// The state as handlers receive it.
pub type StateData = web::Data<Arc<HttpState>>;

/// State that the routes share.
pub struct HttpState {
    /// What serves requests, once the broker has started.
    pub ready: OnceLock<Ready>,
    pub lifecycle: Lifecycle,
    pub admission: Admission,
    /// The callers that follow events.
    pub followers: Arc<Followers>,
    pub scraping: Scraping,
    /// Knows the links by which a question can be answered; None without `desk_secret_file`.
    pub links: Option<LinkSigner>,
    /// The settings as operators see them.
    pub settings: Vec<SettingView>,
    /// What is wrong with the configuration file, which was changed since the start.
    pub configuration_problem: Locked<Option<String>>,
    /// Replicas that did not answer when `/health` asked them last.
    pub silent: LastSilent,
    /// The figures for `/health`.
    pub kept_totals: KeptTotals,
}

/// What serves requests once the broker has started.
pub struct Ready {
    pub broker: BrokerHandle,
    pub auth: Arc<Authenticator>,
    pub admin: Arc<Administration>,
    /// Byte budgets and other shared state of the transports.
    pub transport: TransportContext,
    /// The figures of this replica.
    pub metrics: Arc<Metrics>,
}

/// A setting as operators see it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Setting)]
pub struct SettingView {
    /// The key in the file.
    pub name: &'static str,
    /// The value in force; `***` for a secret, null where there is none.
    #[schema(required)]
    pub value: Option<String>,
    #[schema(required)]
    pub default: Option<String>,
    #[schema(value_type = SettingSource)]
    pub source: &'static str,
    /// Where to change it: the flag, the variable or the path of the file; `default` for the default.
    pub location: String,
    /// Whether the value is hidden.
    pub secret: bool,
}

/// Where the value of a setting came from.
#[allow(dead_code, reason = "schema of SettingView::source")]
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum SettingSource {
    Default,
    File,
    Environment,
    Flag,
}

/// How metrics are scraped.
pub struct Scraping {
    /// Metrics are served at a port of their own.
    pub has_own_port: bool,
    /// The token that is good for metrics alone.
    pub token: Option<TokenFile>,
    /// Byte budget of the answers in flight: no project holds up those who look after the broker.
    pub answers: Arc<ByteBudget>,
}

impl HttpState {
    /// What serves requests.
    ///
    /// # Errors
    /// `Unavailable` while the broker starts.
    pub fn ready(&self) -> Result<&Ready, BrokerError> {
        self.ready.get().ok_or(BrokerError::unavailable())
    }

    /// Sets what is wrong with the configuration file.
    pub fn set_configuration_problem(&self, problem: Option<String>) {
        *self.configuration_problem.lock() = problem;
    }

    /// What is wrong with the configuration file.
    pub fn configuration_problem(&self) -> Option<String> {
        let problem = self.configuration_problem.lock();
        problem.clone()
    }

    /// What an operator should look at, with these figures and as many replicas that do not answer.
    pub fn warnings(&self, stats: &Stats, silent_replicas: usize) -> Vec<Warning> {
        let storage = match self.condition() {
            Some(StorageHealth::Degraded(why) | StorageHealth::Unavailable(why)) => Some(why),
            Some(StorageHealth::Healthy) | None => None,
        };
        let configuration = self.configuration_problem();
        let problems = Problems {
            storage: storage.as_deref(),
            configuration: configuration.as_deref(),
            silent_replicas,
        };
        warnings(stats, problems)
    }

    /// The same for the whole broker, as far as this replica knows without asking others.
    pub fn own_warnings(&self) -> Vec<Warning> {
        self.warnings(&self.totals(), self.silent.count())
    }

    /// The figures of all projects at this replica, at most a second old.
    pub fn totals(&self) -> Stats {
        let read = || self.ready.get().map(|ready| ready.metrics.totals()).unwrap_or_default();
        self.kept_totals.get(mono_ms(), read)
    }

    /// The condition of the storage; `None` while the broker starts or stops.
    pub fn condition(&self) -> Option<StorageHealth> {
        let Ready { broker, .. } = self.ready.get().filter(|_| self.lifecycle.is_ready())?;
        match broker.storage().health() {
            StorageHealth::Healthy | StorageHealth::Degraded(_) if !broker.is_loaded() => {
                let why = "the projects could not be read from it yet: the log has the reason";
                Some(StorageHealth::Unavailable(why.to_owned()))
            }
            health => Some(health),
        }
    }
}

/// The lifecycle of the process: starting, ready, stopping.
#[derive(Default)]
pub struct Lifecycle {
    started: AtomicBool,
    stopping: AtomicBool,
}

impl Lifecycle {
    /// The start is complete.
    pub fn mark_started(&self) {
        self.started.store(true, Ordering::Relaxed);
    }

    /// The process stops: it is not ready from now on.
    pub fn mark_stopping(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the start is complete.
    pub fn has_started(&self) -> bool {
        self.started.load(Ordering::Relaxed)
    }

    /// Whether new work is accepted.
    pub fn is_ready(&self) -> bool {
        self.has_started() && !self.stopping.load(Ordering::Relaxed)
    }
}
