//! The table of all settings, from which [`Config`], flags, variables, help and documentation are generated.

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};

use actors::{
    model::{KeyDigest, ToolSet},
    targets::TARGETS_MAX,
};

use super::{
    backends::BackendDefaults,
    error::ConfigError,
    kinds::{ClarifyBy, GatewayCommands, GatewayPrefix, LogFormat, RedisFallback, StorageKind},
    layers::Layers,
    rules::{
        Address, AdminKey, AutoOr, Choice, FilePath, Folder, Integer, LogFilter, Names, OptionalPort, Origins, Ratio,
        RedisAddress, RedisUrl, ReplicaAddress, Rule, Separator, Size, Span, Word, hours, millis, seconds,
    },
    setting::{Setting, settings},
    web_rules::{DeskSecret, NtfyTopic, OptionalTopic, OptionalWebUrl, WebUrl, WebUrls},
};

settings! {
    section "Address";

    /// Address to listen on. Any other than a loopback address also needs `allow_anonymous` or `enable_auth`.
    host: IpAddr = "127.0.0.1", Address;

    /// Port to listen on. 0 takes a free one.
    port: u16 = "8000", Integer(0..=u16::MAX);

    /// Host names that a request may be addressed to, without port; `*` allows every name. The list protects a broker on
    /// a developer's machine from web pages that rebind their DNS name to it. `/livez`, `/readyz` and `/startupz` accept
    /// every name, because probes use addresses.
    allowed_hosts: Vec<String> = "localhost,127.0.0.1,::1", Names;

    /// Origins whose web pages may call the broker, such as `https://ops.example.com`; `*` allows every origin.
    /// The setting does not affect programs that are not browsers: they send no Origin.
    cors_origins: Vec<String> = "", Origins;

    /// Live connections at once, over all transports. The broker refuses further ones until one closes.
    connections_max: usize = "25000", Integer(1..=1_000_000);

    /// Connections at once from one address, idle ones included. `auto` allows half of `connections_max`, and all of it
    /// for programs on this machine.
    connections_per_address: Option<NonZeroUsize> = "auto", AutoOr(1..=1_000_000);

    /// Time an HTTP connection may wait for its next request. Set it longer than the idle timeout of the proxy in front:
    /// then no request arrives on a connection that is closing.
    keep_alive: Duration = "61m", Span(seconds(1)..=hours(25));

    /// Threads that serve connections; `auto` takes as many as the machine has processors, at most eight.
    workers: Option<NonZeroUsize> = "auto", AutoOr(1..=1024);

    /// Time after SIGTERM for requests in progress to finish. 0 cuts them off.
    shutdown_grace: Duration = "30s", Span(seconds(0)..=hours(1));

    section "Access";

    /// Accept every caller that reaches the port although no key is required: every caller may then act as any agent
    /// without a key. A non-loopback `host` needs it while `enable_auth` is off. On a loopback `host` it lets in programs of
    /// other users of this machine; without it, the broker serves only its own user and root.
    allow_anonymous: bool = "false", Choice(SWITCH);

    /// Require an API key, or a token of `jwt_issuer`, from every caller. Needs `admin_key`, `admin_key_file` or
    /// `jwt_issuer`: without one, no key could be made.
    enable_auth: bool = "false", Choice(SWITCH);

    /// Key for administration: it makes projects and their keys, and acts in any project. `mcp-broker keygen` makes
    /// one. Prefer the environment, or `admin_key_file`: other users of a machine see flags.
    admin_key: Option<KeyDigest> = "", AdminKey;

    /// File whose first line is the admin key.
    admin_key_file: Option<PathBuf> = "", FilePath;

    /// Requests per minute of each key; of each address where no key is required; of all local programs together. 0 means no limit.
    rate_limit: u32 = "0", Integer(0..=10_000_000);

    /// Issuer (`iss`) whose tokens are accepted in addition to API keys. Needs `jwt_audience` and `jwt_jwks`.
    jwt_issuer: Option<String> = "", Word;

    /// Audience (`aud`) that a token must be for: the URL of this broker as clients know it, such as
    /// `https://broker.example.com/mcp`.
    jwt_audience: Option<String> = "", Word;

    /// Where the issuer's keys are (JWKS): a file, or a URL that is fetched repeatedly.
    jwt_jwks: Option<String> = "", Word;

    /// Claim of a token that names its project.
    jwt_project_claim: Option<String> = "project_id", Word;

    /// Claim of a token with its scopes, of which one must be `mcp-broker:admin`, `mcp-broker:member`,
    /// `mcp-broker:answer` or `mcp-broker:observer`.
    jwt_scope_claim: Option<String> = "scope", Word;

    /// Claim of a token of scope `mcp-broker:answer` with the name of the person who answers.
    jwt_human_claim: Option<String> = "sub", Word;

    /// Claim of a token of scope `mcp-broker:answer` with the roles of the person, to which questions may be addressed.
    jwt_roles_claim: Option<String> = "roles", Word;

    section "Projects";

    /// Serve any number of projects. `false`: everything lives in the project `default`.
    enable_multi_project: bool = "true", Choice(SWITCH);

    /// Number of projects; deleted ones do not count. The broker refuses to make more.
    projects_max: usize = "1000", Integer(1..=1_000_000);

    section "Programs of the same user";

    /// Unix socket for programs of the same user, in addition to HTTP: one JSON-RPC message per line. The folder must be
    /// private (mode 700), the path has at most 103 bytes.
    local_socket: Option<PathBuf> = "", FilePath;

    /// Pair of FIFOs for programs of the same user: the broker reads requests from the path with the suffix `-in`, and writes
    /// answers to the path with the suffix `-out`. The folder must be private (mode 700). One program at a time may use it.
    local_fifo: Option<PathBuf> = "", FilePath;

    /// Connections of `local_socket` at once.
    local_connections_max: usize = "256", Integer(1..=100_000);

    /// Require a key from programs that connect to `local_socket`: as `api_key` in the hello, which is then the first line.
    /// `false`: they act as their user, with scope `member` in the project `default`, even with `enable_auth`.
    /// `connect` and the commands `local` and `dev` take the key from `MCP_BROKER_API_KEY`.
    local_auth: bool = "false", Choice(SWITCH);

    /// Time without use after which the broker stops: without a connection, a request, a running task, or a program that
    /// writes to `local_fifo`. When a newer version is installed, it stops soon after the last use. 0 means never in both
    /// cases.
    idle_shutdown: Duration = "0", Span(seconds(0)..=hours(365 * 24));

    section "Storage";

    /// Where the broker keeps sessions, protocols and messages. `memory` loses them when the broker stops; `disk` keeps them
    /// in `data_dir`, for one broker; `redis` shares them among all brokers of one `redis_url`.
    storage: StorageKind = "memory", Choice(STORAGES);

    /// Folder of `storage = disk`, created if missing. One broker at a time may use it; other users have no access.
    data_dir: PathBuf = "mcp-broker-data", Folder;

    /// Redis of `storage = redis`: `redis://[user:password@]host[:port][/db]`, `rediss://` for TLS; several servers as
    /// `redis+cluster://host,host` or `redis+sentinel://host,host/master`.
    redis_url: RedisUrl = "redis://127.0.0.1:6379", RedisAddress;

    /// File whose first line is such a URL, instead of `redis_url`. The broker reads it at the start.
    redis_url_file: Option<PathBuf> = "", FilePath;

    /// File whose first line is the password for `redis_url`, which then has none. The broker reads it at the start.
    redis_password_file: Option<PathBuf> = "", FilePath;

    /// What to do when Redis cannot be reached at the start: `none` ends the start; `memory` continues without Redis, for
    /// a single broker, and `/health` reports it. A running broker never changes its storage.
    redis_fallback: RedisFallback = "none", Choice(REDIS_FALLBACKS);

    /// Redis replicas that must have a message before it counts as accepted (`WAIT`).
    wait_for_replicas: u32 = "0", Integer(0..=16);

    /// Address at which other replicas of `storage = redis` reach this one, such as `10.1.2.3:8000`: they forward
    /// requests of HTTP sessions that were opened here. By default it is `host` and `port`; where `host` is the
    /// unspecified address, the one by which this machine reaches Redis.
    replica_address: Option<SocketAddr> = "", ReplicaAddress;

    /// Longest wait for one operation of the storage; after it the caller gets `unavailable`.
    storage_deadline: Duration = "2s", Span(millis(50)..=seconds(60));

    section "Sessions";

    /// Sessions of one project at once, connected or not, unless the project sets its own limit. The broker refuses further ones.
    sessions_max: usize = "25000", Integer(1..=1_000_000);

    /// Bytes of the names, capabilities and metadata of a project's sessions. The broker refuses sessions beyond that.
    sessions_max_mb: usize = "16MiB", Size(1..=1_000_000);

    /// Time between two heartbeats that the broker asks clients to keep. Must be shorter than `stale_threshold`.
    heartbeat_interval: Duration = "10s", Span(millis(100)..=hours(1));

    /// Silence after which a session counts as stale. Must be shorter than `disconnect_threshold`.
    stale_threshold: Duration = "30s", Span(millis(100)..=hours(24));

    /// Silence after which a session counts as disconnected.
    disconnect_threshold: Duration = "60s", Span(millis(100)..=hours(7 * 24));

    /// Time a disconnected session keeps its name and inbox; then its messages become dead letters.
    session_retention: Duration = "24h", Span(millis(100)..=hours(365 * 24));

    /// How many of the broker's own tools agents see in the list of tools; a key may set another number. `agent`: at most 18
    /// tools with their common arguments, in 2,500 tokens; administration for keys of scope `admin`. `core`: the eight that
    /// join, send, receive, acknowledge and ask. `full`: every tool with every argument and the schema of its result. An agent
    /// can call every tool by its name, whether the list has it or not.
    tools: ToolSet = "agent", Choice(TOOL_SETS);

    section "Messages";

    /// Largest message on every transport.
    max_payload_mb: usize = "10MiB", Size(1..=64);

    /// Messages that may wait for one session. The broker refuses further ones with `queue_full`.
    queue_capacity: usize = "1000", Integer(1..=1_000_000);

    /// Bytes of the messages that may wait for one session; messages in flight count. The broker refuses further ones with
    /// `queue_full`. Must be more than `max_payload_mb`.
    queue_max_mb: usize = "32MiB", Size(2..=1_000_000);

    /// Bytes of the messages that may wait for all sessions of a project. A broadcast counts once, and 128 bytes
    /// for each recipient. Must be more than `max_payload_mb`.
    waiting_max_mb: usize = "96MiB", Size(2..=1_000_000);

    /// Bytes of the dead letters of a project; the broker removes the oldest first. Must be more than `max_payload_mb`.
    dead_letters_max_mb: usize = "32MiB", Size(2..=1_000_000);

    /// Bytes of the messages of all projects together, waiting or dead, in the memory of the broker: with the storages
    /// `memory` and `disk`. The broker refuses further ones with `queue_full`. Must be more than `max_payload_mb`.
    messages_max_mb: usize = "192MiB", Size(2..=1_000_000);

    /// Bytes of the idempotency keys of a project with their first results; the broker removes the oldest first.
    idempotency_max_mb: usize = "16MiB", Size(1..=1_000_000);

    /// Share of `queue_capacity` at which the broker logs and counts a warning.
    queue_warning: f64 = "0.9", Ratio;

    /// Deliveries of one message without acknowledgement until it becomes a dead letter.
    delivery_limit: u32 = "5", Integer(1..=1000);

    /// How long the broker keeps what happened to messages, for operators: at most 100,000 messages and 32 MiB per project.
    /// 0 means not at all.
    message_history: Duration = "24h", Span(seconds(0)..=hours(30 * 24));

    /// Keep the payloads of messages as long as their history, up to 256 KiB each. `false`: as long as the messages wait.
    message_history_payloads: bool = "false", Choice(SWITCH);

    section "Memory of connections";

    /// Bytes of frames and bodies of more than 4 KiB that the broker is receiving; a project has at most half of them.
    /// Beyond that, the broker stops reading until bytes are free.
    inbound_buffer_mb: usize = "64MiB", Size(2..=65_536);

    /// Bytes of answers and pushed messages that the broker is making or that wait for their readers; a project has at most
    /// a quarter of them, and one message more. Beyond that, answers and pushes wait.
    outbound_buffer_mb: usize = "128MiB", Size(4..=65_536);

    section "Questions to people";

    /// Agents may ask people questions, and consoles may connect.
    desk: bool = "true", Choice(SWITCH);

    /// Open questions that one console is offered at once. More wait at the desk; a person can open any of them.
    desk_capacity: usize = "10", Integer(1..=1000);

    /// Time the broker keeps an answered, declined, expired or cancelled question: at most 10,000 per project.
    desk_retention: Duration = "30d", Span(hours(1)..=hours(365 * 24));

    /// How `clarify` reaches people: `desk` only; `desk,client` also by a form in the client of the agent, while no
    /// person is at the desk and where the client offers it; `client,desk` by that form first, and the desk as well.
    clarify_by: ClarifyBy = "desk,client", Choice(CLARIFY_WAYS);

    /// Let keys of scope `member` answer questions that agents ask people. The answer is marked as that of an agent.
    allow_agent_answers: bool = "false", Choice(SWITCH);

    /// URLs that receive a signed `POST` when a question is asked, claimed, answered, declined, near its end, expired or
    /// cancelled. Each gets every event at least once, in order; redirects are not followed. Needs `desk_secret_file`.
    desk_webhooks: Vec<WebUrl> = "", WebUrls(TARGETS_MAX - 1);

    /// File whose first line is a secret: `whsec_` and the base64 of 24 to 64 bytes. It signs webhooks and the links that
    /// answer a question, and encrypts stored answers to sensitive questions. The broker reads it at the start; all replicas need the same.
    desk_secret_file: Option<PathBuf> = "", FilePath;

    /// Topic of ntfy, such as `https://ntfy.sh/my-topic`. It receives a question when no person is at the desk, and an
    /// urgent one that no person has opened after 30 s. `?auth=` in the URL is kept.
    desk_ntfy: Option<NtfyTopic> = "", OptionalTopic;

    /// Address at which people reach this broker, such as `https://broker.example.com`, for links in notifications.
    desk_public_url: Option<WebUrl> = "", OptionalWebUrl;

    /// Show the texts of questions and options in notifications. `false`: only who asks and how urgent it is.
    desk_notify_text: bool = "false", Choice(SWITCH);

    /// Time the broker holds a remark of an agent, so that remarks of several agents appear in the order of their times.
    yap_delay: Duration = "200ms", Span(seconds(0)..=seconds(5));

    section "Shared MCP servers";

    /// Who may describe a backend with a `command`, which is code that runs as the user of the broker: `none`, the file alone
    /// (`configured`), or also administrators of projects over REST and by tools (`admin`). They may add a `url` in any case.
    gateway_commands: GatewayCommands = "configured", Choice(GATEWAY_COMMANDS);

    /// Time the first list of tools waits for backends that are still starting. See docs/gateway.md.
    gateway_list_wait: Duration = "3s", Span(seconds(0)..=seconds(60));

    /// Time a call of a backend's tool may take without a sign of life, unless the backend has a `call_timeout`.
    gateway_call_timeout: Duration = "60s", Span(seconds(1)..=hours(24));

    /// Size of one answer of a backend, unless the backend has a `result_max`. The broker refuses a larger one.
    gateway_result_max: usize = "10MiB", Size(1..=1024);

    /// Whether names of tools and prompts begin with the name of their backend: `always`; `auto`: not if a single backend is
    /// all that clients see, as with `gateway run`; `never`: only where names are ambiguous. See docs/gateway.md.
    gateway_prefix: GatewayPrefix = "always", Choice(GATEWAY_PREFIXES);

    /// Text between the name of a backend and that of its tool, in the names that clients see.
    gateway_separator: String = "__", Separator;

    /// Length of the name of a tool that clients see. Clients and models add a prefix of their own and accept 64.
    gateway_name_len_max: usize = "51", Integer(20..=128);

    section "Logs and metrics";

    /// Least severe level to log, or a filter such as `info,mcp_broker::http=debug`. Logs go to stderr only.
    log_level: String = "info", LogFilter;

    /// Form of the logs: lines to read, or one JSON object per line; `auto` means `pretty` if stderr is a terminal,
    /// otherwise `json`.
    log_format: LogFormat = "auto", Choice(LOG_FORMATS);

    /// Projects that metrics show by name; all others are shown together as `_other`.
    metrics_projects_max: usize = "50", Integer(0..=1000);

    /// Port that serves `/metrics` and nothing else, on `host`; `port` then does not serve it. 0 takes a free one. Requests
    /// may name any host.
    metrics_port: Option<u16> = "", OptionalPort;

    /// File whose first line is a token that is valid for `/metrics` only, in addition to the admin key. The broker reads it
    /// again when it changes.
    metrics_token_file: Option<PathBuf> = "", FilePath;

    section "rubberduck-mcp";

    /// Port on the loopback interface for the MCP servers and consoles of rubberduck-mcp, whose own port is 8765; empty or
    /// `off` for none. 0 takes a free one. They use the same desk as all other agents and people. If another program has the
    /// port, the broker logs it and continues without.
    rubberduck_port: Option<u16> = "", OptionalPort;

    /// Project whose desk `rubberduck_port` serves.
    rubberduck_project: Option<String> = "default", Word;

    /// Serve every program of this machine at `rubberduck_port`. `false`: only those that run as the user of the broker, which
    /// is known on Linux and on no other system.
    rubberduck_trust_loopback: bool = "false", Choice(SWITCH);
}

