//! Checks that the time of a refusal does not reveal which part of a key is wrong: `cargo bench --bench key_guessing`.
//!
//! Tries keys with different defects in random order and compares the times of each kind with those of a wrong secret:
//! in this process, where a difference of nanoseconds shows, and over HTTP, which is all that an attacker can measure.
//! Two kinds check the method: one is delayed on purpose and must show a difference, one equals the first and must
//! show none. The exit code is 1 when a verdict is not the expected one.

mod support;

use std::{
    hint::black_box,
    net::{Ipv4Addr, SocketAddr},
    process::ExitCode,
    time::{Duration, Instant},
};

use actix_rt::System;
use actors::{
    broker::BrokerHandle,
    clock::now,
    model::{KeyDigest, ProjectId},
};
use api::auth::{AuthPolicy, Authenticator};
use futures_util::FutureExt;
use serde_json::json;
use socket2::{Domain, Socket, Type};

use test_client::{
    http::{Connection, Request},
    process::RunningServer,
    wait::WAIT_TIMEOUT,
};

use support::{
    ADMIN_KEY, administer,
    statistics::{Comparison, Dice, Verdict},
};

/// What is wrong with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeyDefect {
    Secret,
    /// A second sample of wrong secrets.
    SecretAgain,
    KeyId,
    Project,
    Revoked,
    Expired,
    /// A wrong secret that is delayed by twice the smallest difference that the bench must find.
    HeldUp,
}

impl KeyDefect {
    const ALL: [Self; 7] = [
        Self::Secret,
        Self::SecretAgain,
        Self::KeyId,
        Self::Project,
        Self::Revoked,
        Self::Expired,
        Self::HeldUp,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Secret => "wrong secret",
            Self::SecretAgain => "wrong secret, again",
            Self::KeyId => "unknown key id",
            Self::Project => "unknown project",
            Self::Revoked => "revoked key",
            Self::Expired => "expired key",
            Self::HeldUp => "wrong secret, held up",
        }
    }

    const fn expected(self) -> Verdict {
        match self {
            Self::HeldUp => Verdict::Differs,
            _ => Verdict::Same,
        }
    }
}

/// Keys of each kind. All kinds together stay below the failures that one network may have in a minute. Each network
/// tries each key once, so no key is known to it yet.
const KEYS: usize = 16;
const PROJECT: &str = "guessing";
const UNKNOWN_PROJECT: &str = "guessed0";

/// The smallest difference that counts, in ns. The delayed kind is delayed by twice as much.
const FLOOR_IN_PROCESS: f64 = 100.0;
const FLOOR_HTTP: f64 = 1000.0;

/// The keys to try, by defect.
struct Keys(Vec<Vec<String>>);

impl Keys {
    /// `good` holds as many keys as three kinds need. `revoked` and `expired` are used whole.
    fn new(good: &[String], revoked: Vec<String>, expired: Vec<String>, dice: &mut Dice) -> Self {
        let mut letters =
            |len: usize, from: &[u8]| -> String { (0..len).map(|_| char::from(from[dice.roll(from.len())])).collect() };
        let hex = b"0123456789abcdef";
        let mut with_wrong_secret = |key: &String| {
            let (name, secret) = key.rsplit_once('_').unwrap();
            format!("{name}_{}", letters(secret.len(), hex))
        };
        let wrong: Vec<String> = good.iter().map(&mut with_wrong_secret).collect();
        let of = |which: usize| &wrong[which * KEYS..(which + 1) * KEYS];
        let unknown_id = |key: &String| {
            let mut parts = key.split('_');
            let (project, id, secret) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
            // A generated id contains no 0.
            format!("{project}_k0{}_{secret}", &id[2..])
        };
        let unknown_project = |key: &String| key.replacen(PROJECT, UNKNOWN_PROJECT, 1);
        Self(
            KeyDefect::ALL
                .iter()
                .map(|wrong| match wrong {
                    KeyDefect::Secret => of(0).to_vec(),
                    KeyDefect::SecretAgain => of(1).to_vec(),
                    KeyDefect::HeldUp => of(2).to_vec(),
                    KeyDefect::KeyId => of(0).iter().map(unknown_id).collect(),
                    KeyDefect::Project => of(1).iter().map(unknown_project).collect(),
                    KeyDefect::Revoked => revoked.clone(),
                    KeyDefect::Expired => expired.clone(),
                })
                .collect(),
        )
    }

