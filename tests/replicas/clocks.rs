//! Clocks that jump while the broker runs: wall clocks decide nothing; the monotonic clock of a process decides in a
//! single process; the clock of Redis decides for replicas.

use std::{fs, path::PathBuf, process::Command};

use actors::clock::{now, rfc3339_text};

use test_client::folder::Folder;

use crate::support::{Agent, Broker, Redis, TIMEOUTS_OFF, broker_program};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The offsets that a wall clock is set to, one after the other.
const JUMPS_MS: [i64; 3] = [HOUR_MS, -HOUR_MS, DAY_MS];

/// Longer than any test, shorter than any jump.
const TTL_SECONDS: u64 = 600;

/// A jump is longer than these thresholds, and a test is shorter.
const FLAGS: [&str; 4] = [
    "--heartbeat-interval=1s",
    "--stale-threshold=60s",
    "--disconnect-threshold=2m",
    "--session-retention=5m",
];

/// A file with the offsets of the clocks of a process.
struct Clock(PathBuf);

impl Clock {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("mcp-broker-clock-{}", uuid::Uuid::new_v4().simple()));
        let clock = Self(path);
        clock.set_offset(0, 0);
        clock
    }

    fn set_offset(&self, wall_ms: i64, mono_ms: i64) {
        let written = self.0.with_extension("new");
        fs::write(&written, format!("{wall_ms} {mono_ms}")).unwrap();
        fs::rename(written, &self.0).unwrap();
    }

    fn program(&self) -> Command {
        let mut program = broker_program();
        program.env("FAULT_CLOCK_FILE", &self.0);
        program
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Asserts that messages of `sender` carry timestamps with this offset.
fn assert_stamped(sender: &Agent, recipient: &Agent, off_ms: i64) {
    let true_time = || now().unix_ms.saturating_add_signed(off_ms);
    // Clocks have the resolution of the kernel's tick.
    let before = rfc3339_text(true_time() - 20);
    sender.sends("stamped").to(recipient);
    let after = rfc3339_text(true_time() + 20);
    let seen = recipient.sees(["stamped"]);
    let stamp = seen[0]["timestamp"].as_str().unwrap();
    assert!(
        (before.as_str()..=after.as_str()).contains(&stamp),
        "{stamp} is not between {before} and {after}: is the broker built with `--features faults`?"
    );
}

/// Sends a message in each direction with a TTL longer than the test and shorter than a jump.
fn send_with_ttl(from: &Agent, to: &Agent) -> String {
    from.sends("short-lived").with("ttl_seconds", TTL_SECONDS).to(to).id
}

#[test]
fn a_wall_clock_that_jumps_decides_nothing_across_replicas() {
    let redis = Redis::start();
    let clock = Clock::new();
    let steady = Broker::replica(&redis.url(), &FLAGS);
    let jumpy = Broker::replica_with_program(clock.program(), &redis.url(), &FLAGS);
    Broker::register_note_protocol(&steady.client());
    let alice = steady.agent("alice");
    let bob = jumpy.agent("bob");
    let reader = jumpy.http_modern("reader");
    for off_ms in JUMPS_MS {
        let (to_bob, to_alice) = (send_with_ttl(&alice, &bob), send_with_ttl(&bob, &alice));
        clock.set_offset(off_ms, 0);
        for witness in [&alice, &bob] {
            for name in ["alice", "bob", "reader"] {
                assert_eq!(
                    witness.presence_of(name).as_deref(),
                    Some("active"),
                    "{name} at {off_ms}"
                );
            }
            for id in [&to_bob, &to_alice] {
                assert_eq!(witness.status_of(id), "queued", "at {off_ms}");
            }
        }
        bob.sees(["short-lived"]);
        alice.sees(["short-lived"]);
        assert_stamped(&bob, &alice, off_ms);
        assert_stamped(&alice, &bob, 0);
        // The idempotency key from before the jump is still known.
        let key = format!("key {off_ms}");
        let first = bob.sends("once").with("idempotency_key", key.as_str()).to("alice");
        clock.set_offset(-off_ms, 0);
        let again = bob.sends("once").with("idempotency_key", key.as_str()).to("alice");
        assert_eq!(first.id, again.id);
        alice.sees(["once"]);
        // Time still passes: a message with a short TTL expires.
        let brief = bob
            .sends("brief")
            .with("ttl_seconds", 1)
            .with("report", "none")
            .to("reader");
        bob.awaits_status(&brief.id, "expired");
    }
    assert!(alice.dead_letters("recipient_gone").is_empty());
    drop(reader);
}

#[test]
fn a_monotonic_clock_that_jumps_at_one_replica_expires_nothing_in_redis() {
    let redis = Redis::start();
    let clock = Clock::new();
    let steady = Broker::replica(&redis.url(), &TIMEOUTS_OFF);
    let jumpy = Broker::replica_with_program(clock.program(), &redis.url(), &TIMEOUTS_OFF);
    Broker::register_note_protocol(&steady.client());
    let (alice, bob) = (steady.agent("alice"), jumpy.agent("bob"));
    let sent = [send_with_ttl(&alice, &bob), send_with_ttl(&bob, &alice)];
    clock.set_offset(0, HOUR_MS);
    let after = [send_with_ttl(&alice, &bob), send_with_ttl(&bob, &alice)];
    for id in sent.iter().chain(&after) {
        assert_eq!(bob.status_of(id), "queued");
    }
    bob.sees(["short-lived", "short-lived"]);
    alice.sees(["short-lived", "short-lived"]);
}

#[test]
fn a_wall_clock_that_jumps_decides_nothing_in_one_process() {
    for storage in ["--storage=memory", "--storage=disk"] {
        let (clock, folder) = (Clock::new(), Folder::new());
        let broker = Broker::with_program(clock.program(), &[&FLAGS[..], &[storage, &folder.data_dir()]].concat());
        let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
        let reader = broker.http_modern("reader");
        for off_ms in JUMPS_MS {
            let sent = send_with_ttl(&alice, &bob);
            let key = format!("key {off_ms}");
            let keyed = || alice.sends("once").with("idempotency_key", key.as_str()).to("bob");
            let first = keyed();
            clock.set_offset(off_ms, 0);
            for name in ["alice", "bob", "reader"] {
                assert_eq!(alice.presence_of(name).as_deref(), Some("active"), "{name} at {off_ms}");
            }
            assert_eq!(alice.status_of(&sent), "queued", "at {off_ms}");
            assert_eq!(keyed().id, first.id);
            bob.sees(["short-lived", "once"]);
            assert_stamped(&alice, &bob, off_ms);
            let brief = alice.sends("brief").with("ttl_seconds", 1).to("reader");
            alice.awaits_status(&brief.id, "expired");
        }
        assert!(alice.dead_letters("recipient_gone").is_empty());
        drop(reader);
    }
}

#[test]
fn a_ttl_follows_the_monotonic_clock_in_one_process() {
    for storage in ["--storage=memory", "--storage=disk"] {
        let (clock, folder) = (Clock::new(), Folder::new());
        let broker = Broker::with_program(
            clock.program(),
            &[&TIMEOUTS_OFF[..], &[storage, &folder.data_dir()]].concat(),
        );
        let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
        let sent = send_with_ttl(&alice, &bob);
        // The wall clock jumps in the other direction.
        clock.set_offset(-DAY_MS, HOUR_MS);
        alice.awaits_status(&sent, "expired");
        bob.sees_nothing();
    }
}
