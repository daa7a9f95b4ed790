//! The form of the log: one JSON object or one line for each event. Logs go to stderr; stdout is for the output of
//! commands. Within a trace each event names it.

use std::fmt::{self, Write as _};
use std::io::{IsTerminal, Write as _, stderr};

use actors::{clock, trace};
use opentelemetry::trace::TraceContextExt;
use serde_json::json;
use tracing::field::Field;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, JsonFields, Writer, debug_fn, format};
use tracing_subscriber::fmt::{
    FmtContext, MakeWriter,
    time::{FormatTime, SystemTime},
};
use tracing_subscriber::{Layer, field::MakeExt, registry};

use super::fields;
use crate::config::{Config, LogFormat};

/// Whether the log is JSON.
pub fn is_json(config: &Config) -> bool {
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

/// A line about the start or the end.
pub fn format_line(is_json: bool, level: &str, line: &str) -> String {
    if is_json {
        let timestamp = clock::rfc3339_text(clock::now().unix_ms);
        json!({"timestamp": timestamp, "level": level, "message": line, "target": "mcp_broker"}).to_string()
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

/// Adds the ids of the trace that the thread works for, if there is one.
struct WithTrace<F> {
    inner: F,
    is_json: bool,
}

/// The trace and the span that the thread works for: of a frame of MCP, or of an HTTP request.
fn current_trace() -> Option<(String, String)> {
    if let Some((trace, span)) = trace::current() {
        return Some((format!("{trace:032x}"), format!("{span:016x}")));
    }
    opentelemetry::Context::map_current(|context| {
        let span = context.span();
        let ids = span.span_context();
        ids.is_valid()
            .then(|| (ids.trace_id().to_string(), ids.span_id().to_string()))
    })
}

impl<S, N, F> FormatEvent<S, N> for WithTrace<F>
where
    S: Subscriber + for<'span> registry::LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let Some((trace, span)) = current_trace() else {
            return self.inner.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.inner.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end();
        let (trace_name, span_name) = (fields::TRACE_ID, fields::SPAN_ID);
        match line.strip_suffix('}').filter(|_| self.is_json) {
            Some(open) => writeln!(
                writer,
                "{open},\"{trace_name}\":\"{trace}\",\"{span_name}\":\"{span}\"}}"
            ),
            None => writeln!(writer, "{line} {trace_name}={trace} {span_name}={span}"),
        }
    }
}

/// One JSON object per line. JSON escapes line breaks.
pub fn json<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> registry::LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .fmt_fields(JsonFields::new())
        .event_format(WithTrace {
            inner: format().json().flatten_event(true),
            is_json: true,
        })
        .log_internal_errors(false)
        .with_writer(writer)
}

/// How a line for people begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineTime {
    /// `2026-01-31T23:59:59.123456Z`
    #[default]
    Standard,
    /// `2026-01-31 23:59:59.123Z`, as programs in Python write it.
    Spaced,
}

impl FormatTime for LineTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        match self {
            Self::Standard => SystemTime.format_time(writer),
            Self::Spaced => {
                let time = clock::rfc3339_text(clock::now().unix_ms);
                writer.write_str(&time.replacen('T', " ", 1))
            }
        }
    }
}

/// One line per event, for people.
pub fn pretty<S, W>(writer: W, ansi: bool, time: LineTime) -> impl Layer<S>
where
    S: Subscriber + for<'span> registry::LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .fmt_fields(escaping_fields())
        .event_format(WithTrace {
            inner: format().with_ansi(ansi).with_timer(time),
            is_json: false,
        })
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

    use actors::model::TraceContext;
    use tracing_subscriber::layer::SubscriberExt;

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
        tracing::subscriber::with_default(
            registry().with(pretty(move || writer.clone(), false, LineTime::Standard)),
            log_evil,
        );
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

    #[test]
    fn an_event_within_a_trace_names_it() {
        let trace = TraceContext::recorded(7, 9, None);
        let ids = [format!("{:032x}", 7), format!("{:016x}", 9)];
        let log = |form: &str| {
            let sink = Sink::default();
            let writer = sink.clone();
            let make = move || writer.clone();
            let events = || {
                tracing::info!("before");
                let _entered = trace::enter(&trace);
                tracing::info!(name = %EVIL, "within");
            };
            match form {
                "json" => tracing::subscriber::with_default(registry().with(json(make)), events),
                _ => tracing::subscriber::with_default(registry().with(pretty(make, false, LineTime::Spaced)), events),
            }
            sink.text()
        };
        let text = log("json");
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].get(fields::TRACE_ID).is_none());
        assert_eq!(
            [&lines[1][fields::TRACE_ID], &lines[1][fields::SPAN_ID]],
            [&ids[0], &ids[1]]
        );
        assert_eq!(
            (&lines[1]["name"], &lines[1]["message"]),
            (&EVIL.into(), &"within".into())
        );
        let text = log("pretty");
        assert_eq!(text.lines().count(), 2, "{text:?}");
        assert!(
            text.trim_end()
                .ends_with(&format!("trace_id={} span_id={}", ids[0], ids[1])),
            "{text}"
        );
    }
}
