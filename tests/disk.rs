//! The disk storage: no accepted message is lost when the broker is killed, also on a full disk, and the data folder
//! is private.

mod shown;

use std::{
    collections::HashMap,
    fs::Permissions,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::{Condvar, Mutex},
    thread,
    time::{Duration, Instant},
};

use crate::support::{self, Broker, Request, Tenant};
use serde_json::{Value, json};
use test_client::folder::Folder;
use test_client::mcp::McpSocket;

const WINDOW: usize = 32;

/// The time limit until every accepted message has arrived. Far more than it takes.
const LOAD_TIMEOUT: Duration = Duration::from_secs(120);

fn start_broker(folder: &Path) -> Broker {
    let data_dir = format!("--data-dir={}", folder.display());
    // The budgets are larger than the disk, so that the disk is what fills up.
    let budgets = ["--queue-max-mb=4096", "--waiting-max-mb=4096", "--messages-max-mb=4096"];
    let settings = ["--storage=disk", &data_dir, "--queue-capacity=100000"];
    Broker::on_existing_storage(&[&settings[..], &budgets].concat())
}

/// Starts the broker and registers the protocol of the messages.
fn start_with_protocol(folder: &Path) -> Broker {
    let broker = start_broker(folder);
    Broker::register_note_protocol(&broker.client());
    broker
}

/// The accepted messages and the messages that have arrived.
#[derive(Default)]
struct Ledger {
    book: Mutex<Book>,
    changed: Condvar,
}

#[derive(Default)]
struct Book {
    accepted: Vec<String>,
    /// The delivery count of the last delivery, by message.
    arrived: HashMap<String, u64>,
    refused: Vec<Value>,
}

impl Ledger {
    fn record(&self, change: impl FnOnce(&mut Book)) {
        change(&mut self.book.lock().unwrap());
        self.changed.notify_all();
    }

    fn await_book(&self, what: &str, is_so: impl Fn(&Book) -> bool) {
        let book = self.book.lock().unwrap();
        let waited = self.changed.wait_timeout_while(book, LOAD_TIMEOUT, |book| !is_so(book));
        assert!(!waited.unwrap().1.timed_out(), "timed out: {what}");
    }

    fn await_more_accepted(&self, len: usize) {
        let wanted = self.book.lock().unwrap().accepted.len() + len;
        self.await_book("a load", |book| book.accepted.len() >= wanted);
    }

    fn await_all_arrived(&self) {
        self.await_book("all that was accepted has arrived", |book| {
            book.accepted.iter().all(|id| book.arrived.contains_key(id))
        });
    }
}

/// The id and the delivery count of a message.
fn id_and_delivery_count(message: &Value) -> (String, u64) {
    let id = message["message_id"].as_str().unwrap();
    (id.to_owned(), message["delivery_count"].as_u64().unwrap())
}

/// A connection with a session of this name, unless the broker has gone.
fn connect(address: SocketAddr, name: &str) -> Option<McpSocket> {
    let mut line = McpSocket::open(address, &json!({})).ok()?;
    line.begins_call("register_session", &json!({"name": name})).ok()?;
    line.next_answer().ok()?;
    Some(line)
}

fn note_to(to: &str, text: &str) -> Value {
    json!({
        "recipient_id": to, "protocol_name": "note", "protocol_version": "1.0.0",
        "payload": {"text": text}, "headers": {},
    })
}

/// Sends to `to` until the connection breaks, with a window of calls in flight.
fn send_until_broken(address: SocketAddr, name: &str, to: &str, text: &str, ledger: &Ledger) -> Option<()> {
    let mut line = connect(address, name)?;
    let letter = note_to(to, text);
    for _ in 0..WINDOW {
        line.begins_call("send_message", &letter).ok()?;
    }
    loop {
        let result = line.next_answer().ok()?;
        let object = &result["structuredContent"];
        if result["isError"] == true {
            ledger.record(|book| book.refused.push(object.clone()));
            return None;
        }
        let id = object["message_id"].as_str().unwrap().to_owned();
        ledger.record(|book| book.accepted.push(id));
        line.begins_call("send_message", &letter).ok()?;
    }
}

