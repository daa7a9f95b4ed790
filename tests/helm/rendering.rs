//! What the chart renders: golden files of whole cases, a matrix of values, and what holds in each.

use serde_json::Value;

use super::tools::{Tools, find, here, text_of};
use test_client::golden::assert_golden;

/// The golden files and the values files that make them.
pub const CASES: &[(&str, &str)] = &[
    ("default", "tests/helm/cases/default.yaml"),
    ("dev", "helm/mcp-broker/values-dev.yaml"),
    ("ha", "helm/mcp-broker/values-ha.yaml"),
    ("trial", "tests/helm/cases/trial.yaml"),
    ("sentinel", "tests/helm/cases/sentinel.yaml"),
    ("backends", "tests/helm/cases/backends.yaml"),
    ("everything", "tests/helm/cases/everything.yaml"),
];

/// Combinations of values, each of which is accepted. The tests of the manifests check what they render.
pub const MATRIX: &[&str] = &[
    "storage=memory",
    "storage=memory,auth.enabled=false,networkPolicy.enabled=false,tests.enabled=false",
    "storage=memory,metrics.enabled=false,ingress.enabled=true,ingress.hosts={a.example},ingress.controller=alb",
    "storage=memory,auth.existingSecret=keys,service.type=NodePort",
    "storage=disk,auth.enabled=false",
    "storage=disk,persistence.existingClaim=data,persistence.annotations.a=b",
    "storage=disk,persistence.storageClass=fast,persistence.whenDeleted=Delete,shutdown.preStopSeconds=0",
    "storage=disk,metrics.serviceMonitor.enabled=true,auth.enabled=false",
    "storage=redis,redis.nodes={redis:6379}",
    "storage=redis,redis.nodes={redis},redis.password=p/q,redis.username=u,replicaCount=2",
    "storage=redis,redis.nodes={a:6379,b:6379},redis.kind=cluster,redis.tls.enabled=true,replicaCount=5",
    "storage=redis,redis.inChart.enabled=true,redis.inChart.persistence.enabled=false,networkPolicy.enabled=false",
    "storage=redis,redis.inChart.enabled=true,auth.enabled=false,replicaCount=2,podDisruptionBudget.enabled=false",
    "storage=redis,redis.urlSecret.name=url,autoscaling.enabled=true,topologySpreadConstraints=null",
    "storage=memory,serviceAccount.create=false,nameOverride=x,httpRoute.enabled=true,httpRoute.hostnames={*.example},\
     httpRoute.parentRefs[0].name=gw,allowedHosts={*},ingress.enabled=true,ingress.hosts={b.example},\
     ingress.controller=none",
    "storage=disk,listenHost=::,service.ipFamilyPolicy=RequireDualStack,metrics.prometheusRule.enabled=true,\
     metrics.dashboard.enabled=true",
    "storage=redis,redis.nodes={redis},backends.a.url=https://a.example/mcp,networkPolicy.backendsTo[0].ipBlock.cidr=10.0.0.0/8",
];

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn each_case_renders_its_golden_file() {
    let tools = Tools::find();
    for (name, values) in CASES {
        let rendered = without_files(&tools.render(&["--values", values]));
        assert_golden(&here().join("golden").join(format!("{name}.yaml")), &rendered);
    }
}

/// Leaves out the alerts and the dashboard, which are files of their own with tests of their own.
fn without_files(rendered: &str) -> String {
    let sources = ["prometheusrule", "dashboard"].map(|name| format!("# Source: mcp-broker/templates/{name}.yaml"));
    rendered
        .split_inclusive("---\n")
        .filter(|document| !sources.iter().any(|source| document.starts_with(source)))
        .collect()
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_chart_passes_the_lint_of_helm_with_each_case() {
    let tools = Tools::find();
    for (name, values) in CASES {
        let output = tools
            .python_program("helm")
            .args(["lint", "--strict", "helm/mcp-broker", "--values", values])
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {}", text_of(&output));
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn a_path_is_taken_away_and_the_broker_keeps_connections_longer_than_its_ingress() {
    let tools = Tools::find();
    let ingress = "ingress.enabled=true,ingress.hosts={a.example}";
    let render = |values: &str| tools.render(&["--set", &format!("{ingress},{values}")]);
    let below = render("ingress.path=/broker/,routeTimeoutSeconds=7200");
    for line in [
        "path: /broker(/|$)(.*)",
        "pathType: ImplementationSpecific",
        "nginx.ingress.kubernetes.io/rewrite-target: /$2",
        "keep_alive: 7260s",
    ] {
        assert!(below.contains(line), "{line} is missing in {below}");
    }
    let at_root = render("routeTimeoutSeconds=600");
    assert!(
        !at_root.contains("rewrite-target") && !at_root.contains("keep_alive"),
        "{at_root}"
    );
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn what_is_immutable_holds_only_names_that_never_change() {
    let tools = Tools::find();
    let stable = [
        "app.kubernetes.io/name",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/component",
    ];
    for (case, values) in CASES {
        for document in tools.documents(&tools.render(&["--values", values])) {
            let spec = &document["spec"];
            let claims = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
            let claims = claims.map(|claim| &claim["metadata"]["labels"]);
            for labels in claims.chain([&spec["selector"]["matchLabels"]]) {
                let mut names = labels.as_object().into_iter().flat_map(|labels| labels.keys());
                assert!(
                    names.all(|name| stable.contains(&name.as_str())),
                    "{case}: {}: {labels}",
                    document["kind"]
                );
            }
        }
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn a_pod_has_time_to_leave_the_load_balancer_and_to_drain() {
    let tools = Tools::find();
    for (case, values) in CASES {
        let documents = tools.documents(&tools.render(&["--values", values]));
        let name = if *case == "everything" { "relay" } else { "mcp-broker" };
        let kind = if *case == "default" {
            "StatefulSet"
        } else {
            "Deployment"
        };
        let pod = &find(&documents, kind, name)["spec"]["template"]["spec"];
        let config = find(&documents, "ConfigMap", name)["data"]["broker.yaml"]
            .as_str()
            .unwrap();
        let grace = config
            .lines()
            .find_map(|line| line.strip_prefix("shutdown_grace: "))
            .and_then(|span| span.strip_suffix('s'))
            .and_then(|seconds| seconds.parse::<u64>().ok())
            .unwrap();
        let sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64();
        let total = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
        assert!(
            total > sleep.unwrap() + grace,
            "{case}: {total} s, {sleep:?} s, {grace} s"
        );
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_pods_roll_when_the_configuration_or_a_secret_changes() {
    let tools = Tools::find();
    let annotations = |more: &str| -> Value {
        let values = ["--values", "tests/helm/cases/default.yaml", "--set", more];
        let documents = tools.documents(&tools.render(&values));
        find(&documents, "StatefulSet", "mcp-broker")["spec"]["template"]["metadata"]["annotations"].clone()
    };
    let before = annotations("persistence.size=20Gi");
    assert_eq!(before, annotations("persistence.size=30Gi"), "the same pods");
    let changed = |after: &Value| {
        let names = ["checksum/config", "checksum/secrets"];
        names.map(|name| before[name] != after[name])
    };
    assert_eq!(changed(&annotations("config.queue_capacity=7")), [true, false]);
    let backend = "backends.docs.url=https://docs.example.com/mcp";
    assert_eq!(
        changed(&annotations(backend)),
        [false, false],
        "the broker reads the file again"
    );
    let other_key = "auth.adminKey=another-admin-key-of-some-length";
    assert_eq!(changed(&annotations(other_key)), [false, true]);
}