    /// All kinds with all their keys, in random order.
    fn order(dice: &mut Dice) -> Vec<(usize, usize)> {
        let kinds = 0..KeyDefect::ALL.len();
        let mut order: Vec<_> = kinds.flat_map(|kind| (0..KEYS).map(move |key| (kind, key))).collect();
        dice.shuffle(&mut order);
        order
    }
}

/// Times in ns, by kind.
struct Times(Vec<Vec<f64>>);

impl Times {
    fn new() -> Self {
        Self(vec![vec![]; KeyDefect::ALL.len()])
    }

    fn add(&mut self, kind: usize, time: Duration) {
        self.0[kind].push(time.as_secs_f64() * 1e9);
    }

    /// Prints the comparisons. Returns whether all verdicts are the expected ones.
    fn print_and_check(&self, level: &str, floor: f64) -> bool {
        println!(
            "\n{level}; what counts begins at {floor:.0} ns, and {:.0} ns are to be found",
            2.0 * floor
        );
        println!(
            "{:<24} {:>8} {:>10} {:>10}  {:>20} {:>8} {:>8}  verdict",
            "against a wrong secret", "samples", "median ns", "later by", "99 % interval", "t", "z"
        );
        let mut is_fine = true;
        for (kind, wrong) in KeyDefect::ALL.into_iter().enumerate().skip(1) {
            let comparison = Comparison::of(&self.0[0], &self.0[kind]);
            let verdict = comparison.verdict(floor);
            let as_expected = verdict == wrong.expected();
            is_fine &= as_expected;
            let verdict = match verdict {
                Verdict::Same => "same",
                Verdict::Differs => "DIFFERS",
                Verdict::Unclear => "unclear",
            };
            let mark = if as_expected { "" } else { "  <- not as it should be" };
            println!("{:<24} {comparison}  {verdict}{mark}", wrong.name());
        }
        is_fine
    }
}

/// Spins for twice the floor if this kind is to be delayed.
fn delay_known(kind: usize, floor: f64) {
    if KeyDefect::ALL[kind] == KeyDefect::HeldUp {
        let (start, time) = (Instant::now(), Duration::from_secs_f64(2.0 * floor / 1e9));
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    }
}

