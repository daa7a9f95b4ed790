//! What an upgrade takes over from the cluster: keys that the chart has generated, and the number of replicas.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use serde_json::{Value, json};

use super::tools::{NAMESPACE, Tools, find};

const KEPT: [(&str, &str); 2] = [("mcp-broker-keys", "admin-key"), ("mcp-broker-redis", "redis-password")];

/// Values with which all keys are generated.
const VALUES: &str = "storage=redis,redis.inChart.enabled=true,replicaCount=3";

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn keys_are_generated_and_stay_when_the_release_goes() {
    let tools = Tools::find();
    let render = || tools.documents(&tools.render(&["--set", VALUES]));
    let (one, other) = (render(), render());
    for (secret, key) in KEPT {
        let [one, other] = [&one, &other].map(|documents| find(documents, "Secret", secret));
        let value = one["data"][key].as_str().unwrap();
        assert!(value.len() >= 4 * 43 / 3, "{key} is long: {value}");
        assert_ne!(value, other["data"][key], "{key} is random");
        assert_eq!(one["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn an_upgrade_keeps_the_keys_and_the_pods() {
    let tools = Tools::find();
    let api = KubernetesApi::start();
    let upgrade = || api.upgrade(tools, VALUES);
    let (one, other) = (upgrade(), upgrade());
    for (secret, key) in KEPT {
        let kept = cluster_object("secrets", secret).unwrap();
        assert_eq!(
            find(&one, "Secret", secret)["data"][key],
            kept["data"][key],
            "{key} is kept"
        );
    }
    for (kind, name) in [("Deployment", "mcp-broker"), ("StatefulSet", "mcp-broker-redis")] {
        assert_eq!(find(&one, kind, name), find(&other, kind, name), "{kind} is unchanged");
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn an_upgrade_leaves_the_number_of_replicas_to_the_autoscaler() {
    let tools = Tools::find();
    let values = "storage=redis,redis.nodes={redis},autoscaling.enabled=true";
    let upgraded = KubernetesApi::start().upgrade(tools, values);
    assert_eq!(find(&upgraded, "Deployment", "mcp-broker")["spec"]["replicas"], 7);
    let installed = tools.documents(&tools.render(&["--set", values]));
    let spec = &find(&installed, "Deployment", "mcp-broker")["spec"];
    assert!(spec.get("replicas").is_none(), "{spec}");
}

/// As much of the API of Kubernetes as `lookup` asks for: which resources exist, and the objects of [`cluster_object`].
struct KubernetesApi {
    address: SocketAddr,
}

impl KubernetesApi {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || serve(stream));
            }
        });
        Self { address }
    }

    /// What `helm upgrade` would send to this cluster.
    fn upgrade(&self, tools: Tools, values: &str) -> Vec<Value> {
        let url = format!("http://{}", self.address);
        let rendered = tools.render(&[
            "--dry-run=server",
            "--is-upgrade",
            "--kube-apiserver",
            &url,
            "--set",
            values,
        ]);
        tools.documents(&rendered)
    }
}

/// Answers the requests of a connection.
fn serve(mut stream: TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap())
        .lines()
        .map_while(Result::ok);
    while let Some(request) = lines.next() {
        lines.find(String::is_empty);
        let path = request.split(' ').nth(1).unwrap().split('?').next().unwrap();
        let (status, body) = match answer(path) {
            Some(body) => ("200 OK", body),
            None => (
                "404 Not Found",
                json!({"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404}),
            ),
        };
        let body = body.to_string();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n");
        if write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).is_err() {
            return;
        }
    }
}

fn answer(path: &str) -> Option<Value> {
    if let Some((folder, name)) = path.rsplit_once('/') {
        for (resource, namespace) in [
            ("secrets", "/api/v1/namespaces/"),
            ("deployments", "/apis/apps/v1/namespaces/"),
        ] {
            if folder == format!("{namespace}{NAMESPACE}/{resource}") {
                return cluster_object(resource, name);
            }
        }
    }
    let resource = |plural: &str, kind: &str| {
        let names = [plural, kind].map(|name| name.to_owned());
        json!({"name": names[0], "singularName": "", "namespaced": true, "kind": names[1], "verbs": ["get", "list"]})
    };
    let list = |group: &str, resource: Value| {
        Some(json!({"kind": "APIResourceList", "groupVersion": group, "resources": [resource]}))
    };
    match path {
        "/version" => Some(json!({"major": "1", "minor": "35", "gitVersion": "v1.35.0"})),
        "/api" => Some(json!({"kind": "APIVersions", "versions": ["v1"]})),
        "/apis" => Some(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [{
            "name": "apps", "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
            "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
        }]})),
        "/api/v1" => list("v1", resource("secrets", "Secret")),
        "/apis/apps/v1" => list("apps/v1", resource("deployments", "Deployment")),
        _ => None,
    }
}

/// An object of the cluster.
fn cluster_object(resource: &str, name: &str) -> Option<Value> {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let secret = |data: Value| Some(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}));
    match (resource, name) {
        ("secrets", "mcp-broker-keys") => secret(json!({
            "admin-key": "YWRtaW4ta2V5LW9mLXRoZS1jbHVzdGVy",
            "metrics-token": "dG9rZW4tb2YtdGhlLWNsdXN0ZXI=",
        })),
        ("secrets", "mcp-broker-redis") => secret(json!({"redis-password": "cGFzc3dvcmQ="})),
        ("deployments", "mcp-broker") => Some(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 7},
        })),
        _ => None,
    }
}
