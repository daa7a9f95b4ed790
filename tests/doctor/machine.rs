//! Faults of the machine: ports, files, the data folder, and the configuration.

use std::{fs, net::TcpListener};

use actors::storage::disk::{Engine, Record};
use storage::disk::DataFolder;

use test_client::{process::RunningServer, wait::free_port};

use super::{Report, User};

#[test]
fn a_port_of_another_program_is_found_with_its_owner() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let report = User::new().examines_port(port, &[]);
    let owner = format!("(pid {})", std::process::id());
    let words = if cfg!(target_os = "linux") {
        vec!["is taken by", &owner]
    } else {
        vec!["is taken by"]
    };
    let finding = report.finds("error", "ports", &words);
    let next = format!("--port {}", port + 1);
    assert!(finding["cure"].as_str().unwrap().contains(&next), "{finding}");
}

#[test]
fn a_low_limit_of_open_files_is_found() {
    let user = User::new();
    let mut command = user.command("bash");
    let doctor = env!("CARGO_BIN_EXE_mcp-broker");
    command.args([
        "-c",
        &format!("ulimit -n 500; exec '{doctor}' doctor --json --port={}", free_port()),
    ]);
    let report = Report::of(command);
    let finding = report.finds("warning", "open files", &["the hard limit is 500", "25256"]);
    assert!(
        finding["cure"].as_str().unwrap().contains("ulimit -Hn 25256"),
        "{finding}"
    );
}

#[test]
fn an_unknown_key_of_the_file_is_found() {
    let user = User::new();
    let file = user.writes("broker.toml", "queue_capcity = 5\n");
    let report = user.examines(&["--config", file.to_str().unwrap()]);
    report.finds(
        "error",
        "configuration",
        &["queue_capcity", "did you mean queue_capacity?"],
    );
    // The other checks do not depend on the configuration.
    report.finds("note", "storage", &["not checked"]);
    report.finds("ok", "clock", &["it shows"]);
}

#[test]
fn a_file_that_is_no_toml_is_found() {
    let user = User::new();
    let file = user.writes("broker.toml", "port = = 1\n");
    let report = user.examines(&["--config", file.to_str().unwrap()]);
    report.finds("error", "configuration", &["broker.toml", "cannot be used"]);
}

#[test]
fn settings_that_are_probably_a_mistake_are_found() {
    let report = User::new().examines(&["--cors-origins=*"]);
    report.finds("warning", "configuration", &["cors_origins is *"]);
}

#[test]
fn a_data_folder_that_cannot_be_written_is_found() {
    let user = User::new();
    let file = user.writes("file", "");
    let flag = format!("--data-dir={}/data", file.display());
    let report = user.examines(&["--storage=disk", &flag]);
    report.finds("error", "storage", &["cannot be written"]);
}

#[test]
fn a_data_folder_that_others_may_enter_is_found() {
    use std::os::unix::fs::PermissionsExt;
    let user = User::new();
    let file = user.writes("shared/notes.txt", "of another program");
    let folder = file.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let report = user.examines(&["--storage=disk", &format!("--data-dir={}", folder.display())]);
    report.finds("error", "storage", &["it holds other files", "mode 755"]);
    assert_eq!(fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn a_folder_that_a_start_would_make_private_is_left_as_it_is() {
    use std::os::unix::fs::PermissionsExt;
    let user = User::new();
    let folder = user.home.join("data");
    let flag = format!("--data-dir={}", folder.display());
    RunningServer::broker(&["--storage=disk", &flag]).stop();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    user.examines(&["--storage=disk", &flag]).finds_nothing();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o755);
}

#[test]
fn data_of_a_newer_version_are_found() {
    let user = User::new();
    let folder = user.home.join("data");
    let flag = format!("--data-dir={}", folder.display());
    RunningServer::broker(&["--storage=disk", &flag]).stop();
    let newer = Record {
        // The record of the version: space 0, kind 0.
        key: vec![0; 5],
        value: Some(99_u32.to_be_bytes().to_vec()),
    };
    DataFolder::open(&folder).unwrap().commit(vec![newer]).unwrap();
    let report = user.examines(&["--storage=disk", &flag]);
    report.finds("error", "storage", &["have version 99"]);
}
