//! `gateway run`: what its one client sees, and how it ends.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{ChildStdin, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};
use serde_json::{Value, json};

use super::{
    asking::is_asked,
    harness::{Calls, Plan, marked, tool_names, tools_of},
    running::{Running, program, with_pipes},
    support::{Agent, Wire, eventually},
};

fn two_backends() -> Running {
    Plan::new()
        .backend("one", &[])
        .backend("two", &["--era", "modern"])
        .run(&[])
}

fn state_of(wire: &Wire, backend: &str) -> Value {
    wire.request("gateway/status", json!({})).unwrap()["backends"][backend].take()
}

#[test]
fn a_legacy_client_has_the_tools_of_the_backends_and_no_others() {
    let mut gateway = two_backends();
    let client = gateway.legacy();
    let names = tool_names(&client);
    assert!(
        names
            .iter()
            .all(|name| name.starts_with("one__") || name.starts_with("two__")),
        "{names:?}"
    );
    for (name, arguments) in [("one__echo", json!({"a": 1})), ("two__echo", json!({"b": [2]}))] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
        assert_eq!(client.gets(name, arguments.clone())["arguments"], arguments);
    }
    assert_eq!(client.gets("one::echo", json!({"c": 3}))["arguments"], json!({"c": 3}));
    assert_eq!(client.code_of("register_session", json!({})), -32602);
    assert_eq!(
        client.error_of("resources/read", json!({"uri": "broker://sessions"})),
        -32601
    );
}

#[test]
fn a_modern_client_is_served_the_same_tools() {
    let mut gateway = two_backends();
    let client = gateway.modern();
    let discovered = client.request("server/discover", json!({})).unwrap();
    assert_eq!(discovered["supportedVersions"], json!(["2026-07-28"]));
    assert!(discovered["capabilities"].get("extensions").is_none(), "{discovered}");
    assert!(tools_of(&client, "one").contains(&"echo".to_owned()));
    assert_eq!(client.gets("two__echo", json!({"a": 1}))["arguments"], json!({"a": 1}));
}

#[test]
fn a_single_backend_has_its_own_names_and_keeps_them_valid_beside_another() {
    let mut gateway = Plan::new().backend("one", &[]).run(&[]);
    let client = gateway.legacy();
    assert!(tool_names(&client).contains(&"echo".to_owned()));
    let pid = client.gets("pid", json!({}))["pid"].clone();
    assert_eq!(client.gets("one__pid", json!({}))["pid"], pid);

    gateway.is_configured(|plan| plan.backend("one", &[]).backend("two", &[]));
    eventually("both have prefixes", || {
        (!tools_of(&client, "two").is_empty() && tools_of(&client, "one").contains(&"pid".to_owned())).then_some(())
    });
    client.wire.next_notification("notifications/tools/list_changed");
    assert_eq!(client.gets("one__pid", json!({}))["pid"], pid);
    assert_eq!(client.code_of("pid", json!({})), -32602, "both backends have it");

    gateway.is_configured(|plan| plan.backend("one", &[]));
    eventually("the prefix has gone", || {
        tool_names(&client).contains(&"pid".to_owned()).then_some(())
    });
    assert_eq!(client.gets("one__pid", json!({}))["pid"], pid);
}

#[test]
fn the_status_is_that_of_mcpmon_and_needs_no_handshake() {
    let mut gateway = Plan::new()
        .backend("fails", &["--exit-at-start", "3"])
        .backend("works", &[])
        .backend_with("off", &[], "disabled = true")
        .run(&[]);
    let wire = gateway.wire();
    let ready = eventually("the backend is ready", || {
        Some(state_of(&wire, "works")).filter(|backend| backend["state"] == "ready" && backend["tools"] != 0)
    });
    assert!(ready["pid"].is_u64() && ready["error"].is_null(), "{ready}");
    let failed = eventually("the other one has failed", || {
        Some(state_of(&wire, "fails")).filter(|backend| backend["state"] == "failed")
    });
    assert_eq!(failed["tools"], 0);
    assert!(
        failed["error"].as_str().unwrap().contains("missing FAKE_TOKEN"),
        "{failed}"
    );
    assert_eq!(state_of(&wire, "off")["state"], "stopped");
    assert_eq!(wire.request("gateway/status", json!({})).unwrap()["initialized"], false);

    let result = wire.request("initialize", json!({})).unwrap();
    assert_eq!(result["serverInfo"]["name"], "mcp-broker");
    assert_eq!(wire.request("gateway/status", json!({})).unwrap()["initialized"], true);
}

