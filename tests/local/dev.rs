//! `mcp-broker dev`: brokers for development, as many as you like.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::MetadataExt,
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{
    home::{Done, Home, Running, is_alive, kill},
    support::{Wire, eventually},
};

fn socket_of(home: &Home, name: &str) -> std::path::PathBuf {
    home.runtime().join(format!("dev/{name}/broker.sock"))
}

#[test]
fn a_start_returns_when_the_broker_serves() {
    let home = Home::new();
    let started = home.json("dev start --json");
    // The socket is there at once, and the folder that the command was run in does not matter.
    Wire::open_local(&socket_of(&home, "default")).syncs();
    assert_eq!(
        (&started["name"], &started["running"]),
        (&json!("dev/default"), &json!(true))
    );
    assert_eq!(
        (&started["storage"], &started["transport"]),
        (&json!("memory"), &json!("socket"))
    );
    for key in [
        "pid",
        "started_at",
        "version",
        "socket",
        "log",
        "log_bytes",
        "clients",
        "stale",
        "mode",
    ] {
        assert!(!started[key].is_null(), "{key}: {started}");
    }
    assert!(
        started["http"].as_str().unwrap().starts_with("http://127.0.0.1:"),
        "this machine only"
    );
    assert!(home.does("dev start").contains("runs already"));
    assert_eq!(home.runs("local status").code, 3, "it is not the broker of the user");
}

#[test]
fn a_failed_start_says_why() {
    let home = Home::new();
    let mut command = home.command("dev start");
    let done = Done::of(command.env("MCP_BROKER_QUEUE_CAPACITY", "none").output().unwrap());
    assert!(done.refusal(2).contains("queue_capacity"), "{done:?}");
    assert_eq!(home.runs("dev status").code, 3);
    let done = home.runs("dev start --transport pigeon");
    assert!(done.refusal(2).contains("socket, fifo"), "{done:?}");
}

#[test]
fn status_is_on_stdout_and_its_exit_code_tells_the_state() {
    let home = Home::new();
    let done = home.runs("dev status");
    assert_eq!((done.code, done.stderr.as_str()), (3, ""), "{done:?}");
    assert!(done.stdout.contains("does not run"), "{done:?}");
    let pid = home.pid("dev start --json");
    let done = home.runs("dev status");
    assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{done:?}");
    let socket = done.stdout.lines().find_map(|line| line.strip_prefix("try")).unwrap();
    assert_eq!(socket.trim(), "mcp-broker call --dev=default list_sessions", "{done:?}");
    kill(pid, Signal::KILL);
    home.awaits_status("dev status", 4);
    let shown: Value = serde_json::from_str(&home.runs("dev status --json").stdout).unwrap();
    assert_eq!(shown["stale"].as_array().unwrap().len(), 2, "{shown}");
    home.does("dev start");
    assert_eq!(home.runs("dev status").code, 0);
}

#[test]
fn several_run_side_by_side_and_a_stop_ends_one() {
    let home = Home::new();
    let [one, two] = ["one", "two"].map(|name| home.pid(&format!("dev start --name {name} --json")));
    assert_ne!(one, two);
    let all: Vec<Value> = serde_json::from_str(&home.does("dev status --all --json")).unwrap();
    let names: Vec<_> = all.iter().map(|shown| shown["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dev/one", "dev/two"]);
    home.does("dev stop --name one");
    assert_eq!([is_alive(one), is_alive(two)], [false, true]);
    Wire::open_local(&socket_of(&home, "two")).syncs();
    let unrelated = home.pid("local start --json");
    home.does("dev stop --all");
    assert_eq!([is_alive(two), is_alive(unrelated)], [false, true]);
}

#[test]
fn a_cleanup_removes_what_dead_brokers_have_left_and_ends_none() {
    let home = Home::new();
    let [dead, alive] = ["dead", "alive"].map(|name| home.pid(&format!("dev start --name {name} --json")));
    let user = home.pid("local start --json");
    kill(dead, Signal::KILL);
    home.awaits_status("dev status --name dead", 4);
    let folder = socket_of(&home, "dead").parent().unwrap().to_owned();
    let planned = home.does("dev cleanup --dry-run");
    assert!(
        planned.contains("would remove") && planned.contains("dead/broker.sock"),
        "{planned}"
    );
    assert!(!planned.contains("alive"), "{planned}");
    assert!(folder.join("broker.sock").exists());
    let foreign = folder.join("mine.sock");
    fs::write(&foreign, "").unwrap();
    home.does("dev cleanup");
    assert!(foreign.exists() && !folder.join("broker.sock").exists());
    fs::remove_file(&foreign).unwrap();
    home.does("dev start --name dead");
    home.does("dev stop --name dead");
    home.does("dev cleanup");
    assert!(!folder.exists());
    assert!(is_alive(alive) && is_alive(user));
    Wire::open_local(&socket_of(&home, "alive")).syncs();
    assert_eq!(home.does("dev cleanup"), "nothing to remove\n");
}

