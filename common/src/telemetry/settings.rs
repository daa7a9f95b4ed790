//! The variables of OpenTelemetry, as far as the SDK does not read them by itself. As its specification says, a value
//! that cannot be used is ignored, and the log names it: traces never keep the broker from starting.

use std::{env, time::Duration};

/// How the collector is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    Grpc,
    HttpProtobuf,
}

const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Longest time of one export that a variable can ask for: the end of the process may have to wait for it.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
const QUEUE_LEN_DEFAULT: usize = 2048;
/// Most spans that wait that a variable can ask for, about 600 bytes each.
const QUEUE_LEN_MAX: usize = 65_536;

const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The value of `OTEL_EXPORTER_OTLP_TRACES_…`, else of `OTEL_EXPORTER_OTLP_…`, with the name of its variable.
fn exporter_variable(setting: &str) -> Option<(String, String)> {
    ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"]
        .into_iter()
        .map(|prefix| format!("{prefix}{setting}"))
        .find_map(|name| Some((variable(&name)?, name)))
}

/// Whether spans are to be exported: an endpoint is set, and nothing switches traces off.
pub fn is_wanted() -> bool {
    let says = |name: &str, word: &str| variable(name).is_some_and(|value| value.trim().eq_ignore_ascii_case(word));
    exporter_variable("ENDPOINT").is_some()
        && !says("OTEL_SDK_DISABLED", "true")
        && !says("OTEL_TRACES_EXPORTER", "none")
}

/// The protocol; `http/protobuf` unless a variable says otherwise.
pub fn protocol() -> OtlpProtocol {
    let named = exporter_variable("PROTOCOL").and_then(|(value, _)| parse_protocol(&value));
    named.unwrap_or(OtlpProtocol::HttpProtobuf)
}

fn parse_protocol(value: &str) -> Option<OtlpProtocol> {
    match value.trim() {
        "grpc" => Some(OtlpProtocol::Grpc),
        "http/protobuf" => Some(OtlpProtocol::HttpProtobuf),
        _ => None,
    }
}

/// Longest time of one export.
pub fn timeout() -> Duration {
    let ms = exporter_variable("TIMEOUT").and_then(|(value, _)| value.trim().parse().ok());
    ms.map_or(TIMEOUT_DEFAULT, Duration::from_millis).min(TIMEOUT_MAX)
}

/// Most spans that wait for the exporter.
pub fn queue_len_max() -> usize {
    let len = variable("OTEL_BSP_MAX_QUEUE_SIZE").and_then(|value| value.trim().parse().ok());
    len.unwrap_or(QUEUE_LEN_DEFAULT).clamp(1, QUEUE_LEN_MAX)
}

/// Logs the variables whose values are ignored. Values are not logged: headers may be secret.
pub fn log_ignored_values() {
    if !is_wanted() {
        return;
    }
    for (variable, allowed) in ignored_values() {
        tracing::warn!(
            variable,
            allowed,
            "the value of this variable cannot be used and is ignored"
        );
    }
}

/// The variables with a value that is ignored, and what they allow.
fn ignored_values() -> Vec<(String, &'static str)> {
    let mut ignored = Vec::new();
    let mut check = |found: Option<(String, String)>, allowed: &'static str, is_valid: fn(&str) -> bool| {
        ignored.extend(
            found
                .filter(|(value, _)| !is_valid(value))
                .map(|(_, name)| (name, allowed)),
        );
    };
    let named = |name: &str| Some((variable(name)?, name.to_owned()));
    let is_number = |value: &str| value.parse::<u64>().is_ok();
    check(exporter_variable("PROTOCOL"), "grpc, http/protobuf", |value| {
        parse_protocol(value).is_some()
    });
    check(exporter_variable("TIMEOUT"), "milliseconds, at most 60000", is_number);
    check(
        named("OTEL_TRACES_SAMPLER"),
        "one of the samplers in docs/traces.md",
        |value| SAMPLERS.contains(&value),
    );
    if variable("OTEL_TRACES_SAMPLER").is_some_and(|sampler| sampler.ends_with("traceidratio")) {
        check(named("OTEL_TRACES_SAMPLER_ARG"), "a ratio from 0 to 1", |value| {
            value.parse::<f64>().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio))
        });
    }
    for name in [
        "OTEL_BSP_MAX_QUEUE_SIZE",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
        "OTEL_BSP_SCHEDULE_DELAY",
    ] {
        check(named(name), "a whole number", is_number);
    }
    ignored
}
