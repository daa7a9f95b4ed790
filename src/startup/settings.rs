//! Turns the configuration into the settings of each part.

use std::{collections::BTreeSet, io, net::SocketAddr, num::NonZero, sync::Arc, time::Duration};

use actors::{
    broker::BrokerSettings,
    gateway::{GatewaySettings, Naming, Prefix},
    model::{BackendsConfig, PresenceTimeouts},
    policy::DeskSettings,
    project::ProjectSettings,
    storage::{Retention, disk::DiskSettings},
    supervise,
};
use tokio::sync::watch;

use crate::{
    edge::AddressLimiter,
    http::Scraping,
    instances::{AddedTables, InstanceLauncher},
    targets,
    transport::Timeouts,
};
use api::{
    auth::{
        AuthPolicy,
        jwt::{JwtSettings, JwtVerifier, KeySource},
    },
    budget::ByteBudget,
    mcp::{self, ClarifyBy},
};
use common::token_file::TokenFile;
use common::{
    config::{self, Config, DeskSecret, RedisFallback, StorageKind},
    seal::DeskSeal,
};
use storage::{StorageSettings, redis::RedisSettings};

/// A project has at most this part of the inbound and of the outbound budget. It may exceed the part by one message,
/// and another project must find bytes for one at the same time.
const INBOUND_SHARE_DIVISOR: usize = 2;
const OUTBOUND_SHARE_DIVISOR: usize = 4;

const MB: usize = 1024 * 1024;
/// Bytes of the metrics that scrapers have asked for and not read.
const SCRAPED_BYTES_MAX: usize = 8 * MB;

/// The number of workers: by default as many as processors, up to eight (docs/decisions/0005-workers.md).
pub fn workers(config: &Config) -> usize {
    const AUTO_MAX: usize = 8;
    let processors = || std::thread::available_parallelism().map_or(1, |found| found.get().min(AUTO_MAX));
    config.workers.map_or_else(processors, NonZero::get)
}

/// The limits of connections per address: by default half of all, without a limit for this machine.
pub fn address_limiter(config: &Config) -> Arc<AddressLimiter> {
    match config.connections_per_address {
        Some(max) => AddressLimiter::new(max.get(), max.get()),
        None => AddressLimiter::new(config.connections_max.div_ceil(2), usize::MAX),
    }
}

/// The budget for what connections receive.
pub fn inbound_budget(config: &Config) -> Arc<ByteBudget> {
    let bytes_max = config.inbound_buffer_bytes();
    ByteBudget::new(bytes_max, bytes_max / INBOUND_SHARE_DIVISOR)
}

/// By which ways `clarify` reaches people.
pub const fn clarify_by(config: &Config) -> ClarifyBy {
    match config.clarify_by {
        config::ClarifyBy::Desk => ClarifyBy::Desk,
        config::ClarifyBy::DeskThenClient => ClarifyBy::DeskThenClient,
        config::ClarifyBy::ClientThenDesk => ClarifyBy::ClientThenDesk,
    }
}

/// How long calls of backends may last when the broker stops. Their callers need the rest for the error.
pub fn call_drain(config: &Config) -> Duration {
    config.shutdown_grace / 4 * 3
}

/// The budget for answers and pushes.
pub fn outbound_budget(config: &Config) -> Arc<ByteBudget> {
    let bytes_max = config.outbound_buffer_bytes();
    ByteBudget::new(bytes_max, bytes_max / OUTBOUND_SHARE_DIVISOR)
}

/// How metrics are scraped.
///
/// # Errors
/// `metrics_token_file` cannot be read. The rules of the configuration have checked it before.
pub fn scraping(config: &Config) -> io::Result<Scraping> {
    let token = config.metrics_token_file.as_deref().map(TokenFile::open).transpose();
    let token =
        token.map_err(|error| io::Error::new(error.kind(), format!("metrics_token_file cannot be used: {error}")))?;
    Ok(Scraping {
        has_own_port: config.metrics_port.is_some(),
        token,
        answers: ByteBudget::new(SCRAPED_BYTES_MAX, SCRAPED_BYTES_MAX),
    })
}

/// Intervals and timeouts of connections.
pub fn timeouts(config: &Config) -> Timeouts {
    Timeouts {
        ping_interval: config.heartbeat_interval,
        stall_timeout: config.stale_threshold,
        silence_timeout: config.disconnect_threshold,
    }
}

/// The secret of webhooks and of links by which a question can be answered.
///
/// # Errors
/// `desk_secret_file` cannot be used. The rules of the configuration have checked it before.
pub fn desk_secret(config: &Config) -> io::Result<Option<DeskSecret>> {
    let failed = |reason| io::Error::other(format!("desk_secret_file cannot be used: {reason}"));
    config.desk_secret().map_err(failed)
}

/// The settings of the root actor and its projects.
pub fn broker(config: &Config, secret: Option<&DeskSecret>, gateway: Option<GatewaySettings>) -> BrokerSettings {
    BrokerSettings {
        project: project(config, secret, gateway),
        key_rate_limit: config.rate_limit,
        multi_project: config.enable_multi_project,
        projects_max: config.projects_max,
    }
}

fn project(config: &Config, secret: Option<&DeskSecret>, gateway: Option<GatewaySettings>) -> ProjectSettings {
    ProjectSettings {
        queue_capacity: config.queue_capacity,
        sessions_max: config.sessions_max,
        queue_warning: config.queue_warning,
        delivery_limit: config.delivery_limit,
        heartbeat_interval: config.heartbeat_interval,
        presence: PresenceTimeouts {
            stale_after: config.stale_threshold,
            disconnect_after: config.disconnect_threshold,
        },
        session_retention: config.session_retention,
        payload_len_max: config.max_payload_bytes(),
        keeps_payloads: config.message_history_payloads,
        restarts: supervise::RestartPolicy::default(),
        desk: DeskSettings {
            is_on: config.desk,
            capacity: config.desk_capacity,
            yap_delay: config.yap_delay,
            targets: targets::targets(config, secret),
            seal: secret.map(|secret| Arc::new(DeskSeal::new(secret)) as _),
        },
        gateway,
    }
}

