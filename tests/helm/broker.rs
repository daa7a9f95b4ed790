//! The real broker with what the chart renders: its configuration file, its arguments, the URL of Redis, and the script of
//! `helm test`.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{
    support::{ADMIN_KEY, Broker, Redis, Request, broker_program},
    tools::{Tools, find, root, scratch_folder, text_of},
};

/// The token in the file of the scraper.
const METRICS_TOKEN: &str = "token-of-the-metrics";

/// A configuration file as the chart renders it, with its paths in a folder of the test.
fn configuration(documents: &[Value], folder: &Path) -> String {
    let config = find(documents, "ConfigMap", "mcp-broker")["data"]["broker.yaml"].as_str();
    fs::write(folder.join("admin-key"), ADMIN_KEY).unwrap();
    fs::write(folder.join("metrics-token"), METRICS_TOKEN).unwrap();
    let folder_text = folder.to_str().unwrap();
    let config = config.unwrap().replace("/etc/mcp-broker/keys", folder_text);
    let config = config.replace("/etc/mcp-broker/redis", folder_text);
    let file = folder.join("broker.yaml");
    fs::write(&file, config.replace("/var/lib/mcp-broker", folder_text)).unwrap();
    format!("--config={}", file.display())
}

/// A broker started as the container of these documents, but on free ports of this machine.
pub fn start(documents: &[Value], folder: &Path, more: &[&str]) -> Broker {
    let config = configuration(documents, folder);
    Broker::on_existing_storage(&[&[config.as_str(), "--host=127.0.0.1", "--metrics-port=0"], more].concat())
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_broker_accepts_the_configuration_of_each_storage() {
    let tools = Tools::find();
    let redis = Redis::start();
    for (storage, more) in [
        ("memory", ""),
        ("disk", ",ingress.enabled=true,ingress.hosts={a.example}"),
        (
            "redis",
            ",redis.nodes={redis:6379},replicaCount=3,config.projects_max=1000000,config.queue_warning=0.8",
        ),
    ] {
        let values = format!("storage={storage}{more}");
        let documents = tools.documents(&tools.render(&["--set", &values]));
        let folder = scratch_folder(&format!("broker-{storage}"));
        let broker = start(&documents, &folder, &[&format!("--redis-url={}", redis.url())]);
        assert_eq!(broker.get("/readyz").status, 200, "{storage}");
        let health: Value = serde_json::from_str(&broker.get("/health").body).unwrap();
        assert_eq!(health["storage_backend"], storage);
        assert_eq!(health["authentication_enabled"], true);
        let log = broker.log();
        let (_, metrics) = log.split_once("the metrics are at http://").expect(&log);
        let (metrics, _) = metrics.split_once("/metrics").unwrap();
        for (token, status) in [(METRICS_TOKEN, 200), ("another-token-of-some-length", 401)] {
            // Prometheus names the address of the pod.
            let scrape = Request::get(metrics.parse().unwrap())
                .with_path("/metrics")
                .with("Accept", "text/plain")
                .with("Host", "10.1.2.3:9090")
                .with("Authorization", format!("Bearer {token}"));
            assert_eq!(scrape.answered().status, status, "{storage}: {token}");
        }
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_broker_reads_the_url_of_redis_from_the_file_of_a_secret() {
    let tools = Tools::find();
    let redis = Redis::start();
    let values = "storage=redis,redis.urlSecret.name=shared";
    let documents = tools.documents(&tools.render(&["--set", values]));
    let folder = scratch_folder("broker-redis-url");
    fs::write(folder.join("url"), redis.url()).unwrap();
    let broker = start(&documents, &folder, &[]);
    assert_eq!(broker.get("/readyz").status, 200);
}

/// The start goes as far as Redis, which cannot be reached: with another exit code the URL would be refused.
#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_broker_understands_each_kind_of_redis_url_and_reads_the_password_from_a_file() {
    let tools = Tools::find();
    for values in [
        "redis.username=u,redis.password=a/b,redis.database=3",
        "redis.kind=sentinel,redis.sentinelMaster=m,redis.password=p,redis.database=2",
        "redis.kind=cluster,redis.tls.enabled=true,redis.existingSecret=s",
    ] {
        let all = format!("storage=redis,redis.nodes={{127.0.0.1:1}},{values}");
        let documents = tools.documents(&tools.render(&["--set", &all]));
        let container = &find(&documents, "Deployment", "mcp-broker")["spec"]["template"]["spec"]["containers"][0];
        assert!(!container["env"].to_string().contains("REDIS"), "{}", container["env"]);
        let folder = scratch_folder("broker-url");
        fs::write(folder.join("password"), "p@ss/%").unwrap();
        let config = configuration(&documents, &folder);
        let mut program = broker_program();
        program.args([
            "serve",
            &config,
            "--host=127.0.0.1",
            "--port=0",
            "--storage-deadline=200ms",
        ]);
        let output = program.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{values}: {}", text_of(&output));
    }
}

#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn the_container_starts_the_broker_with_arguments_that_it_has() {
    let tools = Tools::find();
    let documents = tools.documents(&tools.render(&[]));
    let pod = &find(&documents, "StatefulSet", "mcp-broker")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let arguments: Vec<_> = container["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    let ["serve", "--config", file] = arguments[..] else {
        panic!("{arguments:?}")
    };
    let mounts = container["volumeMounts"].as_array().unwrap();
    let folder = Path::new(file).parent().unwrap().to_str().unwrap();
    assert!(mounts.iter().any(|mount| mount["mountPath"] == folder), "{mounts:?}");
}

/// The script of the pod of `helm test`, which runs with `sh` and `curl`.
#[test]
#[ignore = "needs the programs of the chart: scripts/test installs them"]
fn helm_test_sends_a_message() {
    let tools = Tools::find();
    for (flag, has_key) in [("auth.enabled=true", true), ("auth.enabled=false", false)] {
        let documents = tools.documents(&tools.render(&["--set", flag]));
        let container = &find(&documents, "Pod", "mcp-broker-test")["spec"]["containers"][0];
        let script = container["args"][0].as_str().unwrap();
        let folder = scratch_folder(&format!("message-{has_key}"));
        let broker = start(&documents, &folder, &[]);
        let run = |key: &str| {
            fs::write(folder.join("key"), key).unwrap();
            let mut shell = Command::new("sh");
            shell
                .env_clear()
                .env("PATH", env::var_os("PATH").unwrap_or_default())
                .env("URL", format!("http://{}", broker.address))
                .env("PROJECT", "default");
            if has_key {
                shell.env("KEY_FILE", folder.join("key"));
            }
            shell.args(["-euc", script]).current_dir(root()).output().unwrap()
        };
        // The second run meets the sessions and the protocol of the first.
        for _ in 0..2 {
            let output = run(ADMIN_KEY);
            assert!(output.status.success(), "{}", text_of(&output));
            assert!(text_of(&output).contains("received: helm test"), "{}", text_of(&output));
        }
        if has_key {
            let output = run("a-key-that-is-not-known");
            assert!(!output.status.success(), "a wrong key is seen: {}", text_of(&output));
        }
    }
}
