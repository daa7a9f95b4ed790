//! What is rendered, checked by other programs: schemas of Kubernetes and of custom resources, checkov, promtool.

use std::{fs, path::PathBuf, process::Command};

use super::{
    kustomize::OVERLAYS,
    rendering::{CASES, MATRIX},
    support::promtool::promtool,
    tools::{Tools, here, root, run_with_input, scratch_folder, text_of},
};

/// The files of all cases, overlays and, if asked for, combinations of values, in a folder of their own.
fn rendered(tools: Tools, folder: &str, combinations: &[&str]) -> Vec<PathBuf> {
    let folder = scratch_folder(folder);
    let cases = CASES
        .iter()
        .map(|(name, values)| (format!("case-{name}"), tools.render(&["--values", values])));
    let overlays = OVERLAYS
        .iter()
        .map(|(overlay, _)| (format!("k8s-{}", overlay.replace('/', "-")), tools.kustomize(overlay)));
    let matrix = combinations
        .iter()
        .enumerate()
        .map(|(number, values)| (format!("matrix-{number}"), tools.render(&["--set", values])));
    let write = |(name, text): (String, String)| {
        let file = folder.join(format!("{name}.yaml"));
        fs::write(&file, text).unwrap();
        file
    };
    cases.chain(overlays).chain(matrix).map(write).collect()
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn every_rendering_fits_the_schemas_of_four_versions_of_kubernetes() {
    let tools = Tools::find();
    let files = rendered(tools, "schemas", MATRIX);
    let mut command = tools.python_program("python");
    command.args(["tests/helm/manifests.py", "validate"]).args(&files);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output));

    let mut command = tools.python_program("python");
    command.args(["tests/helm/manifests.py", "json"]).args(&files);
    let documents = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let mut command = Command::new("node");
    command.arg(here().join("check_custom.mjs"));
    let output = run_with_input(command, &documents);
    assert!(output.status.success(), "{}", text_of(&output));
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn an_unknown_field_fits_no_schema() {
    let tools = Tools::find();
    let rendered = tools.render(&["--values", "tests/helm/cases/everything.yaml"]);
    let folder = scratch_folder("unknown-fields");
    let file = folder.join("broken.yaml");
    fs::write(&file, rendered.replace("minReadySeconds:", "minReadySecond:")).unwrap();
    let mut command = tools.python_program("python");
    command.args(["tests/helm/manifests.py", "validate"]).arg(&file);
    let said = text_of(&command.output().unwrap());
    assert!(said.contains("minReadySecond"), "{said}");

    let broken = r#"{"x": [{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "x"},
        "spec": {"rules": [{"timeouts": {"request": "forever"}}]}}]}"#;
    let mut command = Command::new("node");
    command.arg(here().join("check_custom.mjs"));
    let output = run_with_input(command, broken);
    assert!(!output.status.success(), "{}", text_of(&output));
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn checkov_finds_nothing_that_the_chart_does_not_explain() {
    let tools = Tools::find();
    let files = rendered(tools, "checkov", &[]);
    let output = tools
        .python_program("checkov")
        .args(["--framework", "kubernetes", "--compact", "--quiet", "--skip-download"])
        .args(["--config-file", "helm/mcp-broker/.checkov.yaml", "--directory"])
        .arg(files[0].parent().unwrap())
        .env("LOG_LEVEL", "ERROR")
        .output()
        .unwrap();
    let said = text_of(&output);
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("Failed checks: 0, Passed checks: 0"), "{said}");
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn promtool_accepts_the_rules() {
    let tools = Tools::find();
    let documents = tools.documents(&tools.render(&["--values", "tests/helm/cases/everything.yaml"]));
    let rules = documents.iter().find(|document| document["kind"] == "PrometheusRule");
    let file = scratch_folder("rules").join("rules.yaml");
    // JSON is YAML.
    fs::write(&file, rules.unwrap()["spec"].to_string()).unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()], "");
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_dashboard_is_rendered_as_the_file_has_it() {
    let tools = Tools::find();
    let dashboard = fs::read_to_string(root().join("helm/mcp-broker/files/dashboard.json")).unwrap();
    let documents = tools.documents(&tools.render(&["--set", "metrics.dashboard.enabled=true"]));
    let rendered = documents
        .iter()
        .find_map(|document| document["data"]["mcp-broker.json"].as_str());
    assert_eq!(rendered.unwrap().trim(), dashboard.trim());
}
