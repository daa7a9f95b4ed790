//! What describes the chart is current: its versions, its README, its schema.

use std::{collections::BTreeMap, fs, process::Command};

use common::config::settings_markdown;
use serde_json::{Map, Value, json};

use super::tools::{Tools, here, root, scratch_folder, text_of};
use test_client::golden::assert_golden;

#[test]
fn the_versions_of_the_chart_are_those_of_the_workspace() {
    let chart = fs::read_to_string(root().join("helm/mcp-broker/Chart.yaml")).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    for line in [format!("version: {version}"), format!("appVersion: \"{version}\"")] {
        assert!(chart.lines().any(|it| it == line), "Chart.yaml has no line `{line}`");
    }
}

/// The generator fails for a value without a description, and for a description without a value.
#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_readme_has_every_value() {
    Tools::find();
    let chart = root().join("helm/mcp-broker");
    let copy = scratch_folder("readme").join("README.md");
    fs::copy(chart.join("README.md"), &copy).unwrap();
    let output = Command::new(here().join("node_modules/.bin/readme-generator"))
        .arg("--values")
        .arg(chart.join("values.yaml"))
        .arg("--readme")
        .arg(&copy)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text_of(&output));
    assert_golden(&chart.join("README.md"), &fs::read_to_string(copy).unwrap());
}

/// Helm prints the notes only where there is a cluster, so a copy of the chart renders them as a document.
#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_notes_tell_how_to_connect_a_client() {
    let tools = Tools::find();
    let copy = scratch_folder("notes").join("mcp-broker");
    let status = Command::new("cp")
        .arg("-r")
        .arg(root().join("helm/mcp-broker"))
        .arg(&copy)
        .status();
    assert!(status.unwrap().success());
    let notes = fs::read_to_string(copy.join("templates/NOTES.txt")).unwrap();
    let document =
        format!("{{{{ define \"notes\" }}}}{notes}{{{{ end }}}}\nnotes: {{{{ include \"notes\" . | toJson }}}}\n");
    fs::write(copy.join("templates/notes.yaml"), document).unwrap();
    let notes = |values: &str| -> String {
        let mut helm = tools.python_program("helm");
        helm.args(["template", "agents"])
            .arg(&copy)
            .args(["--namespace", "apps"]);
        let output = helm
            .args(["--show-only", "templates/notes.yaml", "--set", values])
            .output()
            .unwrap();
        let documents = tools.documents(&text_of(&output));
        documents[0]["notes"].as_str().unwrap().to_owned()
    };
    let routed = notes(
        "corsOrigins={https://ops.example},httpRoute.enabled=true,httpRoute.hostnames={a.example},httpRoute.parentRefs[0].name=gw",
    );
    for told in [
        "helm test agents --namespace apps",
        "https://a.example/mcp",
        "http://agents-mcp-broker.apps:8000/mcp",
        "get secret agents-mcp-broker-keys",
        "mcp-broker project create",
        r#""headers": {"X-API-Key": "KEY"}"#,
    ] {
        assert!(routed.contains(told), "{told}\n{routed}");
    }
    assert!(!routed.contains("ops.example"), "{routed}");
    assert!(notes("storage=memory,auth.enabled=false").contains("No key is required"));
}

/// The settings of the broker in the schema come from its table, and the descriptions from values.yaml.
#[test]
fn the_schema_knows_every_setting_and_describes_every_value() {
    let path = root().join("helm/mcp-broker/values.schema.json");
    let mut schema: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let values = fs::read_to_string(root().join("helm/mcp-broker/values.yaml")).unwrap();
    let config = &mut schema["properties"]["config"];
    *config = json!({"type": "object", "additionalProperties": false, "properties": settings_schema()});
    for (value, description) in descriptions(&values) {
        let pointer = format!("/properties/{}", value.replace('.', "/properties/"));
        let section = schema
            .pointer_mut(&pointer)
            .unwrap_or_else(|| panic!("{value} is missing in the schema"));
        section["description"] = description.replace('`', "").into();
    }
    let mut text = serde_json::to_string_pretty(&schema).unwrap();
    text.push('\n');
    assert_golden(&path, &text);
}

/// The values and their descriptions, from lines such as `## @param image.tag [default: x] Tag of the image.`
fn descriptions(values: &str) -> BTreeMap<String, String> {
    values
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("## @param "))
        .map(|line| {
            let (name, rest) = line.split_once(' ').unwrap();
            let description = match rest.strip_prefix('[') {
                Some(modifiers) => modifiers.split_once("] ").unwrap().1,
                None => rest,
            };
            (name.to_owned(), description.to_owned())
        })
        .collect()
}

/// The schema of each setting, from the tables of the documentation.
fn settings_schema() -> Map<String, Value> {
    settings_markdown()
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [key, _, _, _, allowed, meaning] = cells[..] else {
                panic!("a row of the table of settings has six cells: {line}")
            };
            let mut schema = allowed_schema(allowed);
            schema["description"] = meaning.replace('`', "").into();
            (key.trim_matches('`').to_owned(), schema)
        })
        .collect()
}

/// As narrow as a schema can say it; the broker checks the rest at its start.
fn allowed_schema(allowed: &str) -> Value {
    let bounds = |text: &str| -> Option<Value> {
        let (low, high) = text.split_once(" to ")?;
        let [low, high]: [u64; 2] = [low.parse().ok()?, high.parse().ok()?];
        Some(json!({"type": "integer", "minimum": low, "maximum": high}))
    };
    let choices: Vec<_> = allowed.split(", ").collect();
    if allowed == "true, false" {
        json!({"type": "boolean"})
    } else if let Some(range) = allowed.strip_prefix("a whole number from ") {
        bounds(range).unwrap_or_else(|| panic!("the range is not understood: {allowed}"))
    } else if let Some(range) = allowed.strip_prefix("auto, or a whole number from ") {
        json!({"anyOf": [{"const": "auto"}, bounds(range)]})
    } else if allowed.starts_with("a time from ") {
        json!({"type": ["string", "integer"], "pattern": "^[0-9]+(ms|s|m|h|d)?$", "minimum": 0})
    } else if allowed.starts_with("a size from ") {
        json!({"type": ["string", "integer"], "pattern": "^[0-9]+(MiB|GiB)?$", "minimum": 1})
    } else if allowed.contains("separated by commas") {
        json!({"type": ["string", "array"], "items": {"type": "string"}})
    } else if allowed.starts_with("a number ") {
        // `--set` makes a text of a fraction.
        json!({"type": ["number", "string"], "pattern": "^[0-9.]+$"})
    } else if choices.len() > 1 && choices.iter().all(|it| it.chars().all(|c| c.is_ascii_lowercase())) {
        json!({"enum": choices})
    } else {
        json!({"type": "string"})
    }
}
