//! Values that the chart refuses: combinations that cannot work, each with a message that says what to do, and names that
//! are no values.

use std::fs;

use serde_json::{Map, Value, json};

use super::tools::{Tools, root, scratch_folder};

/// What is set, and what the message says.
const COMBINATIONS: &[(&str, &str)] = &[
    (
        "storage=memory,replicaCount=3",
        "replicaCount 3 needs storage: redis: with memory",
    ),
    (
        "storage=disk,replicaCount=2",
        "replicaCount 2 needs storage: redis: a data folder",
    ),
    (
        "storage=disk,autoscaling.enabled=true",
        "autoscaling.enabled needs storage: redis, not disk",
    ),
    (
        "storage=memory,autoscaling.enabled=true",
        "autoscaling.enabled needs storage: redis, not memory",
    ),
    (
        "storage=redis,redis.nodes={r},autoscaling.enabled=true,autoscaling.minReplicas=11",
        "autoscaling.minReplicas (11) is larger than autoscaling.maxReplicas (10)",
    ),
    (
        "storage=redis,redis.nodes={r},autoscaling.enabled=true,autoscaling.targetCPUUtilizationPercentage=0",
        "autoscaling.enabled needs a target",
    ),
    (
        "storage=redis,redis.nodes={r},replicaCount=2,config.redis_fallback=memory",
        "config.redis_fallback: memory is for one replica",
    ),
    ("storage=redis", "storage: redis needs a Redis: set redis.nodes"),
    (
        "storage=redis,redis.inChart.enabled=true,redis.nodes={r}",
        "redis.inChart.enabled excludes redis.nodes",
    ),
    (
        "storage=redis,redis.inChart.enabled=true,config.wait_for_replicas=1",
        "config.wait_for_replicas needs a Redis with replicas",
    ),
    (
        "storage=redis,redis.nodes={a,b}",
        "redis.nodes has 2 addresses: set redis.kind",
    ),
    (
        "storage=redis,redis.nodes={a},redis.kind=sentinel",
        "redis.kind: sentinel needs redis.sentinelMaster",
    ),
    (
        "storage=redis,redis.nodes={a},redis.kind=cluster,redis.database=1",
        "redis.database must be 0 with redis.kind: cluster",
    ),
    (
        "storage=redis,redis.nodes={a},redis.password=x,redis.existingSecret=y",
        "redis.password and redis.existingSecret exclude each other",
    ),
    ("redis.inChart.enabled=true", "have no effect with storage: disk"),
    (
        "auth.enabled=false,ingress.enabled=true,ingress.hosts={a.example}",
        "auth.enabled: false is not allowed with an Ingress",
    ),
    (
        "auth.enabled=false,service.type=LoadBalancer",
        "auth.enabled: false is not allowed with",
    ),
    (
        "auth.adminKey=an-admin-key-of-some-length,auth.existingSecret=keys",
        "auth.adminKey and auth.existingSecret exclude each other",
    ),
    ("ingress.enabled=true", "ingress.enabled needs ingress.hosts"),
    (
        "ingress.enabled=true,ingress.hosts={a.example},ingress.controller=alb,ingress.path=/broker",
        "ingress.path other than / needs a controller that takes it away",
    ),
    (
        "httpRoute.enabled=true,httpRoute.hostnames={a.example}",
        "httpRoute.enabled needs httpRoute.parentRefs",
    ),
    (
        "httpRoute.enabled=true,httpRoute.parentRefs[0].name=g",
        "httpRoute.enabled needs httpRoute.hostnames",
    ),
    (
        "ingress.enabled=true,ingress.hosts={*.example.com}",
        "a route has a host with a wildcard",
    ),
    (
        "config.storage=disk",
        "config.storage follows from other values of the chart: set storage instead",
    ),
    (
        "backends.a.command=x,backends.a.url=https://b.example/mcp",
        "backends.a has a command and a url: leave one out",
    ),
    (
        "projects.team.backends.a.disabled=true",
        "projects.team.backends.a needs a command or a url",
    ),
    (
        "backends.a.command=x,projects.default.backends.b.command=y",
        "backends and projects.default.backends are the same project",
    ),
    ("config.shutdown_grace=5s", "set shutdown.graceSeconds instead"),
    (
        "storage=redis,redis.nodes={r},replicaCount=2,podDisruptionBudget.minAvailable=1",
        "podDisruptionBudget needs exactly one of",
    ),
    (
        "storage=redis,redis.nodes={r},replicaCount=2,podDisruptionBudget.minAvailable=2,\
         podDisruptionBudget.maxUnavailable=",
        "podDisruptionBudget lets no pod be evicted",
    ),
    (
        "metrics.enabled=false,metrics.serviceMonitor.enabled=true",
        "metrics.serviceMonitor and metrics.podMonitor need metrics.enabled",
    ),
    (
        "metrics.podMonitor.enabled=true,metrics.serviceMonitor.enabled=true",
        "metrics.serviceMonitor and metrics.podMonitor exclude each other",
    ),
    ("metrics.port=8000", "metrics.port must not be 8000"),
    (
        "metrics.token=a-token-of-some-length,auth.existingSecret=keys",
        "metrics.token and auth.existingSecret exclude each other",
    ),
];

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn combinations_that_cannot_work_are_refused_with_one_clear_message() {
    let tools = Tools::find();
    for (values, message) in COMBINATIONS {
        let refusal = tools.try_render(&["--set", values]).expect_err(values);
        assert!(refusal.contains(message), "{values}: {refusal}");
        let told = refusal.lines().filter(|line| !line.trim().is_empty()).count();
        assert!(told <= 3, "{values}: one message, in {told} lines: {refusal}");
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn several_mistakes_are_told_at_once() {
    let tools = Tools::find();
    let values = "replicaCount=2,metrics.port=8000,config.port=1";
    let refusal = tools.try_render(&["--set", values]).unwrap_err();
    for message in ["replicaCount 2", "metrics.port", "config.port"] {
        assert!(refusal.contains(message), "{refusal}");
    }
}

/// Every object of the schema that lists its properties gets one more, and Helm names each of them.
#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn a_typo_in_any_section_is_refused() {
    let tools = Tools::find();
    let schema = fs::read_to_string(root().join("helm/mcp-broker/values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let (mut values, mut places) = (json!({}), Vec::new());
    add_typos(&schema, "", &mut values, &mut places);
    assert!(places.len() > 50, "the sections are found: {places:?}");
    let file = scratch_folder("typos").join("values.json");
    fs::write(&file, values.to_string()).unwrap();
    let refusal = tools.try_render(&["--values", file.to_str().unwrap()]).unwrap_err();
    for place in places {
        let wanted = format!("- {place}: Additional property tpyo is not allowed");
        assert!(refusal.contains(&wanted), "{wanted}\n{refusal}");
    }
}

/// Adds the unknown name `tpyo` to each object of the values that the schema closes, and to `places` where it is.
fn add_typos(schema: &Value, path: &str, values: &mut Value, places: &mut Vec<String>) {
    let inner = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    if let Some(items) = schema.get("items") {
        let mut item = json!({});
        add_typos(items, &inner("0"), &mut item, places);
        if item != json!({}) {
            *values = json!([item]);
        }
    }
    if schema["additionalProperties"] != false {
        return;
    }
    let mut object = Map::new();
    for (name, property) in schema["properties"].as_object().unwrap() {
        let mut value = json!({});
        add_typos(property, &inner(name), &mut value, places);
        if value != json!({}) {
            object.insert(name.clone(), value);
        }
    }
    object.insert("tpyo".to_owned(), json!(true));
    places.push(if path.is_empty() {
        "(root)".to_owned()
    } else {
        path.to_owned()
    });
    *values = Value::Object(object);
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn a_misspelt_setting_of_the_broker_is_refused() {
    let tools = Tools::find();
    for values in [
        "config.queue_capacty=5",
        "config.queue_capacity=0",
        "config.session_retention=soon",
        "config.log_format=xml",
    ] {
        let refusal = tools.try_render(&["--set", values]).expect_err(values);
        assert!(refusal.contains("config"), "{values}: {refusal}");
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn a_wrong_table_of_a_backend_is_refused_with_its_place() {
    let tools = Tools::find();
    for (values, place) in [
        ("backends.a.comand=x", "backends.a"),
        ("backends.A.command=x", "backends"),
        ("backends.mcp.command=x", "backends"),
        ("backends.a.url=ftp://b.example", "backends.a.url"),
        ("backends.a.call_timeout=soon", "backends.a.call_timeout"),
        ("backends.a.result_max=1TB", "backends.a.result_max"),
        ("backends.a.concurrency=0", "backends.a.concurrency"),
        ("backends.a.args=x", "backends.a.args"),
        ("backends.a.limits.memry=1GiB", "backends.a.limits"),
        ("backends.a.tools.alow=x", "backends.a.tools.alow"),
        (
            "backends.a.tools.get.call_timeout=soon",
            "backends.a.tools.get.call_timeout",
        ),
        (
            "backends.a.tools.override.deny.call_timeout_max=soon",
            "backends.a.tools.override.deny.call_timeout_max",
        ),
        ("backends.a.tools.override.get.name=x", "backends.a.tools.override.get"),
        ("projects.team.quota=1", "projects.team"),
        ("projects.team.backends.a.era=old", "projects.team.backends.a.era"),
    ] {
        let refusal = tools.try_render(&["--set", values]).expect_err(values);
        assert!(refusal.contains(&format!("- {place}: ")), "{values}: {refusal}");
    }
}
