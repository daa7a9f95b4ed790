//! Logging. Logs go to stderr; stdout is for the output of commands.

use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write as _, stderr};

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use serde_json::json;
use tracing::field::Field;
use tracing::{Span, Subscriber};
use tracing_actix_web::RootSpanBuilder;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{FormatFields, Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, field::MakeExt, registry};

use crate::config::{Config, LogFormat};

/// The framework logs its threads at start and stop; only its warnings are of use to operators.
const FRAMEWORK_LEVEL: &str = "actix_server=warn";

/// Starts logging for the process, according to `log_level` and `log_format`. A second call has no effect.
pub fn init(config: &Config) {
    let is_terminal = stderr().is_terminal();
    let is_json = is_json(config);
    // The rule of the setting has parsed the same text, so `info` is a fallback without use. Directives of the setting
    // come last and win over the framework's level.
    let filter = EnvFilter::try_new(format!("{FRAMEWORK_LEVEL},{}", config.log_level));
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info"));
    if is_json {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let reason = panic.payload_as_str().unwrap_or_default();
            tracing::error!(place, reason, "a part of the broker panicked");
        }));
    }
    let installed = if is_json {
        registry().with(json(stderr).with_filter(filter)).try_init()
    } else {
        registry()
            .with(pretty(stderr, is_terminal).with_filter(filter))
            .try_init()
    };
    drop(installed);
}

fn is_json(config: &Config) -> bool {
    match config.log_format {
        LogFormat::Auto => !stderr().is_terminal(),
        LogFormat::Pretty => false,
        LogFormat::Json => true,
    }
}

/// Prints a line about the start or the end to stderr, for every `log_level`.
pub fn print_status(config: &Config, level: &str, line: &str) {
    let _ = writeln!(stderr(), "{}", format_line(is_json(config), level, line));
}

fn format_line(is_json: bool, level: &str, line: &str) -> String {
    if is_json {
        json!({"level": level, "message": line, "target": "mcp_broker"}).to_string()
    } else if level == "ERROR" {
        format!("error: {line}")
    } else {
        line.to_owned()
    }
}

/// Prints an error from before the configuration is known; as JSON where `log_format` asks for it.
pub fn print_error(is_json: bool, line: &str) {
    let _ = writeln!(stderr(), "{}", format_line(is_json, "ERROR", line));
}

/// The span of an HTTP request. It excludes the query, where a client of 2024-11-05 sends its session id, a secret.
pub struct RequestSpan;

impl RootSpanBuilder for RequestSpan {
    fn on_request_start(request: &ServiceRequest) -> Span {
        tracing::debug_span!(
            "request",
            http.method = request.method().as_str(),
            http.path = request.path(),
            http.status_code = tracing::field::Empty,
        )
    }

    fn on_request_end<B: MessageBody>(span: Span, outcome: &Result<ServiceResponse<B>, actix_web::Error>) {
        let status = match outcome {
            Ok(response) => response.status(),
            Err(error) => error.as_response_error().status_code(),
        };
        span.record("http.status_code", status.as_u16());
    }
}

/// One JSON object per line. JSON escapes line breaks.
fn json<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> registry::LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        .log_internal_errors(false)
        .with_writer(writer)
}

/// One line per event, for people.
fn pretty<S, W>(writer: W, ansi: bool) -> impl Layer<S>
where
    S: Subscriber + for<'span> registry::LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .fmt_fields(escaping_fields())
        .with_ansi(ansi)
        .log_internal_errors(false)
        .with_writer(writer)
}

/// Escapes control characters in the fields of an event. The library escapes terminal control sequences only; a line
/// break would let a caller forge a line of the log.
fn escaping_fields() -> impl for<'writer> FormatFields<'writer> + 'static {
    debug_fn(
        |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| match field.name() {
            "message" => write!(Escaped(writer), "{value:?}"),
            name => write!(Escaped(writer), "{name}={value:?}"),
        },
    )
    .delimited(" ")
}

struct Escaped<'a, W>(&'a mut W);

impl<W: fmt::Write> fmt::Write for Escaped<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| {
            if c.is_control() {
                write!(self.0, "{}", c.escape_default())
            } else {
                self.0.write_char(c)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Sink {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    const EVIL: &str = "bob\n2026 ERROR forged\u{1b}[2J\u{9b}31m\u{7f}\r\0";

    fn log_evil() {
        let span = tracing::info_span!("session", name = %EVIL);
        let _inside = span.enter();
        tracing::info!(name = %EVIL, quoted = EVIL, debug = ?EVIL, "hello {EVIL}");
    }

    #[test]
    fn a_pretty_event_is_one_line_for_all_values() {
        let sink = Sink::default();
        let writer = sink.clone();
        tracing::subscriber::with_default(registry().with(pretty(move || writer.clone(), false)), log_evil);
        let text = sink.text();
        assert_eq!(
            text.chars().filter(|c| c.is_control()).collect::<String>(),
            "\n",
            "{text:?}"
        );
        assert!(text.contains("session{name=bob\\n2026"), "{text}");
        assert!(text.contains("quoted=\"bob\\n2026"), "{text}");
    }

    #[test]
    fn a_json_event_is_one_object_on_one_line() {
        let sink = Sink::default();
        let writer = sink.clone();
        tracing::subscriber::with_default(registry().with(json(move || writer.clone())), log_evil);
        let text = sink.text();
        assert_eq!(text.lines().count(), 1, "{text:?}");
        let event: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(event["name"], EVIL);
        assert_eq!(event["quoted"], EVIL);
        assert_eq!(event["message"], format!("hello {EVIL}"));
        assert_eq!(event["level"], "INFO");
    }
}