/// Receives until the connection breaks. Each call acknowledges the messages of the previous one.
fn receive_until_broken(address: SocketAddr, name: &str, ledger: &Ledger) -> Option<()> {
    let mut line = connect(address, name)?;
    loop {
        line.begins_call("receive_messages", &json!({"wait_seconds": 20, "limit": 100}))
            .ok()?;
        let result = line.next_answer().ok()?;
        let messages = result["structuredContent"]["messages"].as_array().unwrap().clone();
        ledger.record(|book| {
            book.arrived.extend(messages.iter().map(id_and_delivery_count));
        });
    }
}

#[test]
fn nothing_accepted_is_lost_when_the_broker_is_killed_under_load() {
    let (folder, ledger) = (Folder::new(), Ledger::default());
    let mut held: Vec<(String, u64)> = Vec::new();
    for _ in 0..4 {
        let mut broker = start_with_protocol(&folder);
        let (address, holder) = (broker.address, broker.agent("holder"));
        drop(broker.agent("sink"));
        thread::scope(|scope| {
            let ledger = &ledger;
            scope.spawn(move || receive_until_broken(address, "sink", ledger));
            for (name, to) in [("a", "sink"), ("b", "sink"), ("c", "holder")] {
                scope.spawn(move || send_until_broken(address, name, to, "hello", ledger));
            }
            // The client leases some messages and never acknowledges them.
            let messages = holder.reads(json!({"wait_seconds": 20, "limit": 5}));
            let taken: Vec<_> = messages.iter().map(id_and_delivery_count).collect();
            for (again, before) in taken.iter().zip(&held) {
                assert_eq!(*again, (before.0.clone(), before.1 + 1), "the same, and counted");
            }
            held = taken;
            ledger.await_more_accepted(1000);
            broker.kill();
        });
        assert_eq!(ledger.book.lock().unwrap().refused, [Value::Null; 0]);
    }

    let mut broker = start_broker(&folder);
    let address = broker.address;
    thread::scope(|scope| {
        for name in ["sink", "holder"] {
            let ledger = &ledger;
            scope.spawn(move || receive_until_broken(address, name, ledger));
        }
        ledger.await_all_arrived();
        broker.kill();
    });
    let book = ledger.book.into_inner().unwrap();
    assert!(!held.is_empty());
    for (id, count) in held {
        assert_eq!(book.arrived[&id], count + 1, "{id}");
    }
}

#[test]
fn a_repeat_after_a_kill_sends_one_cross_project_message() {
    for point in ["cross_project_reserved", "cross_project_taken"] {
        let folder = Folder::new();
        let data_dir = folder.data_dir();
        let flags = ["--storage=disk", &data_dir];
        let mut doomed = Broker::secured_stalling_at(point, &flags);
        let [here, there] = doomed.two_projects();
        drop((there.agent("bob"), here.agent("carol")));
        let alice = here.agent("alice");
        alice
            .sends("once")
            .with("idempotency_key", point)
            .begins_sending_to("bob@there");
        doomed.stalls();
        let keys = [(here.id, here.key), (there.id, there.key)];
        doomed.kill();

        let broker = Broker::secured_with(&flags);
        let [here, there] = keys.map(|(id, key)| Tenant {
            broker: &broker,
            id,
            key,
        });
        let (alice, bob, carol) = (here.agent("alice"), there.agent("bob"), here.agent("carol"));
        let letter = |text: &str| alice.sends(text).with("idempotency_key", point);
        letter("another").fails_as("invalid_argument", "carol");
        let repeated = letter("once").to("bob@there");
        assert_eq!(letter("another").to("carol").id, repeated.id);
        bob.sees(["once"]);
        bob.sees_nothing();
        carol.sees_nothing();
        alice.awaits_status(&repeated.id, "acknowledged");
    }
}