#[test]
fn the_name_that_was_given_is_told() {
    let mut gateway = Plan::new().backend("one", &[]).run(&["--name", "tools of a test"]);
    let result = gateway.wire().request("initialize", json!({})).unwrap();
    assert_eq!(result["serverInfo"]["name"], "tools of a test");
}

#[test]
fn a_call_of_one_backend_does_not_hold_up_another() {
    let mut gateway = two_backends();
    let client = gateway.legacy();
    let open = ["one__never", "two__never"].map(|tool| {
        let call = client.begins_call(tool, &json!({}));
        for other in ["one__echo", "two__echo"] {
            client.gets(other, json!({"while": tool}));
        }
        call
    });
    assert!(open.iter().all(|call| !client.wire.has_received(call)));
    for call in &open {
        client.wire.cancels(call);
    }
}

/// The streams are pipes here. The reader has nothing to read in the middle of many a line, as while a person thinks.
#[test]
fn no_line_is_lost_however_they_arrive() {
    const LINES: usize = 400;
    let plan = Plan::new().backend("one", &[]).backend("two", &[]);
    let lines: Vec<String> = (0..LINES)
        .map(|id| {
            let (method, params) = match id % 4 {
                0 => ("tools/list", json!({})),
                1 => ("ping", json!({})),
                2 => (
                    "tools/call",
                    json!({"name": "one__echo", "arguments": {"text": "ü".repeat(id)}}),
                ),
                _ => ("tools/call", json!({"name": "two::echo", "arguments": {"id": id}})),
            };
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
        })
        .collect();
    let (file, _) = plan.written();
    let folder = PathBuf::from(plan.file(""));
    let mut program = program(&folder, "run", &["--config", &file]);
    program.env("MCP_BROKER_SHUTDOWN_GRACE", "40s");
    let (mut child, mut input, output) = with_pipes(program);
    let mut output = BufReader::new(output).lines();
    let mut answered = BTreeSet::new();
    let mut await_answer = |id: usize, answered: &mut BTreeSet<usize>| {
        while !answered.contains(&id) {
            let line = output.next().expect("the gateway has ended").unwrap();
            let frame: Value = serde_json::from_str(&line).unwrap();
            assert!(
                frame.get("error").is_none() && frame["result"]["isError"] != true,
                "{frame}"
            );
            if let Some(id) = frame["id"].as_u64() {
                assert!(answered.insert(usize::try_from(id).unwrap()), "{id} is answered twice");
            }
        }
    };
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let hello = json!({"jsonrpc": "2.0", "id": LINES, "method": "initialize", "params": hello});
    writeln!(input, "{hello}").unwrap();
    await_answer(LINES, &mut answered);
    for (id, line) in lines.iter().enumerate() {
        let is_last = id + 1 == LINES;
        let text = if is_last { line.clone() } else { format!("{line}\n") };
        let bytes = text.as_bytes();
        // Each line is cut at another place, often within a character.
        let (begin, rest) = bytes.split_at(bytes.len() * (id % 7) / 7);
        input.write_all(begin).unwrap();
        if id % 3 == 0 && id > 0 {
            await_answer(id - 1, &mut answered);
        }
        for chunk in rest.chunks(1 + id % 61) {
            input.write_all(chunk).unwrap();
        }
    }
    drop(input);
    for id in 0..LINES {
        await_answer(id, &mut answered);
    }
    assert!(child.wait().unwrap().success());
    eventually("all processes of backends have ended", || {
        marked(plan.marker()).is_empty().then_some(())
    });
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_streams_may_be_files() {
    let plan = Plan::new().backend("one", &[]);
    let (file, _) = plan.written();
    let folder = PathBuf::from(plan.file(""));
    let hello =
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let call = json!({"name": "one__echo", "arguments": {"a": 1}});
    let lines = [("initialize", hello), ("ping", json!({})), ("tools/call", call)];
    let lines = lines.iter().enumerate();
    let lines = lines.map(|(id, (method, params))| {
        format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        )
    });
    let (asked, answers) = (folder.join("asked"), folder.join("answers"));
    fs::write(&asked, lines.collect::<String>()).unwrap();
    let status = program(&folder, "run", &["--config", &file])
        .env("MCP_BROKER_SHUTDOWN_GRACE", "40s")
        .stdin(File::open(&asked).unwrap())
        .stdout(File::create(&answers).unwrap())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
    let answers = fs::read_to_string(&answers).unwrap();
    let answers = answers.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let results: Vec<_> = answers.filter(|answer| answer["id"].is_u64()).collect();
    assert_eq!(results.len(), 3, "{results:?}");
    let echo = results.iter().find(|answer| answer["id"] == 2).unwrap();
    assert_eq!(
        echo["result"]["structuredContent"]["arguments"],
        json!({"a": 1}),
        "{echo}"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn calls_that_are_open_at_the_end_of_the_input_are_answered() {
    let plan = Plan::new()
        .lines("shutdown_grace = \"40s\"")
        .backend("one", &[])
        .backend("two", &[]);
    let mut gateway = plan.run(&[]);
    let client = gateway.legacy();
    client.gets("one__echo", json!({}));
    let open = client.begins_call("one__sleep", &json!({"ms": 300}));
    client.wire.ends_output();
    let result = client.wire.answer_to(&open).unwrap();
    assert_eq!(result["structuredContent"], json!({"done": true}), "{result}");
    assert!(gateway.ends().success());
    gateway.awaits_no_processes();
}

#[test]
fn a_call_without_an_answer_does_not_outlive_the_input() {
    let mut gateway = two_backends();
    let client = gateway.legacy();
    let endless = client.begins_call("two__never", &json!({}));
    client.wire.ends_output();
    let result = client.wire.answer_to(&endless).unwrap();
    assert_eq!(result["structuredContent"]["code"], "shutting_down", "{result}");
    assert!(gateway.ends().success());
    gateway.awaits_no_processes();
}

#[test]
fn it_ends_with_its_input_although_no_answer_is_read() {
    let plan = Plan::new().backend("one", &["--extra-tools", "50"]);
    let (file, _) = plan.written();
    let folder = PathBuf::from(plan.file(""));
    let (mut child, mut input, output) = with_pipes(program(&folder, "run", &["--config", &file]));
    for id in 0..1_000 {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"});
        if !can_write(&input) {
            break;
        }
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    let status = eventually("the gateway ends", || child.try_wait().unwrap());
    assert!(status.success());
    drop(output);
    eventually("all processes of backends have ended", || {
        marked(plan.marker()).is_empty().then_some(())
    });
    fs::remove_dir_all(folder).unwrap();
}

/// Whether a pipe has room for a line.
fn can_write(pipe: &ChildStdin) -> bool {
    let mut polled = [PollFd::new(pipe, PollFlags::OUT)];
    let a_second = Timespec { tv_sec: 1, tv_nsec: 0 };
    poll(&mut polled, Some(&a_second)).unwrap() > 0
}

#[test]
fn calls_go_on_while_the_log_is_not_read_and_the_log_says_what_is_missing() {
    // More than a pipe and the lines that wait can hold.
    let talks = ["--stderr-at-start", "1000000"];
    let mut gateway = Plan::new().backend("one", &talks).run_unread(&["--debug"]);
    let client = gateway.legacy();
    for at in 0..50 {
        assert_eq!(client.gets("echo", json!({"at": at}))["arguments"], json!({"at": at}));
    }
    gateway.reads_log();
    eventually("the log says how many lines are missing", || {
        let log = gateway.log();
        let (whole_lines, _) = log.rsplit_once('\n')?;
        let notices = whole_lines.lines().filter(|line| line.contains("were dropped"));
        let dropped = notices.map(|notice| {
            let notice: Value = serde_json::from_str(notice).unwrap();
            let message = notice["message"].as_str().unwrap();
            message.split(' ').next().unwrap().parse::<usize>().unwrap()
        });
        (dropped.sum::<usize>() > 1_000).then_some(())
    });
    client.fails_as("backend_died", "die", json!({"code": 3}));
    eventually("the log goes on", || {
        gateway.log().contains("dying on request").then_some(())
    });
    drop(client);
    assert!(gateway.ends().success());
}

#[test]
fn it_ends_although_its_log_is_not_read() {
    let talks = ["--stderr-at-start", "1000000"];
    let mut gateway = Plan::new().backend("one", &talks).run_unread(&["--debug"]);
    let client = gateway.legacy();
    client.gets("echo", json!({}));
    drop(client);
    assert!(gateway.ends().success());
}

#[test]
fn an_open_subscription_does_not_hold_up_the_end() {
    let mut gateway = Plan::new().backend("one", &[]).run(&[]);
    let client = gateway.modern();
    let listen = client.params(json!({"notifications": {"toolsListChanged": true}}));
    let listen = client.wire.asks("subscriptions/listen", listen);
    client
        .wire
        .next_notification("notifications/subscriptions/acknowledged");
    client.wire.ends_output();
    assert_eq!(client.wire.answer_to(&listen).unwrap()["resultType"], "complete");
    assert!(gateway.ends().success());
}

#[test]
fn a_signal_ends_it_as_the_end_of_the_input_does() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut gateway = two_backends();
        let client = gateway.legacy();
        client.gets("two__echo", json!({}));
        let open = client.begins_call("one__never", &json!({}));
        client.wire.syncs();
        gateway.receives(signal);
        let result = client.wire.answer_to(&open).unwrap();
        assert_eq!(result["structuredContent"]["code"], "shutting_down", "{result}");
        assert!(gateway.ends().success());
        gateway.awaits_no_processes();
    }
}

#[test]
fn it_ends_when_its_client_reads_nothing_more() {
    let gateway = Plan::new().backend("one", &[]);
    let mut gateway = gateway.run(&[]);
    let client = gateway.legacy();
    client.gets("one__echo", json!({}));
    client.wire.disconnects();
    assert!(gateway.ends().success());
    gateway.awaits_no_processes();
}

#[test]
fn no_process_survives_a_gateway_that_was_killed() {
    let plan = Plan::new()
        .backend("one", &[])
        .backend("two", &["--ignore-eof", "--ignore-term"]);
    let mut gateway = plan.run(&[]);
    let client = gateway.legacy();
    client.gets("one__child", json!({}));
    client.gets("two__daemon", json!({}));
    client.begins_call("one__never", &json!({}));
    client.wire.syncs();
    assert!(
        marked(gateway.marker()).len() >= 6,
        "two programs, two keepers, two descendants"
    );
    gateway.receives(Signal::KILL);
    assert!(!gateway.ends().success());
    gateway.awaits_no_processes();
}

#[test]
fn it_opens_no_port_and_writes_no_file() {
    let mut gateway = two_backends();
    let client = gateway.legacy();
    client.gets("one__echo", json!({}));
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{}/fd", gateway.pid()))
        .unwrap()
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .filter_map(|link| {
            Some(
                link.to_str()?
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    assert!(!sockets.is_empty(), "its streams are sockets");
    let tables = ["tcp", "tcp6", "udp", "udp6"].map(|table| format!("/proc/{}/net/{table}", gateway.pid()));
    let inodes = tables.iter().flat_map(|table| {
        let text = fs::read_to_string(table).unwrap_or_default();
        text.lines()
            .skip(1)
            .filter_map(|line| line.split_whitespace().nth(9).map(str::to_owned))
            .collect::<Vec<_>>()
    });
    let inodes: Vec<String> = inodes.collect();
    assert!(sockets.iter().all(|socket| !inodes.contains(socket)), "{sockets:?}");
    let files: Vec<_> = fs::read_dir(&gateway.folder)
        .unwrap()
        .flatten()
        .map(|file| file.file_name())
        .collect();
    assert_eq!(files, ["broker.toml"]);
    assert!(gateway.is_running());
}

#[test]
fn lines_wait_where_too_many_calls_run() {
    let mut gateway = Plan::new().backend("fake", &[]).run(&[]);
    let client = gateway.legacy();
    let calls: Vec<_> = (0..2_000)
        .map(|at| client.begins_call("fake__echo", &json!({"at": at})))
        .collect();
    for call in calls {
        let result = client.wire.answer_to(&call).unwrap();
        assert_ne!(result["isError"], true, "{result}");
    }
}

#[test]
fn the_answer_to_a_question_and_a_cancellation_are_read_while_lines_wait() {
    let plan = Plan::new().backend_with("old", &["--era", "legacy"], "asks = true");
    let mut gateway = plan.run(&[]);
    let client = Agent::legacy(gateway.wire(), "2025-11-25", &json!({"roots": {}}));
    let padding = "x".repeat(5 << 19);
    let asks = client.begins_call("old__ask", &json!({"method": "roots/list", "padding": padding}));
    let roots = json!({"roots": [{"uri": "file:///a"}]});
    is_asked(&client, "roots/list", &roots);
    let result = client.wire.answer_to(&asks).unwrap();
    assert_eq!(result["structuredContent"]["response"], roots);
    let never = client.begins_call("old__never", &json!({"padding": padding}));
    let [withdrawn, waiting] = [0, 1].map(|at| client.begins_call("old__echo", &json!({"at": at})));
    // A ping is answered meanwhile.
    client.wire.syncs();
    assert!(!client.wire.has_received(&waiting));
    client.wire.cancels(&withdrawn);
    client.wire.cancels(&never);
    assert_ne!(client.wire.answer_to(&waiting).unwrap()["isError"], true);
    client.wire.syncs();
    assert!(!client.wire.has_received(&withdrawn));
}
