//! `gateway add` and `gateway remove`, which change the configuration file under a running broker.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    process::Output,
    thread,
};

use serde_json::{Value, json};

use super::{
    harness::{Calls, MARKER, Plan, fake_backend, tools_of},
    support::{broker_program, eventually},
};

/// Runs `gateway` with these arguments, and this home.
fn gateway(home: &str, arguments: &[&str]) -> Output {
    broker_program()
        .env("HOME", home)
        .arg("gateway")
        .args(arguments)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The line on stderr of a command that ends with this code.
fn refusal(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let line = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(line.lines().count(), 1, "{line}");
    line
}

/// A folder that is removed.
struct Folder(String);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("entries-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir(&folder).unwrap();
        Self(folder.display().to_string())
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.0)
    }

    fn with(&self, name: &str, text: &str) -> String {
        let file = self.file(name);
        fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_running_broker_has_what_is_added_and_ends_what_is_removed() {
    let plan = Plan::new().lines("# of the test").backend("first", &[]);
    let (file, marker) = (plan.file("broker.toml"), plan.marker().to_owned());
    let broker = plan.start();
    let before = fs::read_to_string(&file).unwrap();
    let client = broker.legacy();
    let pid = client.gets("first__pid", json!({}))["pid"].clone();
    let (marked, program) = (format!("{MARKER}={marker}"), fake_backend().display().to_string());
    let added = gateway(
        "/none",
        &[
            "add",
            "second",
            "--to",
            &file,
            "--env",
            &marked,
            "--env",
            "A=b=${HOME}, c",
            "--watch",
            "src/*.py",
            "--watch",
            "a\"b.py",
            "--sharing",
            "session",
            "--",
            &program,
            "--tool",
            "fresh",
        ],
    );
    assert!(stdout(&added).starts_with("second is in "), "{added:?}");
    eventually("its tools are listed", || {
        tools_of(&client, "second").contains(&"fresh".to_owned()).then_some(())
    });
    assert_eq!(client.gets("second__env", json!({}))["A"], "b=/home/of-the-test, c");
    let text = fs::read_to_string(&file).unwrap();
    let lines = "watch = [\"src/*.py\", \"a\\\"b.py\"]\nsharing = \"session\"\n";
    assert!(text.contains(lines), "{text}");
    assert!(text.starts_with(&before), "{text}");
    let folder = std::env::current_dir().unwrap();
    let cwd = format!("\ncwd = \"{}\"\n", folder.display());
    assert!(text.contains(&cwd), "its patterns lead on from here: {text}");

    let line = refusal(&gateway("/none", &["add", "second", "--to", &file, "--", "x"]), 1);
    assert!(line.contains("already has a backend second"), "{line}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);

    stdout(&gateway("/none", &["remove", "second", "--to", &file]));
    eventually("its tools are listed no longer", || {
        tools_of(&client, "second").is_empty().then_some(())
    });
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
    assert_eq!(
        client.gets("first__pid", json!({}))["pid"],
        pid,
        "the other one was not touched"
    );
    let line = refusal(&gateway("/none", &["remove", "second", "--to", &file]), 3);
    assert!(line.contains("has no backend second"), "{line}");
}

#[test]
fn a_program_runs_in_the_folder_that_its_files_are_in() {
    let folder = Folder::new();
    let program = fake_backend().display().to_string();
    folder.with("data.json", "{}");
    fs::create_dir(folder.file("below")).unwrap();
    let file = folder.file("broker.toml");
    let add = |arguments: &[&str]| {
        let mut command = broker_program();
        let command = command
            .env("HOME", "/none")
            .current_dir(&folder.0)
            .args(["gateway", "add"]);
        stdout(
            &command
                .args(arguments)
                .args(["--to", &file, "--", &program, "--tool", "data.json"])
                .output()
                .unwrap(),
        )
    };
    let said = add(&["here"]);
    assert!(said.contains("mcp-broker restart"), "the file is new: {said}");
    let said = add(&["below", "--cwd", "below"]);
    assert!(said.ends_with("was started with this file has it now\n"), "{said}");
    let client_file = folder.with(
        "mcp.json",
        &json!({"mcpServers": {"imported": {"command": "python3", "args": ["server.py"]}}}).to_string(),
    );
    stdout(&gateway("/none", &["import", &client_file, "--to", &file]));
    let text = fs::read_to_string(&file).unwrap();
    let cwds: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("cwd = ")).collect();
    let (here, below) = (json!(folder.0).to_string(), json!(folder.file("below")).to_string());
    assert_eq!(cwds, [&here, &below, &here]);
}

#[test]
fn the_file_of_the_user_is_made_private() {
    let home = Folder::new();
    let file = home.file(".config/mcp-broker/broker.toml");
    let url = ["add", "docs", "--url", "https://docs.example.com/mcp?a=b"];
    let header = [
        "--header",
        "Authorization: Bearer ${DOCS_TOKEN}",
        "--header",
        "X-Team: a:b",
    ];
    stdout(&gateway(&home.0, &[&url[..], &header].concat()));
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        "[backends.docs]\nurl = \"https://docs.example.com/mcp?a=b\"\n\
         headers = { \"Authorization\" = \"Bearer ${DOCS_TOKEN}\", \"X-Team\" = \"a:b\" }\n"
    );
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    stdout(&gateway(&home.0, &["remove", "docs"]));
    assert_eq!(fs::read_to_string(&file).unwrap(), "");
}