#[test]
fn an_answer_that_a_crash_cuts_off_is_a_draft_or_in_the_inbox() {
    let arguments = json!({"question": "Drop it?", "wait_seconds": 0, "idempotency_key": "key"});
    for point in ["question_closing", "question_closed"] {
        let folder = Folder::new();
        let data_dir = folder.data_dir();
        let flags = ["--storage=disk", &data_dir];
        let mut program = support::broker_program();
        program.env("FAULT_STALL_AT", point);
        let mut doomed = Broker::with_program(program, &flags);
        let asked = doomed.agent("alice").calls("clarify", arguments.clone());
        let path = |verb: &str| format!("/api/v1/questions/{}/{verb}", asked["question_id"].as_str().unwrap());
        let mara = [("X-Human", "mara")];
        let answer = json!({"text": "yes"});
        assert_eq!(doomed.rest_with(&mara, "PUT", &path("draft"), &answer).status, 200);
        let request = Request::post(doomed.address, answer.to_string())
            .with_path(&path("answer"))
            .with("Content-Type", "application/json")
            .with("X-Human", "mara");
        let unanswered = request.sent();
        doomed.stalls();
        doomed.kill();
        drop(unanswered);

        let broker = Broker::on_existing_storage(&flags);
        let alice = broker.agent("alice");
        if point == "question_closing" {
            let draft = broker.rest_with(&mara, "GET", &path("draft"), &Value::Null).json();
            assert_eq!(draft["text"], "yes", "what was typed is there");
            assert_eq!(alice.calls("clarify", arguments.clone())["state"], "pending");
            assert_eq!(broker.rest_with(&mara, "POST", &path("answer"), &answer).status, 200);
        } else {
            assert_eq!(broker.rest_with(&mara, "POST", &path("answer"), &answer).status, 409);
        }
        let notices = alice.reads(json!({"acknowledge": "immediate"}));
        assert_eq!(notices.len(), 1, "{point}: {notices:?}");
        assert_eq!(notices[0]["payload"]["answer"]["text"], "yes");
    }
}

#[test]
fn aliases_and_conversations_are_addresses_after_a_kill() {
    let folder = Folder::new();
    let mut broker = start_with_protocol(&folder);
    let bob = json!({"name": "bob", "aliases": ["reviewer"], "metadata": {"conversation": "c-1"}});
    broker.client().registered_with(&bob);
    broker.kill();
    let broker = start_broker(&folder);
    let alice = broker.agent("alice");
    for address in ["reviewer", "conversation:c-1"] {
        alice.sends(address).to(address);
    }
    alice.is_refused_as("forbidden", "register_session", json!({"name": "reviewer"}));
    broker.agent("bob").sees(["reviewer", "conversation:c-1"]);
}

#[test]
fn lenses_are_there_after_a_kill() {
    let folder = Folder::new();
    let mut broker = start_with_protocol(&folder);
    let alice = broker.agent("alice");
    let task = |version: &str, lens: Value| {
        let mut wanted = json!({"name": "task", "version": version, "schema": {"type": "object"}});
        wanted
            .as_object_mut()
            .unwrap()
            .extend(lens.as_object().unwrap().clone());
        wanted
    };
    let from = |direction: &str| json!({"from": "1.0.0", "lens": [], "direction": direction, "replace_lens": true});
    alice.calls("register_protocol", task("1.0.0", json!({})));
    for direction in ["both", "forward"] {
        alice.calls("register_protocol", task("2.0.0", from(direction)));
    }
    let shown = |broker: &Broker| {
        let query = json!({"name": "task", "include_schema": true});
        broker.client().calls("discover_protocols", query)["protocols"][1]["lenses"].clone()
    };
    let before = shown(&broker);
    assert_eq!((&before[0]["revision"], &before[0]["ops"]), (&json!(2), &json!([])));
    broker.kill();
    assert_eq!(shown(&start_broker(&folder)), before);
}

/// The mode bits of a folder.
fn mode(folder: &Path) -> u32 {
    std::fs::metadata(folder).unwrap().permissions().mode() & 0o777
}

