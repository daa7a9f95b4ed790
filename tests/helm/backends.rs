//! Backends as values: the chart and the broker know the same keys, and the broker takes what the chart renders.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use super::{
    broker,
    support::{ADMIN_KEY, eventually},
    tools::{Tools, find, root, scratch_folder},
};

/// A values file with every key.
const CASE: &str = "tests/helm/cases/backends.yaml";

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The names of members, those of inner objects as `outer.inner`.
fn names(object: &Value, inner: &[&str], of: fn(&Value) -> &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (name, value) in of(object).as_object().unwrap() {
        if inner.contains(&name.as_str()) {
            names.extend(of(value).as_object().unwrap().keys().map(|key| format!("{name}.{key}")));
        } else {
            names.insert(name.clone());
        }
    }
    names
}

/// The keys of a backend in the schema.
fn keys_of_the_schema(inner: &[&str]) -> BTreeSet<String> {
    let schema: Value = serde_json::from_str(&text("helm/mcp-broker/values.schema.json")).unwrap();
    let backend = &schema["properties"]["backends"]["additionalProperties"];
    names(backend, inner, |schema| &schema["properties"])
}

#[test]
fn the_chart_knows_the_keys_of_the_reference() {
    let page = text("docs/gateway-reference.md");
    let (_, table) = page.split_once("| key | default | meaning |\n|---|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let mut keys: BTreeSet<String> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_owned))
        .collect();
    assert!(keys.remove("tools.NAME"), "the tables of single tools");
    assert_eq!(keys_of_the_schema(&["tools"]), keys);
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_broker_takes_every_key() {
    let tools = Tools::find();
    let documents = tools.documents(&tools.render(&["--values", CASE]));
    let config = find(&documents, "ConfigMap", "mcp-broker")["data"]["broker.yaml"].clone();
    let config = &tools.documents(config.as_str().unwrap())[0];
    let tables = ["/backends/docs", "/projects/team/backends/files"].map(|path| config.pointer(path).unwrap());
    let used = tables.map(|table| names(table, &["tools", "limits"], |table| table));
    let mut used: BTreeSet<String> = used.into_iter().flatten().collect();
    assert!(used.remove("tools.search_all"), "the table of a single tool");
    assert_eq!(used, keys_of_the_schema(&["tools", "limits"]), "the case has every key");

    let broker = broker::start(&documents, &scratch_folder("backends"), &[]);
    let shown = broker.rest(ADMIN_KEY, "GET", "/api/v1/backends", &Value::Null).json();
    let names: Vec<_> = shown["backends"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["name"])
        .collect();
    assert_eq!(names, ["docs", "plain"]);
}

/// The example of the README: its header comes from a variable, which this broker does not have.
#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_example_of_the_readme_names_the_variable_that_is_missing() {
    let tools = Tools::find();
    let readme = text("helm/mcp-broker/README.md");
    let (_, section) = readme.split_once("\n## Backends\n").unwrap();
    let (_, example) = section.split_once("```yaml\n").unwrap();
    let folder = scratch_folder("backends-readme");
    let values = folder.join("values.yaml");
    fs::write(&values, example.split_once("```").unwrap().0).unwrap();
    let documents = tools.documents(&tools.render(&["--values", values.to_str().unwrap()]));
    let broker = broker::start(&documents, &folder, &[]);
    eventually("the backend says what it lacks", || {
        let shown = broker
            .rest(ADMIN_KEY, "GET", "/api/v1/backends/docs", &Value::Null)
            .json();
        shown["reason"].as_str()?.contains("DOCS_TOKEN").then_some(())
    });
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_policy_opens_the_ports_of_backends() {
    let tools = Tools::find();
    let ports = |more: &[&str]| -> Vec<Value> {
        let documents = tools.documents(&tools.render(more));
        let egress = find(&documents, "NetworkPolicy", "mcp-broker")["spec"]["egress"].clone();
        let rules = egress.as_array().unwrap().iter();
        let ports = rules.flat_map(|rule| rule["ports"].as_array().unwrap().clone());
        ports
            .map(|port| port["port"].clone())
            .filter(|port| *port != 53)
            .collect()
    };
    assert_eq!(ports(&[]), [] as [i64; 0]);
    assert_eq!(ports(&["--values", CASE]), [443, 9000]);
    for (url, wanted) in [
        ("http://tools/mcp", &[80][..]),
        ("wss://tools/mcp", &[443]),
        ("http://[fd00::1]:8080/mcp", &[8080]),
        ("https://${HOST}:8443?x=1:2", &[8443]),
        ("${URL}", &[]),
    ] {
        let file = scratch_folder("backend-ports").join("values.json");
        fs::write(&file, serde_json::json!({"backends": {"a": {"url": url}}}).to_string()).unwrap();
        assert_eq!(ports(&["--values", file.to_str().unwrap()]), wanted, "{url}");
    }
    let disabled = "backends.a.url=https://tools/mcp,backends.a.disabled=true";
    assert_eq!(ports(&["--set", disabled]), [] as [i64; 0]);
}