const MB: usize = 1024 * 1024;

const SWITCH: &[(&str, bool)] = &[("true", true), ("false", false)];

const STORAGES: &[(&str, StorageKind)] = &[
    ("memory", StorageKind::Memory),
    ("disk", StorageKind::Disk),
    ("redis", StorageKind::Redis),
];

const REDIS_FALLBACKS: &[(&str, RedisFallback)] = &[("none", RedisFallback::None), ("memory", RedisFallback::Memory)];

const GATEWAY_PREFIXES: &[(&str, GatewayPrefix)] = &[
    ("always", GatewayPrefix::Always),
    ("auto", GatewayPrefix::Auto),
    ("never", GatewayPrefix::Never),
];

const CLARIFY_WAYS: &[(&str, ClarifyBy)] = &[
    ("desk", ClarifyBy::Desk),
    ("desk,client", ClarifyBy::DeskThenClient),
    ("client,desk", ClarifyBy::ClientThenDesk),
    ("client", ClarifyBy::ClientThenDesk),
];

const TOOL_SETS: &[(&str, ToolSet)] = &[
    (ToolSet::Core.as_str(), ToolSet::Core),
    (ToolSet::Agent.as_str(), ToolSet::Agent),
    (ToolSet::Full.as_str(), ToolSet::Full),
];

