//! One broker for each user: who starts it, that there is one at most, which version it has, and how it ends.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        net::UnixListener,
    },
    process::{Command, Stdio},
    thread,
};

use rustix::process::Signal;
use serde_json::json;

use super::{
    home::{Done, Home, Running, is_alive, is_root, kill},
    support::eventually,
};

pub const START: &str = "local start --json";
pub const STATUS: &str = "local status --json";

/// Runs a start in many processes at the same time.
pub fn start_at_once(home: &Home, words: &str, processes: usize) -> Vec<Done> {
    let started: Vec<_> = (0..processes)
        .map(|_| {
            let mut command = home.command(words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let waits = started
        .into_iter()
        .map(|child| thread::spawn(|| Done::of(child.wait_with_output().unwrap())));
    let waits: Vec<_> = waits.collect();
    waits.into_iter().map(|wait| wait.join().unwrap()).collect()
}

/// The distinct processes that these starts name.
pub fn pids(starts: &[Done]) -> Vec<i64> {
    let pid = |done: &Done| {
        assert_eq!(done.code, 0, "{done:?}");
        serde_json::from_str::<serde_json::Value>(&done.stdout).unwrap()["pid"]
            .as_i64()
            .unwrap()
    };
    let mut pids: Vec<_> = starts.iter().map(pid).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

#[test]
fn a_broker_starts_is_shown_and_removes_its_socket_when_it_ends() {
    let home = Home::new();
    assert_eq!(home.runs(STATUS).code, 3);
    assert!(!home.runtime().exists(), "a look makes no folder");
    let started = home.json(START);
    let shown = home.json(STATUS);
    assert_eq!(started["pid"], shown["pid"]);
    assert_eq!(
        (&shown["running"], &shown["storage"], &shown["mode"]),
        (&json!(true), &json!("disk"), &json!("0600"))
    );
    assert_eq!(shown["socket"], home.socket().to_str().unwrap());
    assert!(
        shown["http"].as_str().unwrap().starts_with("http://127.0.0.1:"),
        "{shown}"
    );
    assert_eq!(
        home.does("status"),
        home.does("local status"),
        "they are the same command"
    );
    assert!(home.does("status").contains("default runs"));
    for private in [home.runtime(), home.state(), home.state().join("data")] {
        assert_eq!(
            fs::metadata(&private).unwrap().mode() & 0o777,
            0o700,
            "{}",
            private.display()
        );
    }
    for private in ["broker.sock", "broker.json", "life.lock", "start.lock"] {
        assert_eq!(
            fs::metadata(home.runtime().join(private)).unwrap().mode() & 0o777,
            0o600,
            "{private}"
        );
    }
    assert_eq!(
        fs::metadata(home.state().join("broker.log")).unwrap().mode() & 0o777,
        0o600
    );
    let told: serde_json::Value =
        serde_json::from_slice(&fs::read(home.runtime().join("broker.json")).unwrap()).unwrap();
    for key in ["pid", "version", "build", "started_at", "http", "storage"] {
        assert_eq!(told[key], shown[key], "{key}");
    }
    assert!(home.does("local start").contains("runs already"));
    home.client().syncs();
    assert!(home.does("local stop").contains("has ended"));
    let pid = i32::try_from(shown["pid"].as_i64().unwrap()).unwrap();
    assert!(!is_alive(pid));
    assert_eq!(home.runs(STATUS).code, 3);
    let left = ["broker.sock", "broker.json"].map(|name| home.runtime().join(name).exists());
    assert_eq!(left, [false, false]);
    assert!(
        home.does("local stop").contains("does not run"),
        "a second stop is no failure"
    );
}

#[test]
fn a_killed_broker_leaves_remains_that_the_next_start_replaces() {
    let home = Home::new();
    let pid = home.pid(START);
    kill(pid, Signal::KILL);
    home.awaits_status(STATUS, 4);
    let shown = home.runs("local status");
    assert!(shown.stdout.contains("broker.sock"), "{shown:?}");
    assert_eq!(shown.stderr, "");
    assert_ne!(home.pid(START), pid);
    assert_eq!(home.runs(STATUS).code, 0);
    kill(home.pid(STATUS), Signal::KILL);
    home.awaits_status(STATUS, 4);
    home.does("local stop");
    assert_eq!(home.runs(STATUS).code, 3, "a stop removes the remains");
}

#[test]
fn the_socket_of_a_living_broker_is_never_removed() {
    let home = Home::new();
    let other = home.pid("local start --json --instance other");
    for _ in 0..3 {
        kill(home.pid(START), Signal::KILL);
        home.awaits_status(STATUS, 4);
    }
    home.does("local stop");
    assert_eq!(home.pid("local status --json --instance other"), other);
    // The broker lives although its socket has no name: the life lock decides.
    let socket = home.runtime().join("other/broker.sock");
    fs::rename(&socket, socket.with_extension("hidden")).unwrap();
    let shown = home.runs("local status --instance other");
    assert_eq!(shown.code, 1, "{shown:?}");
    assert!(shown.stdout.contains("has no socket"), "{shown:?}");
    assert!(is_alive(other));
    fs::rename(socket.with_extension("hidden"), &socket).unwrap();
    assert_eq!(home.pid("local status --json --instance other"), other);
}

#[test]
fn a_process_that_got_the_id_of_a_dead_broker_is_left_alone() {
    let home = Home::new();
    kill(home.pid(START), Signal::KILL);
    home.awaits_status(STATUS, 4);
    let innocent = Running(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = innocent.0.id();
    fs::write(home.runtime().join("life.lock"), pid.to_string()).unwrap();
    let info = home.runtime().join("broker.json");
    let told = fs::read_to_string(&info).unwrap();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let mut recycled = told.clone();
    recycled["pid"] = json!(pid);
    fs::write(&info, recycled.to_string()).unwrap();
    assert_eq!(home.runs(STATUS).code, 4, "a process with that id is not the broker");
    home.does("local stop --grace=1s");
    home.does("dev cleanup");
    home.pid(START);
    assert!(is_alive(i32::try_from(pid).unwrap()));
}

#[test]
fn no_second_broker_is_started_beside_one_that_does_not_answer() {
    let home = Home::new();
    let pid = home.pid(START);
    kill(pid, Signal::STOP);
    let shown = home.runs("local status");
    assert_eq!(shown.code, 1, "{shown:?}");
    assert!(shown.stdout.contains("mcp-broker stop stops it"), "{shown:?}");
    assert_eq!(home.brokers(), [pid]);
    let ended = home.does("local stop --grace=1s");
    assert!(ended.contains("was killed"), "{ended}");
    assert!(!is_alive(pid));
    assert_eq!(home.runs(STATUS).code, 3);
}

#[test]
fn older_and_newer_programs_by_turns_replace_a_broker_once_at_most() {
    let (older, newer) = ("0.0.1", "9.0.0");
    let home = Home::new();
    let starts = |version: &str| {
        let output = home.command(START).env("FAULT_VERSION", version).output().unwrap();
        Done::of(output)
    };
    let mut all = Vec::new();
    for _ in 0..25 {
        all.extend([starts(older), starts(newer)]);
    }
    let pids = pids(&all);
    assert!(pids.len() <= 2, "{pids:?}");
    assert_eq!(home.json(STATUS)["version"], newer);
}

#[test]
fn a_newer_program_waits_until_the_last_client_has_left() {
    let home = Home::new();
    let pid = home.pid(START);
    let client = home.client();
    client.syncs();
    let newer = |words: &str| {
        let output = home.command(words).env("FAULT_VERSION", "9.0.0").output().unwrap();
        serde_json::from_str::<serde_json::Value>(&Done::of(output).stdout).unwrap()
    };
    assert_eq!(newer(START)["pid"], pid, "a client would be cut");
    let shown = home.json(STATUS);
    assert_eq!(
        (&shown["version"], &shown["upgrade"]),
        (&json!(env!("CARGO_PKG_VERSION")), &json!("9.0.0"))
    );
    assert!(home.does("local status").contains("9.0.0 is installed"));
    client.syncs();
    drop(client);
    eventually("the older one ends by itself", || (!is_alive(pid)).then_some(()));
    // Its other threads may hold the life lock a moment longer than the main thread lives.
    home.awaits_status(STATUS, 3);
    assert_eq!(newer(START)["version"], "9.0.0");
}

#[test]
fn the_status_command_of_a_newer_program_ends_no_broker() {
    let home = Home::new();
    let pid = home.pid(START);
    for _ in 0..3 {
        let output = home.command(STATUS).env("FAULT_VERSION", "9.0.0").output().unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&shown["pid"], &shown["upgrade"]), (&json!(pid), &json!("9.0.0")));
    }
    // Nothing makes the broker end once it is quiet.
    let shown = home.json(STATUS);
    assert_eq!((&shown["pid"], &shown["upgrade"]), (&json!(pid), &json!(null)));
}

#[test]
fn with_another_protocol_the_newer_program_wins() {
    let home = Home::new();
    let pid = home.pid(START);
    let client = home.client();
    client.syncs();
    let newer = |words: &str| {
        let mut command = home.command(words);
        command.env("FAULT_VERSION", "9.0.0").env("FAULT_PROTOCOL", "2");
        Done::of(command.output().unwrap())
    };
    assert_eq!(newer(STATUS).code, 0, "a look replaces nothing");
    assert!(is_alive(pid));
    let started = newer(START);
    assert_eq!(started.code, 0, "{started:?}");
    assert!(!is_alive(pid));
    client.awaits_close();
    let refused = home.runs(START);
    let line = refused.refusal(1);
    assert!(line.contains("9.0.0 runs") && line.contains("--instance"), "{line}");
    assert_eq!(newer("local stop").code, 0);
}

#[test]
fn a_replaced_program_is_used_once_the_last_client_has_left() {
    let mut home = Home::new();
    let installed = home.path.join("mcp-broker");
    let copy = home.path.join("copy");
    let built = home.program.clone();
    if fs::hard_link(&built, &installed).is_err() {
        fs::copy(&built, &installed).unwrap();
    }
    fs::copy(&built, &copy).unwrap();
    home.program = installed.clone();
    let before = home.json(START);
    let client = home.client();
    client.syncs();
    fs::rename(&copy, &installed).unwrap();
    let during = home.json(START);
    assert_eq!(during["pid"], before["pid"], "a client would be cut");
    client.syncs();
    drop(client);
    let pid = i32::try_from(before["pid"].as_i64().unwrap()).unwrap();
    eventually("the old program ends", || (!is_alive(pid)).then_some(()));
    let after = home.json(START);
    assert_ne!((&after["pid"], &after["build"]), (&before["pid"], &before["build"]));
}

#[test]
fn a_runtime_folder_that_cannot_be_used_is_told_in_one_line() {
    let home = Home::new();
    let run = home.path.join("run");
    fs::write(home.runtime(), "a file").unwrap();
    assert!(home.runs(START).refusal(2).contains("mcp-broker"));
    fs::remove_file(home.runtime()).unwrap();
    symlink(home.path.join("state"), home.runtime()).unwrap();
    assert!(home.runs(START).refusal(2).contains("is no folder"));
    fs::remove_file(home.runtime()).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(home.runs(START).refusal(2).contains("may be changed by other users"));
    fs::set_permissions(&run, fs::Permissions::from_mode(0o700)).unwrap();
    if is_root("a folder of another user") {
        chown(&run, Some(65_534), None).unwrap();
        assert!(home.runs(START).refusal(2).contains("belongs to another user"));
        chown(&run, Some(0), None).unwrap();
    }
    assert_eq!(home.brokers(), [0; 0]);
    home.pid(START);
}

/// A file system of a few KiB. It is removed on drop.
struct SmallDisk<'a>(&'a std::path::Path);

impl<'a> SmallDisk<'a> {
    fn mount(path: &'a std::path::Path, options: &str) -> Self {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(path);
        let output = mount.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Self(path)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // A broker that a failed test has left may still use it.
        let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
    }
}

#[test]
fn a_full_or_read_only_disk_is_told_in_one_line() {
    if !is_root("a full disk and one that is mounted read-only") {
        return;
    }
    let home = Home::new();
    for (folder, options) in [
        ("run", "ro"),
        ("run", "nr_inodes=2,mode=700"),
        ("run", "nr_inodes=4,mode=700"),
        ("run", "nr_inodes=5,mode=700"),
        ("state", "ro"),
        ("state", "size=4k,mode=700"),
    ] {
        let path = home.path.join(folder);
        let _disk = SmallDisk::mount(&path, options);
        let done = home.runs("local start");
        let line = done.refusal(2);
        assert!(line.contains(path.to_str().unwrap()), "{folder} {options}: {line}");
        assert_eq!(home.brokers(), [0; 0], "{folder} {options}");
    }
    home.pid(START);
}

#[test]
fn a_failed_start_is_told_with_its_reason_and_its_log() {
    let home = Home::new();
    let mut command = home.command("local start");
    command.env("MCP_BROKER_QUEUE_CAPACITY", "none");
    let done = Done::of(command.output().unwrap());
    let line = done.refusal(2);
    assert!(line.contains("queue_capacity") && line.contains("broker.log"), "{line}");
    let data = home.path.join("data");
    let with_data = |words: &str| {
        let mut command = home.command(words);
        Done::of(command.env("MCP_BROKER_DATA_DIR", &data).output().unwrap())
    };
    assert_eq!(with_data("local start --instance one").code, 0);
    let done = with_data("local start --instance two");
    let line = done.refusal(2);
    assert!(
        line.contains("another process uses it") && line.contains("two/broker.log"),
        "{line}"
    );
    assert_eq!(
        home.runs("local status --instance two").code,
        3,
        "nothing is left of it"
    );
    let done = home.runs("local start --instance a/b");
    assert!(done.refusal(2).contains("allowed"), "{done:?}");
    let mut command = home.command("local start --instance three");
    let done = Done::of(command.env("MCP_BROKER_DATA_DIR", "data").output().unwrap());
    assert!(done.refusal(2).contains("an absolute path"), "{done:?}");
}

#[test]
fn a_broker_carries_no_secret_of_the_session_that_started_it() {
    let home = Home::new();
    let secrets = [
        "CLAUDE_CODE_MESSAGING_TOKEN",
        "ANTHROPIC_API_KEY",
        "MCP_BROKER_API_KEY",
        "MCP_BROKER_URL",
        "SECRET",
    ];
    let mut command = home.command(START);
    command
        .envs(secrets.map(|name| (name, "hunter2")))
        .env("LC_ALL", "C")
        .env("MCP_BROKER_MAX_PAYLOAD_MB", "2");
    assert_eq!(Done::of(command.output().unwrap()).code, 0);
    let pid = home.pid(STATUS);
    let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    assert!(!environment.contains("hunter2"), "{environment}");
    assert!(environment.contains("LC_ALL=C\0") && environment.contains("MCP_BROKER_MAX_PAYLOAD_MB=2\0"));
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap().to_str(), Some("/"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = stat.rsplit(") ").next().unwrap().split(' ').nth(3).unwrap().to_owned();
    assert_eq!(session, pid.to_string(), "it leads a session of its own");
    let log = fs::canonicalize(home.state().join("broker.log")).unwrap();
    for descriptor in [1, 2] {
        assert_eq!(fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).unwrap(), log);
    }
    assert_eq!(
        fs::read_link(format!("/proc/{pid}/fd/0")).unwrap().to_str(),
        Some("/dev/null")
    );
}

#[test]
fn the_listener_of_another_user_gets_no_byte() {
    if !is_root("the listener of another user") {
        return;
    }
    let home = Home::new();
    fs::create_dir(home.runtime()).unwrap();
    chown(home.runtime(), Some(65_534), None).unwrap();
    fs::set_permissions(&*home.path, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(home.path.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    let socket = home.socket();
    let listening = thread::spawn(move || {
        let other = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(other, other, other).unwrap();
        UnixListener::bind(socket).unwrap()
    });
    let listener = listening.join().unwrap();
    chown(home.runtime(), Some(0), None).unwrap();
    for words in [START, "local status"] {
        let done = home.runs(words);
        assert_eq!(done.code, 1, "{done:?}");
        assert!(
            format!("{done:?}").contains("belongs to another user (uid 65534)"),
            "{done:?}"
        );
    }
    listener.set_nonblocking(true).unwrap();
    while let Ok((mut connection, _)) = listener.accept() {
        let mut received = Vec::new();
        connection.read_to_end(&mut received).unwrap();
        assert_eq!(received, b"");
    }
}

#[test]
fn a_broker_holds_no_descriptor_of_the_session_that_started_it() {
    for words in ["local start", "connect"] {
        let home = Home::new();
        let held = home.path.join("held");
        let starts = format!(
            "exec 9>'{}' && exec '{}' {words}",
            held.display(),
            home.program.display()
        );
        let plain = home.command("");
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", &starts])
            .env_clear()
            .envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut session = Running(shell.spawn().unwrap());
        // Makes a front start the broker.
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_sessions"}});
        let _ = writeln!(session.0.stdin.as_mut().unwrap(), "{call}");
        home.awaits_status(STATUS, 0);
        let pid = home.pid(STATUS);
        let open = fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        let open: Vec<_> = open.collect();
        assert!(open.len() > 3 && !open.contains(&held), "{words}: {open:?}");
    }
}

#[test]
fn a_restart_keeps_what_is_stored() {
    let home = Home::new();
    let before = home.pid(START);
    let client = home.client();
    let params = json!({"name": "register_session", "arguments": {"name": "alice"}});
    let registered = client.request("tools/call", params).unwrap();
    assert_eq!(registered["isError"], json!(false), "{registered}");
    let after = home.pid("local restart --json");
    assert_ne!(before, after);
    client.awaits_close();
    let shown = home.json(STATUS);
    assert_eq!(shown["agents"][0]["name"], "alice", "{shown}");
    assert!(home.does("local status").contains("alice"));
}

#[test]
fn a_restart_reads_the_file_first_and_keeps_the_broker_if_it_is_broken() {
    let home = Home::new();
    home.has_configuration("log_level = \"info\"\n");
    let before = home.pid("start --json");
    for (text, says) in [
        ("port = \n", "broker.toml"),
        ("stroage = \"disk\"\n", "did you mean storage?"),
        ("data_dir = \"relative\"\n", "an absolute path"),
        ("[backends.a]\ncomand = \"x\"\n", "backends.a"),
    ] {
        home.has_configuration(text);
        for words in ["restart", "local restart"] {
            let done = home.runs(words);
            let line = done.refusal(2);
            assert!(
                line.contains(says) && line.contains("a running broker keeps running"),
                "{line}"
            );
            assert_eq!(home.pid("status --json"), before, "{text}");
        }
    }
    home.has_configuration("log_level = \"info\"\n");
    let after = home.pid("restart --json");
    assert_ne!(after, before);
    assert!(home.does("stop").contains("has ended"));
    assert_eq!(home.runs("status").code, 3);
    assert!(home.does("logs -n 1").lines().count() == 1);
}

#[test]
fn a_status_says_that_the_runtime_folder_cannot_be_used() {
    let home = Home::new();
    let run = home.path.join("run");
    fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).unwrap();
    for words in ["status", "start"] {
        let done = home.runs(words);
        let line = done.refusal(2);
        assert!(
            line.contains("is not safe, because") && line.contains("XDG_RUNTIME_DIR"),
            "{words}: {line}"
        );
    }
}

#[test]
fn a_data_folder_that_is_a_file_is_named() {
    let home = Home::new();
    fs::create_dir_all(home.state()).unwrap();
    fs::write(home.state().join("data"), "").unwrap();
    let done = home.runs("start");
    let line = done.refusal(2);
    assert!(
        line.contains("data: it is a file, and the storage needs a folder"),
        "{line}"
    );
}

#[test]
fn a_port_that_the_own_broker_has_is_called_that() {
    let home = Home::new();
    home.start_broker();
    let http = home.json(STATUS)["http"].as_str().unwrap().to_owned();
    let port = http.rsplit_once(':').unwrap().1.to_owned();
    let mut command = home.command("serve --connections-max=100 --log-format=pretty");
    let done = Done::of(command.args(["--port", &port]).output().unwrap());
    assert_eq!(
        done.refusal(1),
        format!(
            "error: cannot listen on 127.0.0.1:{port}: your own broker listens there; mcp-broker stop stops it, or choose \
             another --port"
        )
    );
}
