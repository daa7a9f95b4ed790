//! The upper part of the screen: who is asked, how it is, and the figures with their charts.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Sparkline};
use rest::stats::{BrokerStats, Latency, Stats};

use crate::screen::{Theme, shown_text};
use crate::top::model::Model;

/// The number of lines of the figures. Latencies are for operators, and warnings have a line while there are any.
pub fn lines(model: &Model) -> u16 {
    let Some(snapshot) = &model.snapshot else { return 4 };
    let stats = &snapshot.stats;
    let optional = [stats.broker.is_some(), has_services(stats), !stats.warnings.is_empty()];
    4 + optional.into_iter().map(u16::from).sum::<u16>()
}

/// Whether there is a question that waits, or a backend.
fn has_services(stats: &Stats) -> bool {
    stats.desk.open > 0 || stats.backends.all > 0
}

/// The charts: their titles and the names of their series.
const CHARTS: [(&str, &str); 3] = [
    ("accepted", "messages_accepted"),
    ("delivered", "messages_delivered"),
    ("waiting", "messages_waiting"),
];

/// The line with the address and the health.
pub fn draw_title(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    let mut spans = vec![
        Span::styled(" mcp-broker ", Style::new().add_modifier(Modifier::BOLD)),
        Span::raw(format!(" {}  ", shown_text(&model.url))),
    ];
    if let Some(snapshot) = &model.snapshot {
        let stats = &snapshot.stats;
        let health = stats.health.as_ref();
        let status = health.map_or("", |health| health.status.as_str());
        spans.push(Span::styled(status, theme.status(status)));
        let storage = health
            .and_then(|health| health.storage_backend.as_deref())
            .unwrap_or_default();
        spans.push(Span::styled(
            format!("  {}  {}", shown_text(&stats.version), shown_text(storage)),
            theme.label(),
        ));
        if let Some(broker) = &stats.broker {
            spans.push(Span::styled(
                format!("  up {}", long_time(broker.uptime_seconds)),
                theme.label(),
            ));
        }
        if let Some(problem) = health.and_then(|health| health.storage_problem.as_ref()) {
            spans.push(Span::styled(format!("  {}", shown_text(problem)), theme.alarm()));
        }
    }
    frame.render_widget(Line::from(spans), area);
}

/// The line that says since when the broker has not answered.
pub fn draw_outage(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    if let Some(outage) = &model.outage {
        let time = long_time(model.now_ms.saturating_sub(outage.since_ms) / 1000);
        let text = format!(" no answer for {time}, asking again: {} ", shown_text(&outage.reason));
        frame.render_widget(Line::styled(text, theme.alarm().add_modifier(Modifier::REVERSED)), area);
    }
}

/// The figures.
pub fn draw_figures(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    let Some(snapshot) = &model.snapshot else { return };
    let stats = &snapshot.stats;
    let mut lines = vec![
        sessions(stats, theme),
        messages(model, theme),
        inboxes(stats, theme),
        parts(stats, theme),
    ];
    if has_services(stats) {
        lines.push(services(stats, theme));
    }
    lines.extend(stats.broker.as_ref().map(|broker| latencies(broker, theme)));
    lines.extend(warnings(stats, theme));
    frame.render_widget(Paragraph::new(lines), area);
}

fn sessions(stats: &Stats, theme: &Theme) -> Line<'static> {
    let sessions = &stats.sessions;
    let mut line = Figures::new("sessions", theme);
    line.push(sessions.active.to_string(), "active", theme.status("active"));
    line.push(
        sessions.stale.to_string(),
        "stale",
        colour_of(sessions.stale, theme, Color::Yellow),
    );
    line.push(sessions.disconnected.to_string(), "disconnected", Style::new());
    let connections = &stats.connections;
    let connections = connections.websocket + connections.http + connections.local;
    line.push_count(connections, ["connection", "connections"], Style::new());
    line.line
}

fn services(stats: &Stats, theme: &Theme) -> Line<'static> {
    let (desk, backends) = (&stats.desk, &stats.backends);
    let mut line = Figures::new("services", theme);
    line.push_count(
        desk.open,
        ["question waits", "questions wait"],
        colour_of(desk.open, theme, Color::Yellow),
    );
    if desk.urgent > 0 {
        line.push(
            desk.urgent.to_string(),
            "urgent",
            colour_of(desk.urgent, theme, Color::Red),
        );
    }
    line.push_count(backends.ready, ["backend ready", "backends ready"], Style::new());
    let failed = backends.failed;
    line.push(failed.to_string(), "failed", colour_of(failed, theme, Color::Red));
    line.line
}

fn messages(model: &Model, theme: &Theme) -> Line<'static> {
    let rates = &model.rates;
    let mut line = Figures::new("messages/s", theme);
    line.push(rate(rates.accepted), "accepted", Style::new());
    line.push(rate(rates.delivered), "delivered", Style::new());
    line.push(rate(rates.acknowledged), "acknowledged", Style::new());
    let refused = rates.refused.unwrap_or_default() > 0.0;
    line.push(
        rate(rates.refused),
        "refused",
        colour_of(u64::from(refused), theme, Color::Red),
    );
    line.line
}