const GATEWAY_COMMANDS: &[(&str, GatewayCommands)] = &[
    ("none", GatewayCommands::None),
    ("configured", GatewayCommands::Configured),
    ("admin", GatewayCommands::Admin),
];

const LOG_FORMATS: &[(&str, LogFormat)] = &[
    ("auto", LogFormat::Auto),
    ("pretty", LogFormat::Pretty),
    ("json", LogFormat::Json),
];

impl Config {
    /// The open files that `connections_max` needs.
    pub fn files_wanted(&self) -> u64 {
        /// Files that are open besides the connections.
        const OTHERS: u64 = 256;
        // A forwarded request holds a connection to another replica, too.
        let files_each = match self.storage {
            StorageKind::Redis => 2,
            StorageKind::Memory | StorageKind::Disk => 1,
        };
        files_each * self.connections_max as u64 + OTHERS
    }

    /// The largest message in bytes, on every transport.
    pub fn max_payload_bytes(&self) -> usize {
        self.max_payload_mb * MB
    }

    /// Bytes of the budget for what all connections are receiving.
    pub fn inbound_buffer_bytes(&self) -> usize {
        self.inbound_buffer_mb * MB
    }

    /// Bytes of the budget for answers and pushes of all connections.
    pub fn outbound_buffer_bytes(&self) -> usize {
        self.outbound_buffer_mb * MB
    }