#[test]
fn a_restart_keeps_the_options_of_the_start() {
    let home = Home::new();
    let before = home.json("dev start --transport fifo --storage disk --json");
    assert_eq!(
        (&before["transport"], &before["storage"]),
        (&json!("fifo"), &json!("disk"))
    );
    assert_eq!(
        before["clients"], 0,
        "a pair of FIFOs that no program uses is no client"
    );
    for key in ["fifo_in", "fifo_out"] {
        let fifo = fs::symlink_metadata(before[key].as_str().unwrap()).unwrap();
        assert_eq!(fifo.mode() & 0o777, 0o600);
    }
    let after = home.json("dev restart --json");
    assert_ne!(before["pid"], after["pid"]);
    for key in ["transport", "storage", "fifo_in", "fifo_out", "socket"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    let refused = home.runs("dev start");
    assert!(refused.refusal(1).contains("other options"), "{refused:?}");
}

#[test]
fn without_http_only_local_clients_are_served() {
    let home = Home::new();
    let shown = home.json("dev start --http off --json");
    assert!(shown["http"].is_null(), "{shown}");
    Wire::open_local(&socket_of(&home, "default")).syncs();
    assert!(home.json("dev start --name open --json")["http"].is_string());
    let pid = shown["pid"].as_u64().unwrap();
    assert_eq!(listening_ports(pid), 0, "it has no port at all");
    assert!(!home.does("dev logs -n 1000").contains("http://"));
}

/// TCP ports on which a process listens.
fn listening_ports(pid: u64) -> usize {
    const LISTEN: &str = "0A";
    let sockets: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    let tables =
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    let listening = tables.iter().flat_map(|table| table.lines().skip(1)).filter(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words[3] == LISTEN && sockets.contains(&format!("socket:[{}]", words[9]))
    });
    listening.count()
}

#[test]
fn a_fifo_answers_the_first_writer_and_the_next() {
    let home = Home::new();
    let shown = home.json("dev start --transport fifo --json");
    let path = |key: &str| shown[key].as_str().unwrap().to_owned();
    let mut answers = BufReader::new(fs::File::open(path("fifo_out")).unwrap());
    for id in 1..=2 {
        let mut writer = fs::OpenOptions::new().write(true).open(path("fifo_in")).unwrap();
        writeln!(writer, "{}", json!({"jsonrpc": "2.0", "id": id, "method": "ping"})).unwrap();
        drop(writer);
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["id"], id);
    }
    home.does("dev stop");
    assert!(!std::path::Path::new(&path("fifo_in")).exists());
}

#[test]
fn eight_starts_at_once_give_one_broker_and_eight_successes() {
    let home = Home::new();
    let spawn = |_| {
        let mut command = home.command("dev start --json");
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let starts: Vec<_> = (0..8).map(spawn).collect();
    let pids: Vec<_> = starts
        .into_iter()
        .map(|child| {
            let done = Done::of(child.wait_with_output().unwrap());
            assert_eq!(done.code, 0, "{done:?}");
            serde_json::from_str::<Value>(&done.stdout).unwrap()["pid"].clone()
        })
        .collect();
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    assert_eq!(home.brokers().len(), 1);
}

#[test]
fn logs_are_on_stdout_and_can_be_followed() {
    let home = Home::new();
    assert!(home.runs("dev logs").refusal(1).contains("never run"));
    home.does("dev start");
    let log = home.does("dev logs -n 1000");
    assert!(log.contains("is listening"), "{log}");
    assert_eq!(home.does("dev logs -n 1").lines().count(), 1);
    for line in home.does("dev logs --json").lines() {
        assert!(serde_json::from_str::<Value>(line).unwrap().is_object());
    }
    let mut command = home.command("dev logs -f -n 0");
    let mut following = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(following.0.stdout.take().unwrap());
    // What is written before the command looks is not shown: write until it shows.
    let path = home.state().join("dev/default/broker.log");
    let shown = std::thread::spawn(move || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line
    });
    eventually("a line is shown", || {
        let mut log = fs::OpenOptions::new().append(true).open(&path).unwrap();
        writeln!(log, "a line").unwrap();
        shown.is_finished().then_some(())
    });
    assert_eq!(shown.join().unwrap(), "a line\n");
}

#[test]
fn a_broker_in_the_foreground_removes_its_socket_when_it_ends() {
    let home = Home::new();
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = home.command("dev start --foreground --name here");
        let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&ready["ready"], &ready["pid"]), (&json!(true), &json!(running.0.id())));
        let socket = socket_of(&home, "here");
        Wire::open_local(&socket).syncs();
        let refused = home.runs("dev start --foreground --name here");
        assert!(refused.refusal(2).contains("runs already"), "{refused:?}");
        kill(i32::try_from(running.0.id()).unwrap(), signal);
        assert!(running.0.wait().unwrap().success());
        assert!(!socket.exists());
        assert_eq!(home.runs("dev status --name here").code, 3);
    }
}