/// Creates a folder that every user may enter.
fn make_accessible_to_others(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_folder_that_others_may_enter_is_made_private() {
    let folder = Folder::new();
    for _ in 0..2 {
        make_accessible_to_others(&folder);
        drop(start_with_protocol(&folder));
        assert_eq!(mode(&folder), 0o700);
    }
}

#[test]
fn a_folder_with_other_files_that_others_may_enter_is_refused_and_left_unchanged() {
    let folder = Folder::new();
    make_accessible_to_others(&folder);
    std::fs::write(folder.join("notes.txt"), "not a broker's").unwrap();
    let data_dir = folder.data_dir();
    let mut program = support::broker_program();
    program.args(["serve", "--port=0", "--log-format=pretty", "--storage=disk", &data_dir]);
    let ended = program.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "{said}");
    let refusal = said.lines().filter(|line| line.contains("data_dir"));
    let refusal: Vec<_> = refusal.collect();
    let [line] = refusal[..] else {
        panic!("not one line: {said}")
    };
    for part in [
        &*folder.to_string_lossy(),
        "others may enter it (mode 755)",
        "chmod 700",
    ] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(mode(&folder), 0o755);
    assert_eq!(folder.names(), ["notes.txt"]);
}

/// A small tmpfs, where the system allows mounting one.
struct SmallDisk(Folder);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let folder = Folder::new();
        let options = format!("size={size}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&*folder);
        let is_mounted = mount.output().is_ok_and(|output| output.status.success());
        is_mounted.then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&*self.0).status();
    }
}

/// Waits until a message is accepted.
fn await_room(address: SocketAddr, text: &str) -> bool {
    let deadline = Instant::now() + LOAD_TIMEOUT;
    while Instant::now() < deadline {
        let accepted = connect(address, "c").and_then(|mut line| {
            line.begins_call("send_message", &note_to("sink", text)).ok()?;
            (line.next_answer().ok()?["isError"] == false).then_some(())
        });
        if accepted.is_some() {
            return true;
        }
        thread::sleep(Duration::from_millis(200));
    }
    false
}

#[test]
fn a_full_disk_refuses_new_messages_and_delivers_stored_ones() {
    let Some(disk) = SmallDisk::mount("512m") else {
        eprintln!("nothing may be mounted here: the same with errors that are made up is in the crate `actors`");
        return;
    };
    let (place, ledger) = (disk.0.join("data"), Ledger::default());
    let mut broker = start_with_protocol(&place);
    let address = broker.address;
    drop(broker.agent("sink"));
    let text = "x".repeat(30_000);
    thread::scope(|scope| {
        for name in ["a", "b"] {
            let (text, ledger) = (&text, &ledger);
            scope.spawn(move || send_until_broken(address, name, "sink", text, ledger));
        }
    });
    for refusal in &ledger.book.lock().unwrap().refused {
        assert_eq!(refusal["code"], "unavailable", "{refusal}");
    }
    let health = broker.get("/health");
    let told: Value = serde_json::from_str(&health.body).unwrap();
    assert_eq!((health.status, &told["status"]), (200, &json!("degraded")), "{told}");
    assert_eq!(told["storage_backend"], "disk");
    assert!(
        told["storage_problem"]
            .as_str()
            .unwrap()
            .starts_with("nothing new is accepted")
    );

    // The broker starts again after it was killed on a full disk.
    broker.kill();
    let mut broker = start_broker(&place);
    let address = broker.address;
    thread::scope(|scope| {
        scope.spawn(|| receive_until_broken(address, "sink", &ledger));
        ledger.await_all_arrived();
        // Stops the reader before the assertion, also on failure.
        let room = await_room(address, &text);
        broker.kill();
        assert!(room, "a message is accepted again");
    });
}

#[test]
fn the_database_of_the_storage_logs_nothing_about_its_work() {
    let folder = Folder::new();
    for _ in 0..2 {
        let mut broker = start_with_protocol(&folder);
        broker.terminate();
        assert!(broker.wait_for_exit().success());
        let log = broker.log();
        assert!(log.contains("is listening") && !log.contains("fjall"), "{log}");
    }
}
