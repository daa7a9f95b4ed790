//! Tests of the settings: precedence, rules and error messages.

mod backends;
mod original;
mod secrets;
mod table;

use std::ffi::OsString;
use std::path::PathBuf;

use actors::model::KeyDigest;

use std::num::NonZeroUsize;

use super::{
    rules::{hours, millis, seconds},
    *,
};

/// The inputs of one start: file, environment and flags.
#[derive(Default)]
struct Start {
    file: Option<PathBuf>,
    env: Vec<(OsString, OsString)>,
    flags: Vec<Flag>,
}

impl Start {
    fn new() -> Self {
        Self::default()
    }

    fn file(mut self, name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mcp-broker-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        self.file = Some(path);
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    fn flag(mut self, key: &'static str, value: &str) -> Self {
        self.flags.push((key, value.into()));
        self
    }

    fn load(self) -> Result<Config, ConfigError> {
        let result = load(self.file.clone().map(Into::into), self.flags, self.env);
        self.file.map(std::fs::remove_file).transpose().unwrap();
        result
    }

    fn config(self) -> Config {
        self.load().unwrap_or_else(|error| panic!("{error}"))
    }

    fn refusal(self) -> String {
        let line = self.load().unwrap_err().to_string();
        assert!(!line.contains(char::is_control), "{line:?}");
        line
    }
}

#[test]
fn the_defaults_pass_every_rule() {
    let config = Start::new().config();
    assert_eq!((config.host.to_string().as_str(), config.port), ("127.0.0.1", 8000));
    assert_eq!(
        (config.queue_capacity, config.queue_warning, config.delivery_limit),
        (1000, 0.9, 5)
    );
    assert_eq!(
        (config.heartbeat_interval, config.stale_threshold),
        (seconds(10), seconds(30))
    );
    assert_eq!(
        (config.disconnect_threshold, config.session_retention),
        (seconds(60), hours(24))
    );
    assert_eq!(
        (config.shutdown_grace, config.max_payload_bytes()),
        (seconds(30), 10 * 1024 * 1024)
    );
    assert_eq!((config.workers, config.connections_max), (None, 25_000));
    assert_eq!(config.allowed_hosts, ["localhost", "127.0.0.1", "::1"]);
    assert_eq!(config.cors_origins, [""; 0]);
    assert_eq!(
        (config.log_level.as_str(), config.log_format),
        ("info", LogFormat::Auto)
    );
    assert_eq!(
        (config.enable_auth, config.allow_anonymous, config.storage),
        (false, false, StorageKind::Memory)
    );
    assert_eq!(config.warnings(), [""; 0]);
}

#[test]
fn flags_beat_environment_beats_file_beats_default() {
    let file = || Start::new().file("layers.toml", "port = 1\ndelivery_limit = 7");
    assert_eq!(file().config().port, 1);
    assert_eq!(file().env("MCP_BROKER_PORT", "2").config().port, 2);
    let all = file().env("MCP_BROKER_PORT", "2").flag("port", "3").config();
    assert_eq!((all.port, all.delivery_limit, all.queue_capacity), (3, 7, 1000));
}

#[test]
fn only_the_value_with_the_highest_precedence_is_checked() {
    assert_eq!(
        Start::new().env("MCP_BROKER_PORT", "x").flag("port", "3").config().port,
        3
    );
}

#[test]
fn the_environment_may_name_the_file_and_the_flag_wins() {
    let path = Start::new().file("named.toml", "port = 5").file.unwrap();
    let start = || Start::new().env("MCP_BROKER_CONFIG", path.to_str().unwrap());
    assert_eq!(start().config().port, 5);
    assert_eq!(start().file("other.toml", "port = 6").config().port, 6);
    std::fs::remove_file(path).unwrap();
}

#[test]
fn toml_and_yaml_are_equivalent() {
    let toml = "host = \"::1\"\nworkers = 3\nqueue_warning = 0.5\nheartbeat_interval = 5\nstale_threshold = \"9500ms\"
        enable_auth = false\ncors_origins = [\"https://a.example\", \"HTTP://localhost:3000\"]\nallowed_hosts = \"[::1], A.b\"";
    let yaml = "host: '::1'\nworkers: 3\nqueue_warning: 0.5\nheartbeat_interval: 5\nstale_threshold: 9500ms
enable_auth: false\ncors_origins: [https://a.example, HTTP://localhost:3000]\nallowed_hosts: '[::1], A.b'";
    let config = Start::new().file("same.toml", toml).config();
    assert_eq!(config, Start::new().file("same.yaml", yaml).config());
    assert_eq!(config, Start::new().file("same.yml", yaml).config());
    assert_eq!(config.workers, NonZeroUsize::new(3));
    assert_eq!(
        (config.heartbeat_interval, config.stale_threshold),
        (seconds(5), millis(9500))
    );
    assert_eq!(config.cors_origins, ["https://a.example", "http://localhost:3000"]);
    assert_eq!(config.allowed_hosts, ["::1", "a.b"]);
}

#[test]
fn an_empty_file_changes_nothing() {
    assert_eq!(Start::new().file("empty.toml", "").config(), Start::new().config());
    assert_eq!(
        Start::new().file("empty.yaml", "# nothing\n").config(),
        Start::new().config()
    );
}

#[test]
fn an_unusable_file_is_reported_in_one_line() {
    let missing = load(Some("/nowhere/broker.toml".into()), Vec::new(), [])
        .unwrap_err()
        .to_string();
    assert!(
        missing.starts_with("config = \"/nowhere/broker.toml\" (--config) cannot be used: No such file"),
        "{missing}"
    );
    for (name, text) in [
        ("broken.toml", "port = = 1\n"),
        ("twice.toml", "port = 1\nport = 2"),
        ("broken.yaml", "a: [\nb: }"),
        ("list.yaml", "- port\n"),
        ("many.yaml", "port: 1\n---\nport: 2\n"),
        ("broker.ini", "port=1"),
    ] {
        let line = Start::new().file(name, text).refusal();
        assert!(
            line.contains(name) && line.contains("cannot be used: ") && line.contains("allowed: a readable"),
            "{line}"
        );
    }
}

#[test]
fn a_broken_file_is_not_quoted() {
    let line = Start::new().file("secret.toml", "password = \"hunter2\n").refusal();
    assert!(line.contains("line 1, column") && !line.contains("hunter2"), "{line}");
}

/// Values that are not allowed, by setting.
const REFUSED_VALUES: &[(&str, &[&str])] = &[
    ("host", &["example.com", "1.2.3", ""]),
    ("port", &["65536", "-1", "http", "", "80.5"]),
    ("allow_anonymous", &["yes", "1", "TRUE"]),
    ("enable_auth", &["on"]),
    ("admin_key", &["fifteen-letters", "with a space in it all"]),
    ("enable_multi_project", &["no"]),
    ("rate_limit", &["-1", "10000001", "1/s"]),
    ("connections_per_address", &["0", "all"]),
    ("jwt_issuer", &["a b"]),
    (
        "allowed_hosts",
        &["localhost:8000", "http://a", "a,,b", "*.example.com", "a b"],
    ),
    (
        "cors_origins",
        &[
            "a.example",
            "https://a.example/",
            "https://",
            "https://a:http",
            "null",
            "://a",
        ],
    ),
    ("connections_max", &["0", "1000001"]),
    ("workers", &["0", "1025", "all"]),
    ("storage", &["sqlite", "Memory"]),
    ("queue_capacity", &["0", "1e3", "18446744073709551616"]),
    ("queue_warning", &["0", "1.01", "NaN", "-0.5", "90%"]),
    ("clarify_by", &["mail", "desk, client"]),
    ("tools", &["all", "Full"]),
    (
        "max_payload_mb",
        &["0", "65", "10MB", "65MiB", "1GiB", "10 MiB", "MiB", "1.5MiB"],
    ),
    ("delivery_limit", &["0", "1001"]),
    (
        "heartbeat_interval",
        &[
            "0",
            "99ms",
            "2h",
            "10 s",
            "10x",
            "s",
            "1.5s",
            "-1s",
            "999999999999999999d",
        ],
    ),
    ("stale_threshold", &["0s", "25h"]),
    ("disconnect_threshold", &["forever"]),
    ("session_retention", &["366d"]),
    ("shutdown_grace", &["61m"]),
    ("log_level", &["inof", "", "3", "info,hyper", "a=loud", "info,"]),
    ("log_format", &["xml"]),
    ("storage", &["", "Memory", "postgres"]),
    ("data_dir", &[""]),
    ("redis_url", &["", "localhost:6379", "redis", "redish://cache"]),
    (
        "replica_address",
        &["8000", "10.1.2.3", "0.0.0.0:8000", "10.1.2.3:0", "broker:8000"],
    ),
    ("redis_fallback", &["disk", ""]),
    ("wait_for_replicas", &["17", "-1"]),
    ("storage_deadline", &["49ms", "61s"]),
    ("desk", &["yes"]),
    ("desk_capacity", &["0", "1001"]),
    ("desk_retention", &["59m", "366d"]),
    ("yap_delay", &["6s"]),
    ("gateway_list_wait", &["61s"]),
    ("gateway_call_timeout", &["0s", "25h"]),
    ("gateway_result_max", &["0", "1025", "2GiB"]),
    ("gateway_prefix", &["", "sometimes"]),
    ("gateway_separator", &["", "::", "____"]),
    ("gateway_name_len_max", &["19", "129"]),
    (
        "desk_webhooks",
        &[
            "hooks.example.com",
            "ftp://a",
            "https://",
            "https://u@a",
            "https://a,",
            "https://a,https://a",
        ],
    ),
    (
        "desk_ntfy",
        &[
            "my-topic",
            "http://u:p@ntfy.sh/t",
            "https://ntfy.sh",
            "https://ntfy.sh/a/b",
        ],
    ),
    ("desk_public_url", &["broker.example.com"]),
    ("desk_notify_text", &["yes"]),
];

#[test]
fn the_error_for_a_value_names_key_origin_value_and_allowed_values() {
    for &(key, values) in REFUSED_VALUES {
        let setting = SETTINGS.iter().find(|setting| setting.key == key).unwrap();
        for value in values {
            let line = Start::new().env(&setting.env(), value).refusal();
            let shown = if [
                "admin_key",
                "redis_url",
                "desk_webhooks",
                "desk_ntfy",
                "desk_public_url",
            ]
            .contains(&key)
            {
                "(hidden)".to_owned()
            } else {
                format!("{value:?}")
            };
            let expected = format!(
                "{key} = {shown} ({}) is not allowed; allowed: {}",
                setting.env(),
                (setting.allowed)()
            );
            assert_eq!(line, expected);
        }
    }
}

#[test]
fn bounds_are_included() {
    for (key, value) in [
        ("port", "0"),
        ("port", "65535"),
        ("queue_warning", "1"),
        ("queue_warning", "0.001"),
        ("max_payload_mb", "64"),
        ("max_payload_mb", "64MiB"),
        ("gateway_result_max", "1GiB"),
        ("heartbeat_interval", "100ms"),
        ("session_retention", "365d"),
        ("shutdown_grace", "0"),
        ("shutdown_grace", "1h"),
        ("workers", "auto"),
        ("host", "localhost"),
        ("host", "[::1]"),
        ("host", "::ffff:127.0.0.1"),
        ("log_level", "DEBUG"),
        ("log_level", "off"),
        ("log_level", "warn,mcp_broker::http=debug"),
        ("allowed_hosts", "*"),
        ("cors_origins", "*"),
        ("cors_origins", "http://[::1]:80, vscode-webview://abc"),
        ("cors_origins", ""),
        ("port", " 80 "),
    ] {
        let setting = SETTINGS.iter().find(|setting| setting.key == key).unwrap();
        Start::new().env(&setting.env(), value).config();
    }
}

#[test]
fn authentication_requires_a_way_to_make_keys() {
    let line = Start::new().file("auth.toml", "enable_auth = true").refusal();
    assert!(
        line.contains("auth.toml) needs admin_key, admin_key_file or jwt_issuer: "),
        "{line}"
    );
    let key = "an-admin-key-of-some-length";
    let with_key = || {
        Start::new()
            .flag("enable_auth", "true")
            .env("MCP_BROKER_ADMIN_KEY", key)
    };
    let digest = with_key().config().admin_digest().unwrap().unwrap();
    assert!(digest.matches(&KeyDigest::of_key(key)));
    assert!(!format!("{:?}", with_key().config()).contains(key));
    let config = with_key().flag("host", "0.0.0.0").config();
    assert!(
        !config
            .warnings()
            .iter()
            .any(|warning| warning.contains("authentication is off"))
    );
}

#[test]
fn jwt_settings_are_given_together() {
    let line = Start::new().flag("jwt_issuer", "https://issuer.example").refusal();
    assert!(line.contains("--jwt-issuer) needs jwt_audience"), "{line}");
    let config = Start::new()
        .flag("jwt_issuer", "https://issuer.example")
        .flag("jwt_audience", "https://broker.example/mcp")
        .flag("jwt_jwks", "keys.json")
        .flag("enable_auth", "true")
        .config();
    assert_eq!(config.jwt_scope_claim.as_deref(), Some("scope"));
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest_known_one() {
    let line = Start::new().env("MCP_BROKER_QUEUE_CAPACTY", "5").refusal();
    assert!(
        line.starts_with("queue_capacty = \"5\" (MCP_BROKER_QUEUE_CAPACTY) is not a known setting"),
        "{line}"
    );
    assert!(line.ends_with("; did you mean MCP_BROKER_QUEUE_CAPACITY?"), "{line}");
    let line = Start::new().env("MCP_BROKER_Port", "5").refusal();
    assert!(
        line.contains("(MCP_BROKER_Port) is not a known setting; did you mean MCP_BROKER_PORT?"),
        "{line}"
    );
    let line = Start::new().file("typo.yaml", "queue-capacity: 5").refusal();
    assert!(
        line.ends_with("typo.yaml) is not a known setting; did you mean queue_capacity?"),
        "{line}"
    );
    let line = Start::new().file("table.toml", "[http]\nport = 1").refusal();
    assert!(line.contains("http = ") && !line.contains("did you mean"), "{line}");
    let (_, allowed) = line.split_once("; allowed: ").unwrap();
    assert!(
        allowed.ends_with(" more, which mcp-broker serve --help lists") && allowed.matches(", ").count() == 5,
        "{line}"
    );
    let line = Start::new().file("b.toml", "[backend.a]\ncommand = 'x'").refusal();
    assert!(line.ends_with("did you mean backends?"), "{line}");
    let line = Start::new()
        .file("s.toml", "[backends.a]\ncommand = 'x'\nsharing = 'user'")
        .refusal();
    assert!(
        line.contains("backends.a.sharing")
            && line.contains("`user` is not allowed; allowed: `project`, `key`, `session`"),
        "{line}"
    );
}

#[test]
fn a_file_may_not_nest_or_leave_out_a_value() {
    for (name, text, key) in [
        ("array.toml", "port = [8000]", "port"),
        ("table.yaml", "port: {a: 1}", "port"),
        ("nil.yaml", "allowed_hosts:\n", "allowed_hosts"),
        ("nested.toml", "allowed_hosts = [[\"a\"]]", "allowed_hosts"),
    ] {
        let line = Start::new().file(name, text).refusal();
        assert!(
            line.starts_with(key) && line.contains("is not allowed; allowed: "),
            "{line}"
        );
    }
}

#[test]
fn a_value_cannot_break_the_line_or_control_the_terminal() {
    let line = Start::new().env("MCP_BROKER_PORT", "1\n2\u{1b}[31m\u{9b}").refusal();
    assert!(
        line.starts_with(r#"port = "1\n2\u{1b}[31m\u{9b}" (MCP_BROKER_PORT)"#),
        "{line}"
    );
    let line = Start::new().env("MCP_BROKER_A\nB\u{1b}", "x").refusal();
    assert!(line.contains("is not a known setting"), "{line}");
    assert!(Start::new().flag("port", &"9".repeat(5000)).refusal().len() < 300);
}

#[cfg(unix)]
#[test]
fn a_value_that_is_not_utf8_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let env = [("MCP_BROKER_PORT".into(), OsString::from_vec(vec![b'8', 0xff]))];
    let line = load(None, Vec::new(), env).unwrap_err().to_string();
    assert!(line.ends_with("is not allowed; allowed: text in UTF-8"), "{line}");
}

#[test]
fn a_configured_budget_must_exceed_the_largest_message_and_a_default_is_raised() {
    for key in [
        "queue_max_mb",
        "waiting_max_mb",
        "dead_letters_max_mb",
        "messages_max_mb",
    ] {
        let line = Start::new().flag(key, "10").refusal();
        let flag = key.replace('_', "-");
        let rest = r#"is not allowed; allowed: more than max_payload_mb = "10MiB" (default)"#;
        assert_eq!(line, format!(r#"{key} = "10" (--{flag}) {rest}"#));
        Start::new().flag(key, "11").config();
    }
    let config = Start::new().flag("max_payload_mb", "64").config();
    assert_eq!(config.message_budget_bytes(config.queue_max_mb), 65 * 1024 * 1024);
    let config = Start::new().config();
    assert_eq!(config.message_budget_bytes(config.queue_max_mb), 32 * 1024 * 1024);
}

#[test]
fn a_public_address_requires_consent() {
    for host in ["0.0.0.0", "::", "192.168.1.5"] {
        let line = Start::new().flag("host", host).refusal();
        assert!(
            line.starts_with(&format!("host = {host:?} (--host) is not allowed; allowed: a loopback")),
            "{line}"
        );
        assert!(line.contains("allow_anonymous = true"), "{line}");
        let config = Start::new().flag("host", host).flag("allow_anonymous", "true").config();
        assert_eq!(config.warnings().len(), 3, "{:?}", config.warnings());
        let config = Start::new()
            .flag("host", host)
            .flag("allow_anonymous", "true")
            .flag("allowed_hosts", "*")
            .config();
        assert_eq!(config.warnings().len(), 2, "{:?}", config.warnings());
    }
}

#[test]
fn allowed_hosts_must_not_be_empty() {
    let line = Start::new().flag("allowed_hosts", "").refusal();
    assert!(
        line.starts_with("allowed_hosts = \"\" (--allowed-hosts) is not allowed; allowed: at least one"),
        "{line}"
    );
}

#[test]
fn kubernetes_service_variables_are_ignored() {
    let linked = || {
        Start::new()
            .env("MCP_BROKER_SERVICE_HOST", "10.0.0.7")
            .env("MCP_BROKER_SERVICE_PORT", "8000")
            .env("MCP_BROKER_SERVICE_PORT_HTTP", "8000")
            .env("MCP_BROKER_PORT_8000_TCP", "tcp://10.0.0.7:8000")
            .env("MCP_BROKER_PORT_8000_TCP_ADDR", "10.0.0.7")
            .env("MCP_BROKER_REDIS_SERVICE_HOST", "10.0.0.8")
            .env("MCP_BROKER_REDIS_PORT", "tcp://10.0.0.8:6379")
    };
    assert_eq!(
        linked().env("MCP_BROKER_PORT", "tcp://10.0.0.7:8000").config().port,
        8000
    );
    assert_eq!(linked().env("MCP_BROKER_PORT", "9000").config().port, 9000);
    assert!(
        linked()
            .env("MCP_BROKER_PORTS", "1")
            .refusal()
            .contains("did you mean MCP_BROKER_PORT?")
    );
    assert!(
        Start::new()
            .env("MCP_BROKER_PORT", "tcp://10.0.0.7:8000")
            .refusal()
            .starts_with("port = ")
    );
}

#[test]
fn the_variables_of_the_client_are_ignored() {
    let client = || {
        Start::new()
            .env("MCP_BROKER_URL", "https://ops.example.com")
            .env("MCP_BROKER_API_KEY", "acme_k1_secret")
    };
    assert_eq!(client().config(), Start::new().config());
    assert!(
        client()
            .env("MCP_BROKER_API_KEYS", "x")
            .refusal()
            .contains("is not a known setting")
    );
    assert!(
        Start::new()
            .flag("url", "x")
            .refusal()
            .contains("is not a known setting")
    );
}

#[test]
fn other_variables_are_ignored() {
    assert_eq!(
        Start::new()
            .env("PORT", "1")
            .env("MCP_BROKERS", "x")
            .env("RUST_LOG", "trace")
            .config()
            .port,
        8000
    );
}
