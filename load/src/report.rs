//! The results of a run: a table for people, or one line of JSON.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    time::Duration,
};

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

/// The durations of many events, in nanoseconds with three digits of precision.
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        // The histogram allows these constant bounds. A duration above an hour counts as an hour.
        const HOUR: u64 = 3_600_000_000_000;
        Self(Histogram::new_with_max(HOUR, 3).expect("constant bounds"))
    }
}

impl Latencies {
    pub fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    pub fn merge(&mut self, other: &Self) {
        for step in other.0.iter_recorded() {
            self.0
                .saturating_record_n(step.value_iterated_to(), step.count_at_value());
        }
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The quantile in µs.
    pub fn micros(&self, quantile: f64) -> f64 {
        float(self.0.value_at_quantile(quantile)) / 1000.0
    }
}

/// A count as a number to calculate with. Counts stay far below 2^53, where the conversion becomes inexact.
#[expect(clippy::cast_precision_loss)]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// A count per second.
pub fn rate(count: u64, time: Duration) -> f64 {
    if time.is_zero() {
        0.0
    } else {
        float(count) / time.as_secs_f64()
    }
}

#[derive(Clone, Debug)]
pub enum Figure {
    Count(u64),
    Number(f64),
    Text(String),
    Flag(bool),
    /// What there is no figure of, in a row with others of which there is.
    Absent,
    /// A duration in µs.
    Micro(f64),
    /// p50, p99, p99.9 and the maximum, in µs.
    Micros([f64; 4]),
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for Figure {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<f64> for Figure {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<Option<f64>> for Figure {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Absent, Self::Number)
    }
}

impl From<String> for Figure {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Figure {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<bool> for Figure {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<&Latencies> for Figure {
    fn from(latencies: &Latencies) -> Self {
        Self::Micros([0.5, 0.99, 0.999, 1.0].map(|q| latencies.micros(q)))
    }
}

impl Figure {
    pub fn json(&self) -> Value {
        let round = |x: f64| (x * 1000.0).round() / 1000.0;
        match self {
            Self::Count(n) => json!(n),
            Self::Number(x) | Self::Micro(x) => json!(round(*x)),
            Self::Text(text) => json!(text),
            Self::Flag(flag) => json!(flag),
            Self::Absent => Value::Null,
            Self::Micros(of) => {
                let [p50, p99, p999, max] = of.map(round);
                json!({"p50": p50, "p99": p99, "p999": p999, "max": max})
            }
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Count(n) => grouped(&n.to_string()),
            Self::Number(x) => readable(*x),
            Self::Text(text) => text.clone(),
            Self::Flag(flag) => if *flag { "yes" } else { "NO" }.into(),
            Self::Absent => String::new(),
            Self::Micro(x) => micros(*x),
            Self::Micros(of) => {
                let [p50, p99, p999, max] = of.map(micros);
                format!("p50 {p50}   p99 {p99}   p99.9 {p999}   max {max}")
            }
        }
    }
}

fn readable(x: f64) -> String {
    if x.abs() >= 100.0 {
        grouped(&format!("{x:.0}"))
    } else {
        format!("{x:.2}")
    }
}

fn micros(x: f64) -> String {
    if x < 1000.0 {
        format!("{x:.0} µs")
    } else {
        format!("{:.2} ms", x / 1000.0)
    }
}

fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

type Fields = Vec<(&'static str, Figure)>;

/// The result of one workload. A key names its unit; the table and the JSON have the same keys.
pub struct Report {
    workload: &'static str,
    fields: Fields,
    rows: Vec<Fields>,
    problems: Vec<String>,
}

impl Report {
    pub fn new(workload: &'static str) -> Self {
        Self {
            workload,
            fields: vec![],
            rows: vec![],
            problems: vec![],
        }
    }

    pub fn add(&mut self, key: &'static str, figure: impl Into<Figure>) {
        self.fields.push((key, figure.into()));
    }

    /// Adds a figure that may be unknown, such as one of the server without its pid.
    pub fn add_if_known(&mut self, key: &'static str, figure: Option<impl Into<Figure>>) {
        self.fields.extend(figure.map(|figure| (key, figure.into())));
    }

    pub fn row(&mut self, row: Fields) {
        self.rows.push(row);
    }

    /// Adds a count that makes the result invalid unless it is zero.
    pub fn add_fault(&mut self, key: &'static str, count: u64) {
        self.add(key, count);
        if count > 0 {
            self.problems.push(format!("{}: {count} {}", self.workload, label(key)));
        }
    }

    /// The faults that the workload found; empty for a valid result.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    pub fn print(&self, as_json: bool) -> io::Result<()> {
        let text = if as_json {
            format!("{}\n", self.json())
        } else {
            self.table()
        };
        io::stdout().lock().write_all(text.as_bytes())
    }

    pub fn json(&self) -> Value {
        let object = |fields: &Fields| {
            fields
                .iter()
                .map(|(key, figure)| ((*key).to_owned(), figure.json()))
                .collect()
        };
        let mut all: Map<String, Value> = object(&self.fields);
        all.insert("workload".into(), self.workload.into());
        if !self.rows.is_empty() {
            all.insert(
                "rows".into(),
                self.rows.iter().map(|row| Value::Object(object(row))).collect(),
            );
        }
        all.into()
    }

    fn table(&self) -> String {
        let mut out = format!("{}\n", self.workload);
        let width = self
            .fields
            .iter()
            .map(|(key, _)| label(key).chars().count())
            .max()
            .unwrap_or(0);
        for (key, figure) in &self.fields {
            // Writing to a string cannot fail.
            _ = writeln!(out, "  {:width$}   {}", label(key), figure.text());
        }
        if let Some(first) = self.rows.first() {
            let head = first.iter().map(|(key, _)| label(key)).collect();
            let body = self
                .rows
                .iter()
                .map(|row| row.iter().map(|(_, figure)| figure.text()).collect());
            out.push_str(&aligned(
                &std::iter::once(head).chain(body).collect::<Vec<Vec<String>>>(),
            ));
        }
        out.push('\n');
        out
    }
}

fn aligned(lines: &[Vec<String>]) -> String {
    let mut out = String::new();
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|l| l.get(column))
            .map(|c| c.chars().count())
            .max()
            .unwrap_or(0)
    };
    for line in lines {
        for (column, cell) in line.iter().enumerate() {
            let width = width(column);
            // Names to the left, numbers to the right.
            _ = if column == 0 {
                write!(out, "  {cell:width$}")
            } else {
                write!(out, "   {cell:>width$}")
            };
        }
        out.push('\n');
    }
    out
}

/// A key in words. Times are shown with their unit, so the key's own unit is dropped.
fn label(key: &str) -> String {
    key.strip_suffix("_us")
        .unwrap_or(key)
        .replace("_us_", " µs ")
        .replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Report {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|i| latencies.record(i * 1000));
        let mut report = Report::new("direct");
        report.add("messages", 1_234_567_u64);
        report.add("delivery_us", &latencies);
        report.add_if_known("server_cpu_us_per_message", Some(1.5));
        report.add_if_known("server_resident_kib", None::<u64>);
        report.add_fault("lost", 0);
        report.row(vec![("step", 1_u64.into()), ("messages_per_second", 2.0.into())]);
        report
    }

    #[test]
    fn the_json_is_one_line_with_the_keys() {
        let line = example().json().to_string();
        assert!(!line.contains('\n'));
        let json: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&json["workload"], &json["messages"], &json["lost"]),
            (&json!("direct"), &json!(1_234_567), &json!(0))
        );
        assert!((json["delivery_us"]["p50"].as_f64().unwrap() - 500.0).abs() < 2.0);
        assert_eq!(json["rows"][0]["step"], 1);
    }

    #[test]
    fn the_table_has_words_digit_groups_and_units() {
        let table = example().table();
        assert!(table.contains("messages                    1,234,567\n"), "{table}");
        assert!(table.contains("p99 990 µs"), "{table}");
        assert!(table.contains("server cpu µs per message"), "{table}");
        assert!(!table.contains("resident"), "{table}");
    }

    #[test]
    fn a_fault_is_a_problem_only_when_it_happened() {
        let mut report = example();
        assert!(report.problems().is_empty());
        report.add_fault("out_of_order", 2);
        assert_eq!(report.problems(), ["direct: 2 out of order"]);
    }
}
