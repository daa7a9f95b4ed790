//! `mcp-broker setup CLIENT`: what it does to the files of a user.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use super::CLIENTS;

/// Where the file of each client is below the home folder.
#[cfg(not(target_os = "macos"))]
const FILES: [(&str, &str); 10] = [
    ("claude", ".claude.json"),
    ("cursor", ".cursor/mcp.json"),
    ("vscode", ".config/Code/User/mcp.json"),
    ("codex", ".codex/config.toml"),
    ("gemini", ".gemini/settings.json"),
    ("copilot", ".copilot/mcp-config.json"),
    ("opencode", ".config/opencode/opencode.json"),
    ("windsurf", ".codeium/windsurf/mcp_config.json"),
    ("zed", ".config/zed/settings.json"),
    ("claude-desktop", ".config/Claude/claude_desktop_config.json"),
];

/// A user with an empty home folder, removed when dropped.
pub struct User {
    home: PathBuf,
}

impl User {
    pub fn new() -> Self {
        let home = std::env::temp_dir().join(format!("mb-setup-{}", uuid::Uuid::new_v4().simple()));
        fs::create_dir_all(&home).unwrap();
        Self { home }
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.home.join(file)
    }

    pub fn writes(&self, file: &str, text: &str) -> PathBuf {
        let path = self.path(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    pub fn reads(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-broker"));
        command
            .env_clear()
            .env("HOME", &self.home)
            .current_dir(&self.home)
            .arg("setup")
            .args(words)
            .stdin(Stdio::null());
        command
    }

    pub fn sets_up(&self, words: &[&str]) -> String {
        let output = self.command(words).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""), "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The one line on stderr of a refusal.
    pub fn is_refused(&self, words: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(matches!(status.code(), Some(1 | 2)), "{stderr}");
        assert!(stdout.is_empty() && stderr.lines().count() == 1, "{stderr}");
        stderr
    }

    /// Names of the files in a folder, to find what an edit leaves behind.
    fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn parsed(client: &str, text: &str) -> Value {
    match client {
        "codex" => toml::from_str(text).unwrap(),
        _ => serde_json::from_str(text).unwrap(),
    }
}

/// What tells whether a file was replaced or written.
pub fn identity(path: &Path) -> (u64, i64, i64) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.ino(), metadata.mtime(), metadata.mtime_nsec())
}

#[cfg(not(target_os = "macos"))]
#[test]
fn each_client_gets_its_entry_once_and_loses_it_again() {
    for ((client, file), (_, pointer)) in FILES.into_iter().zip(CLIENTS) {
        let user = User::new();
        let told = user.sets_up(&[client]);
        assert!(told.contains("was added to") && told.contains(file), "{told}");
        let entry = parsed(client, &user.reads(file)).pointer(pointer).unwrap().to_string();
        assert!(entry.contains("connect") && entry.contains("--auto-name"), "{entry}");
        let before = identity(&user.path(file));
        assert!(user.sets_up(&[client]).contains("is already in"));
        assert_eq!(identity(&user.path(file)), before);
        assert!(user.sets_up(&[client, "--remove"]).contains("was removed from"));
        assert_eq!(parsed(client, &user.reads(file)).pointer(pointer), None);
        assert!(user.sets_up(&[client, "--remove"]).contains("has no entry"));
    }
}

#[test]
fn a_file_with_comments_keeps_every_other_byte() {
    let json = "// mine\n{\n    \"theme\": \"dark\", // at night\n    \"x\": [1,2,  3,],\n}\n";
    let toml = "# mine\nmodel = \"o\"   # the best\n\n[mcp_servers.\"other one\"]\ncommand = 'x'\n";
    for (client, file, text) in [
        ("gemini", ".gemini/settings.json", json),
        ("codex", ".codex/config.toml", toml),
    ] {
        let user = User::new();
        let path = user.writes(file, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        user.sets_up(&[client]);
        let with = user.reads(file);
        let kept = text.strip_suffix("}\n").unwrap_or(text);
        assert!(with.starts_with(kept) && with != text, "{with}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        user.sets_up(&[client, "--remove"]);
        assert_eq!(user.reads(file), text);
        assert_eq!(user.names(Path::new(file).parent().unwrap().to_str().unwrap()).len(), 1);
    }
}

#[test]
fn an_entry_of_others_is_never_touched() {
    for entry in [
        json!({"command": "npx", "args": ["-y", "other"]}),
        json!({"command": "mcp-broker", "args": ["serve"]}),
        json!({"type": "http", "url": "http://127.0.0.1:8000/mcp"}),
    ] {
        let user = User::new();
        let text = json!({"mcpServers": {"broker": entry}}).to_string();
        let before = identity(&user.writes(".claude.json", &text));
        assert!(user.is_refused(&["claude"]).contains("that this command did not write"));
        assert!(
            user.is_refused(&["claude", "--remove"])
                .contains("remove it in an editor")
        );
        assert_eq!(identity(&user.path(".claude.json")), before);
        user.sets_up(&["claude", "--name", "mine"]);
        let file = parsed("claude", &user.reads(".claude.json"));
        assert_eq!(file["mcpServers"]["broker"], entry);
        assert!(file["mcpServers"]["mine"].is_object());
    }
}

#[test]
fn an_own_entry_is_updated_and_keeps_what_the_user_added() {
    let user = User::new();
    let text = r#"{"mcpServers": {"broker": {"command": "/old/mcp-broker", "args": ["connect"], "env": {"A": "1"}}}}"#;
    user.writes(".cursor/mcp.json", text);
    assert!(
        user.sets_up(&["cursor", "--instance", "dev/x"])
            .contains("was updated in")
    );
    let file = parsed("cursor", &user.reads(".cursor/mcp.json"));
    let entry = &file["mcpServers"]["broker"];
    assert_eq!(entry["command"], env!("CARGO_BIN_EXE_mcp-broker"));
    assert_eq!(entry["args"], json!(["connect", "--auto-name", "--instance", "dev/x"]));
    assert_eq!(entry["env"], json!({"A": "1"}));
    assert!(
        user.is_refused(&["cursor", "--remove"])
            .contains("not as this command writes it")
    );
    user.sets_up(&["codex"]);
    user.sets_up(&["codex", "--instance", "work"]);
    assert!(user.reads(".codex/config.toml").contains("\"--instance\", \"work\""));
    user.sets_up(&["codex", "--remove"]);
    assert_eq!(user.reads(".codex/config.toml"), "");
}

#[test]
fn the_program_is_named_as_the_client_finds_it() {
    let user = User::new();
    let bin = user.path("bin");
    fs::create_dir_all(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_mcp-broker"), bin.join("mcp-broker")).unwrap();
    let program = |words: &[&str], file: &str| {
        let mut command = user.command(words);
        assert!(command.env("PATH", &bin).output().unwrap().status.success());
        parsed("cursor", &user.reads(file))["mcpServers"]["broker"]["command"].clone()
    };
    assert_eq!(program(&["gemini"], ".gemini/settings.json"), "mcp-broker");
    // A desktop does not have the PATH of a shell.
    assert_eq!(
        program(&["cursor"], ".cursor/mcp.json"),
        bin.join("mcp-broker").to_str().unwrap()
    );
    fs::create_dir_all(user.path("shop")).unwrap();
    assert_eq!(
        program(&["cursor", "--project", "shop"], "shop/.cursor/mcp.json"),
        "mcp-broker"
    );
}

#[test]
fn a_file_that_cannot_be_changed_stays_and_the_user_is_told_why() {
    let user = User::new();
    user.writes(".claude.json", "{\"mcpServers\": {\"a\": hunter2}}");
    let told = user.is_refused(&["claude"]);
    assert!(
        told.contains("not valid JSON at line 1") && !told.contains("hunter2"),
        "{told}"
    );
    user.writes(".claude.json", "{\"mcpServers\": []}");
    assert!(user.is_refused(&["claude"]).contains("mcpServers is not an object"));
    user.writes(".codex/config.toml", "[mcp_servers\n");
    assert!(user.is_refused(&["codex"]).contains("not valid TOML at line 1"));
    let path = user.writes(".gemini/settings.json", "{}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    assert!(user.is_refused(&["gemini"]).contains("chmod u+w"));
    fs::create_dir_all(user.path(".cursor/mcp.json")).unwrap();
    assert!(user.is_refused(&["cursor"]).contains("it is not a file"));
    for (file, text) in [
        (".gemini/settings.json", "{}"),
        (".claude.json", "{\"mcpServers\": []}"),
    ] {
        assert_eq!(user.reads(file), text);
    }
    assert!(
        user.is_refused(&["windsurf", "--project", "."])
            .contains("no file for a project")
    );
    assert!(
        user.is_refused(&["claude", "--url", "http://a", "--key-env"])
            .contains("--project")
    );
    assert!(
        user.is_refused(&["zed", "--url", "http://a", "--key-env"])
            .contains("cannot refer to a variable")
    );
}

#[test]
fn a_link_is_followed_and_stays_a_link() {
    let user = User::new();
    let target = user.writes("dotfiles/claude.json", "{}\n");
    symlink("dotfiles/claude.json", user.path(".claude.json")).unwrap();
    user.sets_up(&["claude"]);
    assert!(user.path(".claude.json").symlink_metadata().unwrap().is_symlink());
    assert!(fs::read_to_string(&target).unwrap().contains("mcpServers"));
    fs::remove_file(&target).unwrap();
    assert!(
        user.is_refused(&["claude"])
            .contains("link whose target cannot be reached")
    );
    fs::set_permissions(user.path("dotfiles"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(user.names("dotfiles").is_empty());
}

#[test]
fn a_link_out_of_a_project_is_not_followed() {
    let user = User::new();
    let (own, folder) = (user.writes("own.json", "{}\n"), user.path("clone"));
    fs::create_dir_all(user.path("outside")).unwrap();
    fs::create_dir_all(folder.join("inside")).unwrap();
    symlink("../own.json", folder.join(".mcp.json")).unwrap();
    symlink("../outside", folder.join(".cursor")).unwrap();
    symlink("inside", folder.join(".vscode")).unwrap();
    let project = folder.to_str().unwrap();
    for client in ["claude", "cursor"] {
        let refused = user.is_refused(&[client, "--project", project]);
        assert!(refused.contains("a link leads out of the project"), "{refused}");
    }
    assert_eq!(fs::read_to_string(own).unwrap(), "{}\n");
    assert!(user.names("outside").is_empty());
    user.sets_up(&["vscode", "--project", project]);
    assert!(user.reads("clone/inside/mcp.json").contains("mcp-broker"));
}

#[test]
fn two_at_once_lose_nothing() {
    let user = User::new();
    let names: Vec<_> = (0..8).map(|number| format!("broker-{number}")).collect();
    let start = |name: &String| {
        user.command(&["claude", "--name", name])
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let running: Vec<_> = names.iter().map(start).collect();
    for mut process in running {
        assert!(process.wait().unwrap().success());
    }
    let file = parsed("claude", &user.reads(".claude.json"));
    let servers = file["mcpServers"].as_object().unwrap();
    assert!(names.iter().all(|name| servers.contains_key(name)), "{file}");
    assert_eq!(user.names("."), [".claude.json"]);
}

#[test]
fn a_shared_broker_is_written_and_removed_by_its_url() {
    let user = User::new();
    let url = ["--url", "https://ops.example.com/broker", "--key-env", "TEAM_KEY"];
    let with = |words: &[&'static str]| [words, &url].concat();
    let told = user.sets_up(&with(&["claude", "--project", "."]));
    assert!(told.contains("export TEAM_KEY=KEY"), "{told}");
    let file = parsed("claude", &user.reads(".mcp.json"));
    assert_eq!(file["mcpServers"]["broker"]["headers"]["X-API-Key"], "${TEAM_KEY}");
    let told = user.is_refused(&["claude", "--project", ".", "--remove"]);
    assert!(told.contains("repeat this with its --url"), "{told}");
    user.sets_up(&with(&["claude", "--project", ".", "--remove"]));
    assert_eq!(user.reads(".mcp.json"), "{}\n");
}

#[test]
fn printing_says_what_would_be_done_and_changes_nothing() {
    let user = User::new();
    let told = user.sets_up(&["claude", "--print"]);
    assert!(
        told.contains("would be added to") && told.contains("--auto-name"),
        "{told}"
    );
    assert!(user.names(".").is_empty());
    let told: Value = serde_json::from_str(&user.sets_up(&["claude", "--json"])).unwrap();
    assert_eq!((&told["change"], &told["written"]), (&json!("added"), &json!(true)));
    assert_eq!(told["entry"]["args"], json!(["connect", "--auto-name"]));
    let told: Value = serde_json::from_str(&user.sets_up(&["claude", "--json"])).unwrap();
    assert_eq!(
        (&told["change"], &told["written"]),
        (&json!("unchanged"), &json!(false))
    );
    let before = user.reads(".claude.json");
    assert!(
        user.sets_up(&["claude", "--print", "--remove"])
            .contains("would be removed from")
    );
    assert_eq!(user.reads(".claude.json"), before);
}

/// The largest file that is edited, of the kind that takes most memory, is edited; a larger one is refused.
#[test]
fn the_size_of_a_file_is_bounded() {
    let user = User::new();
    let filled = |bytes: usize| format!("{{\"history\": [{}1]}}", "{\"a\":1},".repeat(bytes / 8));
    let text = filled((8 << 20) - 400);
    user.writes(".claude.json", &text);
    let peak = peak_memory(user.command(&["claude"]));
    assert!(peak < 2 << 30, "{peak} bytes");
    assert!(user.reads(".claude.json").len() > text.len());
    user.writes(".claude.json", &filled(50 << 20));
    let mut refused = user.command(&["claude"]);
    let output = refused.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("more than 8 MiB"), "{stderr}");
}

/// The largest resident memory of a process that succeeds, in bytes.
fn peak_memory(mut command: Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: u64 = line
            .and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
            .unwrap_or(0);
        peak = peak.max(kib << 10);
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            eprintln!("peak: {} MiB", peak >> 20);
            return peak;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
