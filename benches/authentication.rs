//! The cost of authentication: `cargo bench --bench authentication`.
//!
//! The first part measures each kind of credentials alone in this process, in nanoseconds: the fastest round and the
//! median. The second part measures the processor time of a broker per message on lasting connections, with and
//! without authentication in turn, by means of `mcp-broker-load` (build it with the same profile first: `cargo build
//! --release -p mcp-broker-load`). The cost over HTTP is measured by `http-bench --authentication` of the package
//! `mcp-broker-oracle`.

#[allow(dead_code, reason = "shared with the black-box tests")]
#[path = "../tests/support/issuer.rs"]
mod issuer;
mod support;

use std::{
    future::Future,
    hint::black_box,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use actix_http::header::HeaderMap;
use actix_rt::System;
use actors::{clock::now, model::KeyDigest};
use api::auth::{
    AuthPolicy, Authenticator, Identity,
    jwt::{JwtSettings, JwtVerifier, KeySource},
};
use futures_util::FutureExt;
use serde_json::{Value, json};

use issuer::Issuer;
use support::{ADMIN_KEY, administer, median};
use test_client::process::{RunningServer, program};

const ROUND: usize = 10_000;
/// Limits that this bench never reaches.
const PER_MINUTE: u32 = 4_000_000_000;
const PER_MINUTE_OF_KEY: u32 = 10_000_000;
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn main() {
    let (rounds, seconds) = (support::option("--rounds", 7), support::option("--seconds", 3));
    println!("ns: fastest, median");
    System::new().block_on(in_process());
    measure_running_broker(rounds, seconds);
}

/// Runs rounds for a second and prints what one took.
fn measure(what: &str, mut one: impl FnMut()) {
    let mut round = || (0..ROUND).for_each(|_| one());
    round();
    let mut nanos = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        let start = Instant::now();
        round();
        nanos.push(start.elapsed().as_nanos() / ROUND as u128);
    }
    nanos.sort_unstable();
    println!("{what:<52} {:>6} {:>6}", nanos[0], nanos[nanos.len() / 2]);
}

/// Polls a future once. Nothing measured here waits.
fn block_on_ready<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the future is ready")
}

async fn in_process() {
    let broker = support::local_broker(0).await;
    let limited_broker = support::local_broker(PER_MINUTE).await;
    let free = support::make_project(&broker, "free", 0).await;
    let limited = support::make_project(&limited_broker, "limited", PER_MINUTE).await;
    let limited_only_itself = support::make_project(&limited_broker, "free", 0).await;
    let (token, jwt) = token();
    let policy = |required, admin: bool| AuthPolicy {
        is_required: required,
        admin_key: admin.then(|| KeyDigest::of_key(ADMIN_KEY)),
        jwt: required.then(|| Arc::clone(&jwt)),
        rate_limit: 0,
        allows_agent_answers: false,
    };
    let off = support::authenticator(&broker, policy(false, false));
    let on = support::authenticator(&broker, policy(true, true));
    let on_limited = support::authenticator(&limited_broker, policy(true, true));

    let with_key = |key: &str| support::headers(&[("x-api-key", key)]);
    let bearer = format!("Bearer {token}");
    let (nothing, key, admin) = (support::headers(&[]), with_key(&free), with_key(ADMIN_KEY));
    let token = support::headers(&[("authorization", &bearer)]);
    let project = support::headers(&[("x-api-key", &free), ("x-project-id", "free")]);
    for (what, auth, headers) in [
        ("admit: nothing brought, authentication off", &off, &nothing),
        ("admit: API key", &on, &key),
        ("admit: API key, and X-Project-ID", &on, &project),
        ("admit: admin key", &on, &admin),
        ("admit: token that was verified before", &on, &token),
    ] {
        let arrival = support::arrival(headers, Some(HERE));
        measure(what, || {
            assert!(block_on_ready(auth.authenticate(black_box(&arrival))).is_ok())
        });
    }

    for (what, identity) in [
        ("take_request: no limits", identity(&on, &key)),
        (
            "take_request: of the key",
            identity(&on_limited, &with_key(&limited_only_itself)),
        ),
        (
            "take_request: of the key and of the project",
            identity(&on_limited, &with_key(&limited)),
        ),
    ] {
        measure(what, || assert!(black_box(&identity).take_request().is_ok()));
    }
    let few = support::make_project(&broker, "few", 1).await;
    let identity = identity(&on, &with_key(&few));
    assert!(identity.take_request().is_ok());
    measure("take_request: refused", || {
        assert!(black_box(&identity).take_request().is_err())
    });
}