    /// The bytes of a message budget of `mb` MB; always enough for the largest message and its envelope.
    pub fn message_budget_bytes(&self, mb: usize) -> usize {
        mb.max(self.max_payload_mb + 1) * 1024 * 1024
    }

    /// The digest of the admin key, from the setting or the file.
    ///
    /// # Errors
    /// The reason when the file cannot be read or holds no key.
    pub fn admin_digest(&self) -> Result<Option<KeyDigest>, String> {
        let Some(path) = &self.admin_key_file else {
            return Ok(self.admin_key.clone());
        };
        match AdminKey.parse(&first_line(path)?) {
            Ok(Some(digest)) => Ok(Some(digest)),
            _ => Err("its first line is not a key".to_owned()),
        }
    }

    /// The secret of webhooks and links; None without `desk_secret_file`.
    ///
    /// # Errors
    /// The reason when the file cannot be read or holds no secret.
    pub fn desk_secret(&self) -> Result<Option<DeskSecret>, String> {
        let Some(path) = &self.desk_secret_file else {
            return Ok(None);
        };
        let secret = DeskSecret::parse(&first_line(path)?);
        secret
            .map(Some)
            .ok_or_else(|| "its first line is not a secret".to_owned())
    }

    /// The URL of Redis, from the setting or a file, with the password of a file.
    ///
    /// # Errors
    /// The reason when a file cannot be read or holds no URL of Redis, or two passwords are given.
    pub fn redis_address(&self) -> Result<RedisUrl, String> {
        if let Some(path) = &self.redis_password_file {
            let url = self.redis_url.with_password(&first_line(path)?);
            return url.ok_or_else(|| "redis_url has a password".to_owned());
        }
        let Some(path) = &self.redis_url_file else {
            return Ok(self.redis_url.clone());
        };
        let url = RedisAddress.parse(&first_line(path)?);
        url.map_err(|_| "its first line is not a URL of Redis".to_owned())
    }