#[test]
fn links_and_permissions_stay() {
    let folder = Folder::new();
    let file = folder.with("shared.toml", "port = 9000 # kept\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.file("broker.toml");
    symlink(&file, &link).unwrap();
    stdout(&gateway(
        "/none",
        &["add", "a", "--to", &link, "--", "x", "-y", "--to", "z"],
    ));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(
        fs::read_to_string(&file).unwrap(),
        "port = 9000 # kept\n\n[backends.a]\ncommand = \"x\"\nargs = [\"-y\", \"--to\", \"z\"]\n"
    );
}

#[test]
fn commands_at_the_same_time_lose_nothing() {
    let folder = Folder::new();
    let file = folder.file("broker.toml");
    thread::scope(|scope| {
        for at in 0..8 {
            let file = &file;
            scope.spawn(move || stdout(&gateway("/none", &["add", &format!("b{at}"), "--to", file, "--", "x"])));
        }
    });
    let text = fs::read_to_string(&file).unwrap();
    assert_eq!(text.matches("[backends.b").count(), 8, "{text}");
    let parsed: Value = toml::from_str(&text).unwrap();
    assert_eq!(parsed["backends"].as_object().unwrap().len(), 8);
    let left: Vec<PathBuf> = fs::read_dir(&folder.0)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    assert_eq!(left, [PathBuf::from(&file)]);
}

#[test]
fn what_no_broker_would_take_is_refused() {
    let folder = Folder::new();
    let file = folder.with("broker.toml", "port = 9000\n");
    for (arguments, reason) in [
        (&["add", "Upper", "--", "x"][..], "1 to 32 of a-z, 0-9"),
        (&["add", "mcp", "--", "x"], "reserved"),
        (&["add", "a_b", "--", "x"], "1 to 32 of a-z, 0-9"),
        (&["add", "a"], "COMMAND"),
        (&["add", "a", "x"], "x"),
        (&["add", "a", "--url", "http://a/", "--", "x"], "--url"),
        (&["add", "a", "--url", "http://me:pw@a/"], "it has a user or a password"),
        (&["add", "a", "--url", "ftp://a/"], "it must begin with http://"),
        (&["add", "a", "--url", "http://a/", "--env", "A=b"], "--env"),
        (&["add", "a", "--header", "A:b", "--", "x"], "--header"),
        (&["add", "a", "--watch", "[a", "--", "x"], "watch"),
        (&["add", "a", "--url", "http://a/", "--watch", "b"], "--watch"),
        (&["add", "a", "--sharing", "all", "--", "x"], "--sharing"),
        (
            &["add", "a", "--url", "http://a/", "--header", "A=b"],
            "NAME:VALUE is expected",
        ),
        (&["add", "a", "--env", "=b", "--", "x"], "NAME=VALUE is expected"),
        (
            &["add", "a", "--", "mcp-broker", "connect"],
            "a: it is this broker itself",
        ),
        (&["remove"], "NAME"),
    ] {
        // What follows -- are arguments of the program.
        let program = arguments
            .iter()
            .position(|word| *word == "--")
            .unwrap_or(arguments.len());
        let (own, program) = arguments.split_at(program);
        let line = refusal(&gateway("/none", &[own, &["--to", &file], program].concat()), 2);
        assert!(line.contains(reason), "{arguments:?}: {line}");
        assert!(!line.contains(":pw@"), "{line}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "port = 9000\n");

    for (text, reason) in [
        ("port = ", "not valid TOML at line 1"),
        ("[backends.b]\ncomand = 'x'\n", "backends.b.comand: no such key"),
        (
            "backends = { b = { command = 'x' } }\n",
            "only an editor can change safely",
        ),
    ] {
        let file = folder.with("other.toml", text);
        let line = refusal(&gateway("/none", &["add", "a", "--to", &file, "--", "x"]), 1);
        assert!(line.contains(reason) && line.contains("other.toml"), "{line}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
    let inline = folder.with("inline.toml", "backends = { b = { command = 'x' } }\n");
    let line = refusal(&gateway("/none", &["remove", "b", "--to", &inline]), 1);
    assert!(line.contains("only an editor can change safely"), "{line}");
    let line = refusal(
        &broker_program()
            .args(["gateway", "add", "a", "--", "x"])
            .output()
            .unwrap(),
        1,
    );
    assert!(line.contains("name the file with --to"), "{line}");
}

#[test]
fn an_entry_that_cannot_be_used_is_named_and_files_may_begin_with_a_mark() {
    let folder = Folder::new();
    let servers = json!({"mcpServers": {
        "odd": {"command": "x", "args": "y"},
        "sound": {"command": "x", "args": null, "env": {"PORT": 8080}, "headers": []},
    }});
    let text = servers.to_string();
    let utf_16 = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
        let units = format!("\u{feff}{text}");
        units.encode_utf16().flat_map(unit).collect()
    };
    let yaml = "\u{feff}servers:\n  odd: {args: [a]}\n  sound: {command: x, args: , env: {PORT: 8080}}\n";
    for (name, bytes) in [
        ("plain.json", text.clone().into_bytes()),
        ("utf-8.json", format!("\u{feff}{text}").into_bytes()),
        ("utf-16le.json", utf_16(u16::to_le_bytes)),
        ("utf-16be.json", utf_16(u16::to_be_bytes)),
        ("mcpmon.yaml", yaml.as_bytes().to_vec()),
    ] {
        let file = folder.file(name);
        fs::write(&file, bytes).unwrap();
        let to = folder.file(&format!("{name}.toml"));
        let output = gateway("/none", &["import", &file, "--to", &to]);
        stdout(&output);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("odd: left out, because "), "{name}: {stderr}");
        assert_eq!(
            fs::read_to_string(&to).unwrap().trim_start(),
            "[backends.sound]\ncommand = \"x\"\nenv = { \"PORT\" = \"8080\" }\n",
            "{name}"
        );
    }
}