fn identity(auth: &Authenticator, headers: &HeaderMap) -> Arc<Identity> {
    let admitted = block_on_ready(auth.authenticate(&support::arrival(headers, Some(HERE))));
    admitted.unwrap_or_else(|_| panic!("the key is valid"))
}

/// A token of an issuer whose keys are in a file, and its verifier.
fn token() -> (String, Arc<JwtVerifier>) {
    let issuer = Issuer::new("https://login.example/realm", "https://broker.example/mcp");
    let file: PathBuf = std::env::temp_dir().join(format!("mcp-broker-bench-jwks-{}.json", std::process::id()));
    issuer.publishes(&file);
    let jwt = JwtVerifier::open(JwtSettings {
        issuer: issuer.name.clone(),
        audience: issuer.audience.clone(),
        keys: KeySource::File(file.clone()),
        project_claim: "project_id".to_owned(),
        scope_claim: "scope".to_owned(),
        human_claim: "sub".to_owned(),
        roles_claim: "roles".to_owned(),
    });
    let mut claims = issuer.claims("somebody", now().unix_ms / 1000);
    claims["project_id"] = json!("free");
    claims["scope"] = json!("mcp-broker:member");
    let token = issuer.signs(&claims);
    let jwt = jwt.unwrap();
    // One verification loads the keys; they stay known after the file is deleted.
    assert!(block_on_ready(jwt.verify(&token, now().unix_ms / 1000)).is_ok());
    drop(std::fs::remove_file(file));
    (token, jwt)
}

/// A broker with one configuration of authentication.
struct AuthenticationCase {
    name: &'static str,
    broker: RunningServer,
    /// The rate limit of the project per minute; `None` without authentication.
    limit: Option<u32>,
    micros: Vec<f64>,
}

impl AuthenticationCase {
    fn new(name: &'static str, more: &[&str], limit: Option<u32>) -> Self {
        let usual = ["--workers=1", "--log-level=warn", "--queue-capacity=100000"];
        Self {
            name,
            broker: RunningServer::broker(&[&usual, more].concat()),
            limit,
            micros: vec![],
        }
    }

    /// Processor time of the broker per message.
    fn measure(&mut self, round: usize, seconds: usize) {
        let address = self.broker.address;
        let mut load = Command::new(program("mcp-broker-load"));
        load.args(["direct", "--pairs=50", "--window=64", "--json"])
            .args(["--url", &format!("ws://{address}/ws")])
            .args(["--pid", &self.broker.id().to_string()])
            .args(["--seconds", &seconds.to_string()]);
        if let Some(rate_limit) = self.limit {
            // Each round has a project of its own with an unused limit.
            let id = format!("round-{round}");
            let body = json!({"project_id": id, "name": id, "config": {"rate_limit": rate_limit}});
            let made = administer(address, "POST", "projects", &body);
            load.env("MCP_BROKER_API_KEY", made["api_keys"][0]["api_key"].as_str().unwrap());
        }
        let output = load.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        self.micros.push(report["server_cpu_us_per_message"].as_f64().unwrap());
    }
}

fn measure_running_broker(rounds: usize, seconds: usize) {
    let per_key = PER_MINUTE_OF_KEY.to_string();
    let on = ["--enable-auth", "--admin-key", ADMIN_KEY];
    let limits = ["--rate-limit", &per_key];
    let mut ways = [
        AuthenticationCase::new("authentication off", &[], None),
        AuthenticationCase::new("authentication on", &on, Some(0)),
        AuthenticationCase::new(
            "on, with limits of key and project",
            &[&on[..], &limits].concat(),
            Some(PER_MINUTE),
        ),
    ];
    for round in 0..rounds {
        // The brokers take turns, so that a busy period of the machine affects all of them.
        for at in 0..ways.len() {
            ways[(at + round) % 3].measure(round, seconds);
        }
    }
    println!("\nlive WebSocket, CPU µs of the broker per message; medians of {rounds} rounds");
    println!("{:<40} {:>10} {:>16}", "", "µs", "more than off");
    let off = ways[0].micros.clone();
    for AuthenticationCase { name, micros, .. } in &ways {
        let more = micros.iter().zip(&off).map(|(micros, off)| micros - off).collect();
        println!("{name:<40} {:>10.3} {:>+16.3}", median(micros.clone()), median(more));
    }
}