    /// The defaults of backends, for what their tables leave out.
    pub const fn backend_defaults(&self) -> BackendDefaults {
        BackendDefaults {
            call_timeout: self.gateway_call_timeout,
            result_bytes_max: self.gateway_result_max * 1024 * 1024,
            commands: self.gateway_commands,
        }
    }

    /// Whether the listener is reachable from this machine only.
    pub fn is_loopback(&self) -> bool {
        self.host.to_canonical().is_loopback()
    }

    /// Warnings for the operator at the start: settings that are allowed and probably a mistake.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.is_loopback() && self.allow_anonymous && !self.enable_auth {
            warnings.push(
                "authentication is off, and allow_anonymous lets every user of this machine in: they may act as each of \
                 your agents and read what it gets; set enable_auth = true, or leave allow_anonymous out",
            );
        }
        if !self.is_loopback() {
            if !self.enable_auth {
                warnings.push(
                    "authentication is off, and this address can be reached from other machines: every caller may act as \
                     each of your agents, read what it gets and send in its name; set enable_auth = true, or listen on \
                     127.0.0.1",
                );
                if self.admin_key.is_none() && self.admin_key_file.is_none() {
                    warnings
                        .push("every caller that reaches this address may administer projects: no admin key is set");
                }
            }
            if self.allowed_hosts.iter().all(|name| is_loopback_name(name)) {
                warnings.push("allowed_hosts holds only loopback names: requests to any other name will be refused");
            }
        }
        if self.storage == StorageKind::Redis && self.redis_fallback == RedisFallback::Memory {
            warnings.push("redis_fallback is memory: use it for a single broker only, because several would not share their state");
        }
        if self.cors_origins.iter().any(|origin| origin == "*") {
            warnings.push("cors_origins is *: every web page that a user opens may call the broker");
        }
        if self.desk_ntfy.is_some() && (self.desk_secret_file.is_none() || self.desk_public_url.is_none()) {
            warnings
                .push("desk_ntfy sends notifications without buttons: they need desk_secret_file and desk_public_url");
        }
        let warnings = warnings.into_iter().map(ToOwned::to_owned);
        self.notes.iter().cloned().chain(warnings).collect()
    }
}

/// The first line of a file, without spaces around it. The error is the reason why it cannot be read.
fn first_line(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn is_loopback_name(name: &str) -> bool {
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