fn inboxes(stats: &Stats, theme: &Theme) -> Line<'static> {
    let inboxes = &stats.inboxes;
    let mut line = Figures::new("inboxes", theme);
    line.push(inboxes.waiting.to_string(), "waiting", Style::new());
    line.push(inboxes.longest.to_string(), "in the fullest", Style::new());
    let warning = colour_of(inboxes.over_warning, theme, Color::Yellow);
    line.push(inboxes.over_warning.to_string(), "nearly full", warning);
    let letters = stats.storage.dead_letters;
    line.push_count(
        letters,
        ["dead letter", "dead letters"],
        colour_of(letters, theme, Color::Red),
    );
    line.line
}

fn parts(stats: &Stats, theme: &Theme) -> Line<'static> {
    let mut line = Figures::new("broker", theme);
    line.push_count(stats.replicas, ["replica", "replicas"], Style::new());
    if !stats.partial.is_empty() {
        line.push(stats.partial.len().to_string(), "silent", theme.alarm());
    }
    line.push_count(stats.protocols, ["protocol", "protocols"], Style::new());
    line.push(bytes(stats.storage.message_bytes), "kept", Style::new());
    if let Some(broker) = &stats.broker {
        let restarts = broker.actor_restarts;
        line.push_count(
            restarts,
            ["actor restart", "actor restarts"],
            colour_of(restarts, theme, Color::Red),
        );
    }
    line.line
}

fn latencies(broker: &BrokerStats, theme: &Theme) -> Line<'static> {
    let mut line = Figures::new("p50/p99", theme);
    line.push(quantiles(&broker.accept), "accept", Style::new());
    line.push(quantiles(&broker.deliver), "deliver", Style::new());
    line.push(quantiles(&broker.store_operation), "storage", Style::new());
    line.line
}

/// The most urgent warning, and how many more there are.
fn warnings(stats: &Stats, theme: &Theme) -> Option<Line<'static>> {
    let (first, others) = stats.warnings.split_first()?;
    let more = match others.len() {
        0 => String::new(),
        len => format!("({len} more: mcp-broker doctor) "),
    };
    let text = format!(" {:<12}{more}{}", "warning", shown_text(&first.text));
    Some(Line::styled(text, theme.alarm()))
}

/// A line of numbers, each with its name.
struct Figures<'a> {
    line: Line<'static>,
    theme: &'a Theme,
}

impl<'a> Figures<'a> {
    fn new(title: &str, theme: &'a Theme) -> Self {
        Self {
            line: Line::from(Span::styled(format!(" {title:<12}"), theme.label())),
            theme,
        }
    }

    /// A number of things, whose name is singular for one.
    fn push_count(&mut self, count: u64, [one, several]: [&str; 2], style: Style) {
        self.push(count.to_string(), if count == 1 { one } else { several }, style);
    }

    fn push(&mut self, number: String, name: &str, style: Style) {
        self.line
            .push_span(Span::styled(number, style.add_modifier(Modifier::BOLD)));
        self.line
            .push_span(Span::styled(format!(" {name}  "), self.theme.label()));
    }
}

fn colour_of(count: u64, theme: &Theme, colour: Color) -> Style {
    if count > 0 {
        theme.coloured(colour)
    } else {
        Style::new()
    }
}

/// Draws the charts next to each other, the present at the right.
pub fn draw_charts(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: &Theme) {
    let [_, area] = Layout::horizontal([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let columns = Layout::horizontal([Constraint::Fill(1); 3]).spacing(2).split(area);
    for ((title, figure), place) in CHARTS.into_iter().zip(columns.iter()) {
        let points = model.chart(figure);
        let most = points.iter().copied().max().unwrap_or_default();
        let [heading, chart] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(*place);
        let step = if figure == "messages_waiting" { "" } else { "/10 s" };
        let text = format!("{title}, max {most}{step}");
        frame.render_widget(Line::styled(text, theme.label()), heading);
        let first = points.len().saturating_sub(usize::from(chart.width));
        let sparkline = Sparkline::default()
            .data(&points[first..])
            .max(most.max(1))
            .style(theme.coloured(Color::Cyan));
        frame.render_widget(sparkline, chart);
    }
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
}

fn quantiles(latency: &Latency) -> String {
    format!(
        "{}/{}",
        short_time(latency.p50_seconds),
        short_time(latency.p99_seconds)
    )
}

/// A duration with three digits at most.
pub fn short_time(seconds: f64) -> String {
    match seconds {
        zero if zero <= 0.0 => "0".to_owned(),
        short if short < 0.001 => format!("{:.0}µs", short * 1e6),
        medium if medium < 1.0 => format!("{:.1}ms", medium * 1e3),
        long => format!("{long:.1}s"),
    }
}

/// A duration in its two largest units.
pub fn long_time(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

/// A number of bytes.
#[allow(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
pub fn bytes(count: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.into_iter().find(|(size, _)| count >= *size);
    unit.map_or_else(
        || format!("{count} B"),
        |(size, name)| format!("{:.1} {name}", count as f64 / size as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_short() {
        assert_eq!(
            [0.0, 25e-6, 0.0012, 3.44].map(short_time),
            ["0", "25µs", "1.2ms", "3.4s"]
        );
        assert_eq!(
            [5, 65, 3 * 3600 + 120, 2 * 86_400 + 3600].map(long_time),
            ["5 s", "1 min 5 s", "3 h 2 min", "2 d 1 h"]
        );
        assert_eq!(
            [5, 2048, 3 << 20, 5 << 30].map(bytes),
            ["5 B", "2.0 KiB", "3.0 MiB", "5.0 GiB"]
        );
    }
}