fn main() -> ExitCode {
    let rounds = support::option("--rounds", 3000);
    let networks = support::option("--networks", 1000);
    let mut is_fine = System::new().block_on(in_process(rounds));
    is_fine &= over_http(networks);
    if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn in_process(rounds: usize) -> bool {
    let mut dice = Dice::new();
    let broker = support::local_broker(0).await;
    let keys = local_keys(&broker, &mut dice).await;
    let policy = AuthPolicy {
        is_required: true,
        admin_key: Some(KeyDigest::of_key(ADMIN_KEY)),
        jwt: None,
        rate_limit: 0,
        allows_agent_answers: false,
    };
    let auth = support::authenticator(&broker, policy);
    let found = find_times(&broker, &keys, rounds, &mut dice);
    let admitted = admit_times(&auth, &keys, rounds, &mut dice);
    found.print_and_check("Keyring::find, in this process", FLOOR_IN_PROCESS)
        & admitted.print_and_check("Authenticator::admit, in this process", FLOOR_IN_PROCESS)
}

async fn local_keys(broker: &BrokerHandle, dice: &mut Dice) -> Keys {
    support::make_project(broker, PROJECT, 0).await;
    let project = ProjectId::parse(PROJECT).unwrap();
    let (mut good, mut revoked, mut expired) = (vec![], vec![], vec![]);
    for _ in 0..3 * KEYS {
        let made = broker.add_key(&project, support::member_key(None)).await.unwrap();
        good.push(made.key.reveal().to_owned());
    }
    for _ in 0..KEYS {
        let made = broker.add_key(&project, support::member_key(None)).await.unwrap();
        broker.revoke_key(&project, made.id).await.unwrap();
        revoked.push(made.key.reveal().to_owned());
        let soon = support::member_key(Some(now().unix_ms + 100));
        let made = broker.add_key(&project, soon).await.unwrap();
        expired.push(made.key.reveal().to_owned());
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    Keys::new(&good, revoked, expired, dice)
}

fn find_times(broker: &BrokerHandle, keys: &Keys, rounds: usize, dice: &mut Dice) -> Times {
    let mut times = Times::new();
    // All keys are read from the same address in memory.
    let mut key = String::with_capacity(256);
    for _ in 0..rounds {
        for (kind, which) in Keys::order(dice) {
            key.clear();
            key.push_str(&keys.0[kind][which]);
            let start = Instant::now();
            let digest = KeyDigest::of_key(black_box(&key));
            let holder = broker.keyring().find(&digest);
            let is_good = holder.is_some_and(|holder| holder.status.is_valid(now().unix_ms));
            delay_known(kind, FLOOR_IN_PROCESS);
            times.add(kind, start.elapsed());
            assert!(!black_box(is_good));
        }
    }
    times
}

fn admit_times(auth: &Authenticator, keys: &Keys, rounds: usize, dice: &mut Dice) -> Times {
    let headers = |key: &String| support::headers(&[("x-api-key", key)]);
    let arrivals: Vec<Vec<_>> = keys.0.iter().map(|keys| keys.iter().map(headers).collect()).collect();
    let mut times = Times::new();
    for _ in 0..rounds {
        for (kind, which) in Keys::order(dice) {
            let arrival = support::arrival(&arrivals[kind][which], None);
            let start = Instant::now();
            let admitted = auth.authenticate(black_box(&arrival)).now_or_never();
            delay_known(kind, FLOOR_IN_PROCESS);
            times.add(kind, start.elapsed());
            assert!(admitted.is_some_and(|admitted| admitted.is_err()));
        }
    }
    times
}

/// Each network stays below the limit of failed attempts.
fn over_http(networks: usize) -> bool {
    let flags = [
        "--enable-auth",
        "--admin-key",
        ADMIN_KEY,
        "--workers=1",
        "--log-level=error",
    ];
    let broker = RunningServer::broker(&flags);
    let mut dice = Dice::new();
    let keys = remote_keys(broker.address, &mut dice);
    let mut times = Times::new();
    for network in 0..networks {
        let mut client = connect_from(network, broker.address);
        for (kind, which) in Keys::order(&mut dice) {
            let headers = [("X-API-Key", keys.0[kind][which].as_str())];
            let request = Request::new("GET", "/api/v1/projects", &headers, "").encode(broker.address);
            let start = Instant::now();
            delay_known(kind, FLOOR_HTTP);
            let answer = client.ask(&request).unwrap();
            times.add(kind, start.elapsed());
            assert_eq!(answer.head.status, 401, "{}", String::from_utf8_lossy(answer.body));
        }
    }
    times.print_and_check("over HTTP, one connection at a time", FLOOR_HTTP)
}

fn remote_keys(address: SocketAddr, dice: &mut Dice) -> Keys {
    administer(
        address,
        "POST",
        "projects",
        &json!({"project_id": PROJECT, "name": PROJECT}),
    );
    let path = format!("projects/{PROJECT}/keys");
    let make = |body| administer(address, "POST", &path, &body);
    let key = |made: &serde_json::Value| made["api_key"].as_str().unwrap().to_owned();
    let good: Vec<_> = (0..3 * KEYS).map(|_| key(&make(json!({})))).collect();
    let (mut revoked, mut expired) = (vec![], vec![]);
    for _ in 0..KEYS {
        let made = make(json!({}));
        revoked.push(key(&made));
        let id = made["key"]["key_id"].as_str().unwrap();
        administer(address, "DELETE", &format!("{path}/{id}"), &json!(null));
        expired.push(key(&make(json!({"expires_in_seconds": 1}))));
    }
    std::thread::sleep(Duration::from_millis(1500));
    Keys::new(&good, revoked, expired, dice)
}

/// A connection from a loopback address of its own; a machine has 16 million of them.
fn connect_from(network: usize, address: SocketAddr) -> Connection {
    let [_, high, middle, low] = (network as u32 + 1).to_be_bytes();
    let from = SocketAddr::from((Ipv4Addr::new(127, 1 + high, middle, low), 0));
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&from.into()).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut connection = Connection::on(socket.into(), WAIT_TIMEOUT).unwrap();
    // The first requests of a connection take longer and are not measured.
    let request = Request::get("/livez").encode(address);
    for _ in 0..3 {
        assert_eq!(connection.ask(&request).unwrap().head.status, 200);
    }
    connection
}
