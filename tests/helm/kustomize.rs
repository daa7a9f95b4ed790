//! The manifests in `k8s` are those of the chart: the base is made from it, and each overlay amounts to the same values.

use serde_json::Value;

use super::tools::{Tools, find, root, text_of};
use test_client::golden::assert_golden;

/// The folders below `k8s` that are built, and the values of the chart to which they amount.
pub const OVERLAYS: &[(&str, &str)] = &[
    ("base", "k8s/base/values.yaml"),
    ("overlays/dev", "k8s/overlays/dev/values.yaml"),
    ("overlays/production", "k8s/overlays/production/values.yaml"),
];

impl Tools {
    /// What `kubectl kustomize` builds from a folder below `k8s`.
    pub fn kustomize(self, overlay: &str) -> String {
        let mut command = self.python_program("kubectl");
        let output = command.args(["kustomize", &format!("k8s/{overlay}")]).output().unwrap();
        assert!(output.status.success(), "{overlay}: {}", text_of(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_base_is_made_from_the_chart() {
    let tools = Tools::find();
    let folder = root().join("k8s/base");
    let rendered = tools.render(&["--values", "k8s/base/values.yaml"]);
    for document in rendered.split("---\n").filter(|document| !document.trim().is_empty()) {
        let kind = document.lines().find_map(|line| line.strip_prefix("kind: ")).unwrap();
        if kind != "ConfigMap" {
            let file = folder.join(format!("{}.yaml", kind.to_lowercase()));
            assert_golden(&file, &without_helm(document));
        }
    }
    let autoscaler = tools.render(&[
        "--values",
        "k8s/overlays/production/values.yaml",
        "--show-only",
        "templates/horizontalpodautoscaler.yaml",
    ]);
    let file = root().join("k8s/overlays/production/horizontalpodautoscaler.yaml");
    assert_golden(&file, &without_helm(autoscaler.trim_start_matches("---\n")));
    for (overlay, values) in OVERLAYS {
        let documents = tools.documents(&tools.render(&["--values", values]));
        let config = &find(&documents, "ConfigMap", "mcp-broker")["data"]["broker.yaml"];
        let file = root().join("k8s").join(overlay).join("broker.yaml");
        assert_golden(&file, config.as_str().unwrap());
    }
}

/// A rendered document without what only Helm needs. The hash in the name of the configuration replaces the checksum.
fn without_helm(document: &str) -> String {
    let kept = |line: &&str| {
        let line = line.trim_start();
        let belongs_to_helm = [
            "# Source: ",
            "helm.sh/chart:",
            "app.kubernetes.io/managed-by:",
            "checksum/",
        ];
        !belongs_to_helm.iter().any(|start| line.starts_with(start))
    };
    document.lines().filter(kept).fold(
        "# Made from helm/mcp-broker: UPDATE_GOLDEN=1 cargo test --test product -- --include-ignored helm::\n"
            .to_owned(),
        |text, line| text + line + "\n",
    )
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn each_overlay_is_what_the_chart_renders_with_its_values() {
    let tools = Tools::find();
    for (overlay, values) in OVERLAYS {
        let built = comparable(tools.documents(&tools.kustomize(overlay)));
        let rendered = comparable(tools.documents(&tools.render(&["--values", values])));
        let names = |documents: &[Value]| -> Vec<String> {
            let name = |it: &Value| format!("{} {}", it["kind"], it["metadata"]["name"]);
            documents.iter().map(name).collect()
        };
        assert_eq!(names(&built), names(&rendered), "{overlay}");
        for (built, rendered) in built.iter().zip(&rendered) {
            assert_eq!(
                serde_json::to_string_pretty(built).unwrap(),
                serde_json::to_string_pretty(rendered).unwrap(),
                "{overlay}: kustomize (left) and the chart (right) differ in {}",
                built["kind"]
            );
        }
    }
}

/// The documents in a fixed order, without the namespace and without what the two tools do each in its own way: labels that
/// name the tool, and how a changed configuration replaces the pods.
fn comparable(documents: Vec<Value>) -> Vec<Value> {
    let mut documents: Vec<_> = documents.into_iter().filter(|it| it["kind"] != "Namespace").collect();
    let config_name = documents
        .iter()
        .find(|document| document["kind"] == "ConfigMap")
        .map(|document| document["metadata"]["name"].as_str().unwrap().to_owned());
    for document in &mut documents {
        if document["kind"] == "ConfigMap" {
            document["metadata"] = serde_json::json!({"name": "mcp-broker"});
            continue;
        }
        let labels = document["metadata"]["labels"].as_object_mut().unwrap();
        labels.remove("helm.sh/chart");
        labels.remove("app.kubernetes.io/managed-by");
        let template = &mut document["spec"]["template"];
        if template.is_null() {
            continue;
        }
        let annotations = template["metadata"]["annotations"].as_object_mut().unwrap();
        annotations.retain(|name, _| !name.starts_with("checksum/"));
        for volume in template["spec"]["volumes"].as_array_mut().unwrap() {
            if volume["configMap"]["name"].as_str() == config_name.as_deref() {
                volume["configMap"]["name"] = "mcp-broker".into();
            }
        }
    }
    documents.sort_by_key(|document| format!("{} {}", document["kind"], document["metadata"]["name"]));
    documents
}
