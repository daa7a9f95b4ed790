//! The alert rules and the dashboard of the chart: Prometheus accepts them, and they use metrics that exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use crate::promtool::promtool;
use mcp_broker::metrics::{CATALOG, Kind};
use serde_json::Value;

const ALERTS: &str = "helm/mcp-broker/files/alerts.yaml";
const DASHBOARD: &str = "helm/mcp-broker/files/dashboard.json";

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("mcp_broker_")).collect()
}

/// Whether a series has this name: that of a metric, or of a part of a histogram.
fn exists(name: &str) -> bool {
    CATALOG.iter().any(|metric| match metric.kind {
        Kind::Histogram => {
            let part = name.strip_prefix(metric.name);
            part.is_some_and(|part| ["_bucket", "_sum", "_count"].contains(&part))
        }
        Kind::Counter | Kind::Gauge => name == metric.name,
    })
}

fn dashboard() -> Value {
    serde_json::from_str(&read(DASHBOARD)).unwrap()
}

/// The panels of the dashboard with something to show, each with its expressions.
fn panels(dashboard: &Value) -> Vec<(&Value, Vec<&str>)> {
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let shown = panels.filter(|panel| panel["type"] != "row");
    shown
        .map(|panel| {
            let targets = panel["targets"].as_array().unwrap().iter();
            (panel, targets.map(|target| target["expr"].as_str().unwrap()).collect())
        })
        .collect()
}

#[test]
#[ignore = "needs promtool: scripts/test installs it"]
fn prometheus_accepts_the_alerts() {
    promtool(&["check", "rules", ALERTS], "");
}

#[test]
#[ignore = "needs promtool: scripts/test installs it"]
fn alerts_fire_when_they_should() {
    promtool(&["test", "rules", "tests/monitoring/alerts.yaml"], "");
}

#[test]
fn every_alert_has_a_runbook_and_uses_metrics_that_exist() {
    let alerts = read(ALERTS);
    let count = |key: &str| alerts.lines().filter(|line| line.trim_start().starts_with(key)).count();
    let len = count("- alert:");
    assert!(len >= 15, "{len}");
    for key in ["severity:", "summary:", "runbook:"] {
        assert_eq!(count(key), len, "{key}");
    }
    let unknown: Vec<_> = names(&alerts)
        .into_iter()
        .filter(|name| !exists(name) && !is_histogram(name))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// Texts for people name a histogram without its parts.
fn is_histogram(name: &str) -> bool {
    CATALOG
        .iter()
        .any(|metric| metric.name == name && metric.kind == Kind::Histogram)
}

#[test]
fn the_dashboard_has_four_panels_in_each_row() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    let (mut rows, mut len_of_rows) = (Vec::new(), BTreeMap::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "an id occurs twice: {panel}");
        if panel["type"] == "row" {
            rows.push(panel["title"].as_str().unwrap());
        } else {
            *len_of_rows.entry(rows.len()).or_insert(0) += 1;
            let place = &panel["gridPos"];
            assert!(
                place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24,
                "{panel}"
            );
            assert!(!panel["title"].as_str().unwrap().is_empty());
        }
    }
    assert_eq!(
        rows,
        ["Health", "Traffic", "Queues", "Desk", "Gateway", "Storage", "Process"]
    );
    assert!(len_of_rows.values().all(|len| *len == 4), "{len_of_rows:?}");
    assert!(dashboard["schemaVersion"].is_u64() && dashboard["uid"].is_string());
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let dashboard = dashboard();
    for (panel, expressions) in panels(&dashboard) {
        for expression in expressions {
            let names = names(expression);
            assert!(!names.is_empty(), "{expression}");
            for name in names {
                assert!(exists(name), "{name} in the panel {}", panel["title"]);
            }
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let project = variables.iter().find(|variable| variable["name"] == "project").unwrap();
    assert!(names(project["query"].as_str().unwrap()).into_iter().all(exists));
}

#[test]
#[ignore = "needs promtool: scripts/test installs it"]
fn prometheus_parses_every_expression_of_the_dashboard() {
    let dashboard = dashboard();
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    let expressions = panels(&dashboard).into_iter().flat_map(|(_, expressions)| expressions);
    for (at, expression) in expressions.enumerate() {
        let expression = expression.replace("$__rate_interval", "5m").replace("$project", ".*");
        let expression = serde_json::to_string(&expression).unwrap();
        writeln!(
            rules,
            "      - record: dashboard:expression{at}\n        expr: {expression}"
        )
        .unwrap();
    }
    let file = TemporaryFile::new("dashboard-rules.yaml", &rules);
    promtool(&["check", "rules", file.0.to_str().unwrap()], "");
}

/// A file that is removed on drop.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mcp-broker-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