/// The names of the tools and prompts that are listed next to those of backends.
#[derive(Default)]
pub struct OwnNames {
    tools: BTreeSet<&'static str>,
    prompts: BTreeSet<&'static str>,
}

impl OwnNames {
    /// The names that a broker has, whichever of them a caller sees.
    pub fn of_broker() -> Self {
        Self {
            tools: mcp::tools::TOOLS.iter().map(|tool| tool.name).collect(),
            prompts: mcp::prompts::names().collect(),
        }
    }
}

/// The gateway of each project, with the backends as the configuration file has them now.
pub fn gateway(
    config: &Config,
    backends: watch::Receiver<Arc<BackendsConfig>>,
    own: OwnNames,
    outbound: &Arc<ByteBudget>,
) -> GatewaySettings {
    GatewaySettings {
        launcher: Arc::new(InstanceLauncher {
            outbound: Arc::clone(outbound),
        }),
        tables: Arc::new(AddedTables(config.backend_defaults())),
        backends,
        naming: Naming {
            separator: config.gateway_separator.clone(),
            len_max: config.gateway_name_len_max,
            prefix: match config.gateway_prefix {
                config::GatewayPrefix::Always => Prefix::Always,
                config::GatewayPrefix::Auto => Prefix::Auto,
                config::GatewayPrefix::Never => Prefix::Never,
            },
            own_tools: own.tools,
            own_prompts: own.prompts,
        },
        list_wait: config.gateway_list_wait,
        announces_lists: true,
    }
}

/// How callers are authenticated. Reads the admin key and the issuer's keys.
///
/// # Errors
/// `jwt_jwks` or `admin_key_file` cannot be used. The rules of the configuration have checked both before.
pub fn auth_policy(config: &Config) -> io::Result<AuthPolicy> {
    let jwt = match (&config.jwt_issuer, &config.jwt_audience, &config.jwt_jwks) {
        (Some(issuer), Some(audience), Some(keys)) => {
            let settings = JwtSettings {
                issuer: issuer.clone(),
                audience: audience.clone(),
                keys: if keys.contains("://") {
                    KeySource::Url(keys.clone())
                } else {
                    KeySource::File(keys.into())
                },
                project_claim: config.jwt_project_claim.clone().unwrap_or_default(),
                scope_claim: config.jwt_scope_claim.clone().unwrap_or_default(),
                human_claim: config.jwt_human_claim.clone().unwrap_or_default(),
                roles_claim: config.jwt_roles_claim.clone().unwrap_or_default(),
            };
            let jwt = JwtVerifier::open(settings);
            Some(jwt.map_err(|reason| io::Error::other(format!("jwt_jwks cannot be used: {reason}")))?)
        }
        _ => None,
    };
    let admin_key = config
        .admin_digest()
        .map_err(|reason| io::Error::other(format!("admin_key_file cannot be used: {reason}")))?;
    Ok(AuthPolicy {
        is_required: config.enable_auth,
        admin_key,
        jwt,
        rate_limit: config.rate_limit,
        allows_agent_answers: config.allow_agent_answers,
    })
}

/// Whether callers without a key have to be programs of the user that runs the broker: it listens on a loopback address,
/// which every user of the machine reaches.
pub fn asks_user(config: &Config) -> bool {
    config.is_loopback() && !config.enable_auth && !config.allow_anonymous
}

/// The settings of the storage. Other replicas learn that this one listens at `listens_at`, unless the configuration
/// names another address.
///
/// # Errors
/// `redis_url_file` or `redis_password_file` cannot be used. The rules of the configuration have checked it before.
pub fn storage(config: &Config, listens_at: SocketAddr) -> io::Result<StorageSettings> {
    let retention = retention(config);
    let redis_url = config
        .redis_address()
        .map_err(|reason| io::Error::other(format!("the address of Redis cannot be read: {reason}")))?;
    Ok(match config.storage {
        StorageKind::Memory => memory(config),
        StorageKind::Disk => StorageSettings::Disk {
            folder: config.data_dir.clone(),
            settings: DiskSettings {
                retention,
                ..DiskSettings::default()
            },
        },
        StorageKind::Redis => StorageSettings::Redis {
            settings: RedisSettings {
                deadline: config.storage_deadline,
                wait_for_replicas: config.wait_for_replicas,
                retention,
                address: Some(config.replica_address.unwrap_or(listens_at)),
                ..RedisSettings::new(redis_url.as_str())
            },
            falls_back_to_memory: config.redis_fallback == RedisFallback::Memory,
        },
    })
}

/// The settings of a storage in memory.
pub fn memory(config: &Config) -> StorageSettings {
    StorageSettings::Memory(retention(config))
}

fn retention(config: &Config) -> Retention {
    Retention {
        queue_bytes_max: config.message_budget_bytes(config.queue_max_mb),
        waiting_bytes_max: config.message_budget_bytes(config.waiting_max_mb),
        dead_letters_bytes_max: config.message_budget_bytes(config.dead_letters_max_mb),
        messages_bytes_max: config.message_budget_bytes(config.messages_max_mb),
        idempotency_keys_bytes_max: config.idempotency_max_mb * MB,
        sessions_bytes_max: config.sessions_max_mb * MB,
        history_window: config.message_history,
        history_payloads: config.message_history_payloads,
        questions_retention: config.desk_retention,
        ..Retention::default()
    }
}
