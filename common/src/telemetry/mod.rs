//! The log of the process, and the spans of its traces.
//!
//! `logs` is the form of the log, `log_file` a file for it, `non_blocking` a way to stderr that never waits, `fields` the names in it, `filter` what is logged. `http` has the trace of an HTTP
//! request, `traces` what records spans, `queue` and `exporter` their way to the collector, `settings` the variables.

mod counts;
mod exporter;
pub mod fields;
mod filter;
mod http;
mod log_file;
mod logs;
mod non_blocking;
mod queue;
mod settings;
mod traces;

use std::io::{self, IsTerminal, stderr};

use tracing_subscriber::{
    Layer, Registry,
    filter::Targets,
    fmt::{MakeWriter, writer::MakeWriterExt},
    layer::SubscriberExt,
    registry,
    util::SubscriberInitExt,
};

pub use filter::{FILTER_LEN_MAX, FOR_SECONDS_MAX, LogFilterState, change_filter, filter_state, revert_filter};
pub use http::{RequestSpan, request_trace, trace_of};
pub use log_file::{LogFile, LogFileWriter, older_file};
pub use logs::{LineTime, print_error, print_status};
pub use non_blocking::NonBlockingLog;
pub use traces::shut_down;

use crate::config::Config;

/// The target under which the log has what the programs of backends write to stderr.
pub const STDERR_TARGET: &str = "backend_stderr";

/// Starts logging, according to `log_level` and `log_format`, and traces, according to the variables of OpenTelemetry. A
/// second call has no effect.
pub fn init(config: &Config) {
    install(config, stderr, LineTime::Standard);
}

/// Starts logging like [`init`], to a file.
pub fn init_to_file(config: &Config, file: LogFile) {
    install(config, file, LineTime::Standard);
}

/// Starts logging like [`init`], for a process that keeps running while nothing reads its stderr; to a file as well, if there is
/// one. The log lasts until it is dropped. Lines for people begin with the time in this form.
///
/// # Errors
/// The thread that writes it cannot be started.
pub fn init_non_blocking(config: &Config, file: Option<LogFile>, time: LineTime) -> io::Result<NonBlockingLog> {
    let is_json = logs::is_json(config);
    let log = NonBlockingLog::on_stderr(move |dropped| {
        let lines = if dropped == 1 { "line" } else { "lines" };
        let line = format!("{dropped} {lines} of the log were dropped: stderr was not read");
        logs::format_line(is_json, "WARN", &line)
    })?;
    match file {
        Some(file) => install(config, log.writer().and(file), time),
        None => install(config, log.writer(), time),
    }
    // What is written to stderr in another way may wait for its reader.
    log_panics();
    Ok(log)
}

/// Has panics logged.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let reason = panic.payload_as_str().unwrap_or_default();
        tracing::error!(place, reason, "a part of the broker panicked");
    }));
}

fn install(config: &Config, writer: impl for<'writer> MakeWriter<'writer> + Send + Sync + 'static, time: LineTime) {
    let is_terminal = stderr().is_terminal();
    let is_json = logs::is_json(config);
    if is_json {
        log_panics();
    }
    let filter = filter::install(&config.log_level);
    let log: Box<dyn Layer<Registry> + Send + Sync> = if is_json {
        logs::json::<Registry, _>(writer).with_filter(filter).boxed()
    } else {
        logs::pretty::<Registry, _>(writer, is_terminal, time)
            .with_filter(filter)
            .boxed()
    };
    let mut layers = vec![log];
    if let Some(tracer) = traces::install() {
        let exported = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_level(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_filter(Targets::new().with_target(http::SPAN_TARGET, tracing::Level::TRACE));
        layers.push(exported.boxed());
    }
    let installed = registry().with(layers).try_init();
    drop(installed);
    settings::log_ignored_values();
    traces::log_state();
}

/// Whether requests need a span: one that is exported, or one of the log. The latter is decided at the start.
pub fn has_request_spans() -> bool {
    actors::trace::is_on() || tracing::enabled!(tracing::Level::DEBUG)
}
