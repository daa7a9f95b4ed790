//! What a front and its broker cost while nothing happens: their threads sleep.

use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{home::Home, runtime::STATUS};

/// Long enough for a timer of a second, or one that runs out of step, to be seen.
pub const WINDOW: Duration = Duration::from_secs(5);
/// How long the work of a broker that has just started may go on.
const SETTLING_MAX: Duration = Duration::from_secs(100);
/// The most wake-ups of one process in a window.
const WAKEUPS_MAX: u64 = 1;

/// How often each thread of a process has given up the processor to wait.
pub fn waits(pid: i32) -> BTreeMap<String, u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let count = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((thread.file_name().into_string().unwrap(), line.trim().parse().unwrap()))
    };
    threads.filter_map(count).collect()
}

/// Whether the threads of a process woke up at most [`WAKEUPS_MAX`] times between two counts. A thread that began or ended in
/// between counts as work.
pub fn is_idle(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> bool {
    let total = |waits: &BTreeMap<String, u64>| waits.values().sum::<u64>();
    before.keys().eq(after.keys()) && total(after) - total(before) <= WAKEUPS_MAX
}

#[test]
fn an_idle_front_and_its_broker_sleep() {
    let user = Home::new();
    let mut front = user.front().start();
    front.initialize("quiet");
    front.calls("register_session", &json!({"name": "alice"}));
    let pids = [i32::try_from(front.child.id()).unwrap(), user.pid(STATUS)];
    let (mut begun, mut before) = (Instant::now(), pids.map(waits));
    let until = Instant::now() + SETTLING_MAX;
    while begun.elapsed() < WINDOW {
        assert!(Instant::now() < until, "the last waits: {:?}", pids.map(waits));
        // Longer than a look takes, so that the looks do not compete with the work of a broker that has just started.
        thread::sleep(WINDOW / 50);
        let after = pids.map(waits);
        if before.iter().zip(&after).any(|(before, after)| !is_idle(before, after)) {
            (begun, before) = (Instant::now(), after);
        }
    }
    // They sleep, and have not ended.
    front.calls("heartbeat", &json!({}));
}
