//! Settings that follow from others, the environment of the original broker, and variables that do nothing.

use std::time::Duration;

use super::*;

#[test]
fn an_environment_of_the_original_broker_is_taken_or_refused_with_what_to_set_instead() {
    let original = || {
        Start::new()
            .env("MCP_BROKER_LOG_FORMAT", "text")
            .env("MCP_BROKER_HEARTBEAT_INTERVAL", "30")
    };
    let config = original().config();
    assert_eq!(
        (config.log_format, config.stale_threshold),
        (LogFormat::Pretty, Duration::from_secs(90))
    );
    assert_eq!(config.disconnect_threshold, Duration::from_secs(180));
    let expected = [
        "log_format = text is taken as pretty (MCP_BROKER_LOG_FORMAT)",
        "stale_threshold = 90s and disconnect_threshold = 3m, because heartbeat_interval is 30s",
    ];
    assert_eq!(config.warnings(), expected);
    let line = original().env("MCP_BROKER_AUTH_SECRET", "hunter2").refusal();
    assert!(
        line.contains("did you mean MCP_BROKER_ADMIN_KEY?") && !line.contains("hunter2"),
        "{line}"
    );
    let line = original().env("MCP_BROKER_HOST", "0.0.0.0").refusal();
    assert!(line.contains("enable_auth = true or allow_anonymous = true"), "{line}");
}

#[test]
fn a_variable_that_does_nothing_and_buttons_that_are_missing_are_warnings() {
    let env = [(NOTIFY_TEXT_ENV.into(), "true".into()), ("PATH".into(), "/bin".into())];
    let warning = "MCP_BROKER_NOTIFY_TEXT has no effect on a broker: it is a variable of clients; the setting is \
                   desk_notify_text";
    assert_eq!(unused_variables(&env), [warning]);
    let warnings = Start::new()
        .flag("desk_ntfy", "https://ntfy.sh/topic")
        .config()
        .warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("without buttons"),
        "{warnings:?}"
    );
}

#[test]
fn a_connection_is_kept_longer_than_balancers_keep_one() {
    assert!(Start::new().config().keep_alive > Duration::from_hours(1));
}

#[test]
fn thresholds_must_increase_and_the_error_names_a_configured_one() {
    let line = Start::new().flag("stale_threshold", "60s").refusal();
    let rest = r#"is not allowed; allowed: shorter than disconnect_threshold = "60s" (default)"#;
    assert_eq!(line, format!(r#"stale_threshold = "60s" (--stale-threshold) {rest}"#));
    let line = Start::new().flag("disconnect_threshold", "20s").refusal();
    let rest = r#"is not allowed; allowed: longer than stale_threshold = "30s" (default)"#;
    assert_eq!(
        line,
        format!(r#"disconnect_threshold = "20s" (--disconnect-threshold) {rest}"#)
    );
    let line = Start::new()
        .flag("heartbeat_interval", "40s")
        .flag("stale_threshold", "30s")
        .refusal();
    assert!(line.starts_with("heartbeat_interval = \"40s\""), "{line}");
    let line = Start::new()
        .flag("heartbeat_interval", "20s")
        .env("MCP_BROKER_STALE_THRESHOLD", "15")
        .refusal();
    assert!(
        line.contains("shorter than stale_threshold = \"15\" (MCP_BROKER_STALE_THRESHOLD)"),
        "{line}"
    );
}
