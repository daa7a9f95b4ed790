//! The MCP clients that agents run in: their names, their configuration files, and where a file lists servers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A client.
#[derive(Debug, PartialEq, Eq)]
pub struct AgentClient {
    /// Its word on the command line.
    pub word: &'static str,
    /// Its name for people.
    pub label: &'static str,
    pub format: FileFormat,
    /// The files of a user. Of several on one system the first that exists counts.
    user_files: &'static [UserFile],
    /// The files of a project, from its folder. Empty where the client has none.
    project_files: &'static [&'static str],
    /// The keys that lead to the object of all servers; several where its versions differ, the most general one last.
    pub servers: &'static [&'static [&'static str]],
    /// Whether a desktop starts it, without the variables of a shell.
    pub has_windows: bool,
    /// The files of its hooks, if it runs hooks that this program knows.
    hooks: Option<HookFiles>,
}

/// The files in which a client finds hooks.
#[derive(Debug, PartialEq, Eq)]
struct HookFiles {
    user: UserFile,
    /// From the folder of a project.
    project: &'static str,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// JSON, with comments where the client allows them.
    Json,
    Toml,
}

/// A file of a user.
#[derive(Debug, PartialEq, Eq)]
struct UserFile {
    system: System,
    /// The variable that names its folder, for users who moved it.
    variable: Option<&'static str>,
    /// Its folder, from the home folder.
    folder: &'static str,
    file: &'static str,
}

/// Where a file is used.
#[derive(Debug, PartialEq, Eq)]
enum System {
    Any,
    MacOs,
    /// All but macOS.
    Other,
}

const fn in_home(folder: &'static str, file: &'static str) -> UserFile {
    UserFile {
        system: System::Any,
        variable: None,
        folder,
        file,
    }
}

const fn in_folder_of(variable: &'static str, folder: &'static str, file: &'static str) -> UserFile {
    UserFile {
        system: System::Any,
        variable: Some(variable),
        folder,
        file,
    }
}

const fn in_config(file: &'static str) -> UserFile {
    in_folder_of("XDG_CONFIG_HOME", ".config", file)
}

const fn on(system: System, file: UserFile) -> UserFile {
    UserFile { system, ..file }
}

/// All clients. docs/clients.md names the documentation of each.
pub const CLIENTS: [AgentClient; 10] = [
    AgentClient {
        word: "claude",
        label: "Claude Code",
        format: FileFormat::Json,
        user_files: &[in_folder_of("CLAUDE_CONFIG_DIR", "", ".claude.json")],
        project_files: &[".mcp.json"],
        servers: &[&["mcpServers"]],
        has_windows: false,
        hooks: Some(HookFiles {
            user: in_folder_of("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
            project: ".claude/settings.json",
        }),
    },
    AgentClient {
        word: "cursor",
        label: "Cursor",
        format: FileFormat::Json,
        user_files: &[in_home(".cursor", "mcp.json")],
        project_files: &[".cursor/mcp.json"],
        servers: &[&["mcpServers"]],
        has_windows: true,
        hooks: Some(HookFiles {
            user: in_home(".cursor", "hooks.json"),
            project: ".cursor/hooks.json",
        }),
    },
    AgentClient {
        word: "vscode",
        label: "VS Code",
        format: FileFormat::Json,
        user_files: &[
            on(System::Other, in_config("Code/User/mcp.json")),
            on(
                System::MacOs,
                in_home("Library/Application Support", "Code/User/mcp.json"),
            ),
        ],
        project_files: &[".vscode/mcp.json"],
        servers: &[&["servers"]],
        has_windows: true,
        hooks: None,
    },
    AgentClient {
        word: "codex",
        label: "Codex",
        format: FileFormat::Toml,
        user_files: &[in_folder_of("CODEX_HOME", ".codex", "config.toml")],
        project_files: &[".codex/config.toml"],
        servers: &[&["mcp_servers"]],
        has_windows: false,
        hooks: Some(HookFiles {
            user: in_folder_of("CODEX_HOME", ".codex", "hooks.json"),
            project: ".codex/hooks.json",
        }),
    },
    AgentClient {
        word: "gemini",
        label: "Gemini CLI",
        format: FileFormat::Json,
        user_files: &[in_home(".gemini", "settings.json")],
        project_files: &[".gemini/settings.json"],
        servers: &[&["mcpServers"]],
        has_windows: false,
        hooks: Some(HookFiles {
            user: in_home(".gemini", "settings.json"),
            project: ".gemini/settings.json",
        }),
    },
    AgentClient {
        word: "copilot",
        label: "Copilot CLI",
        format: FileFormat::Json,
        user_files: &[in_folder_of("COPILOT_HOME", ".copilot", "mcp-config.json")],
        project_files: &[],
        servers: &[&["mcpServers"]],
        has_windows: false,
        hooks: Some(HookFiles {
            user: in_folder_of("COPILOT_HOME", ".copilot", "hooks/mcp-broker.json"),
            project: ".github/hooks/mcp-broker.json",
        }),
    },
    AgentClient {
        word: "opencode",
        label: "opencode",
        format: FileFormat::Json,
        user_files: &[
            in_config("opencode/opencode.json"),
            in_config("opencode/opencode.jsonc"),
        ],
        project_files: &["opencode.json", "opencode.jsonc", ".opencode/opencode.json"],
        servers: &[&["mcp", "servers"], &["mcp"]],
        has_windows: false,
        hooks: None,
    },
    AgentClient {
        word: "windsurf",
        label: "Windsurf",
        format: FileFormat::Json,
        user_files: &[in_home(".codeium/windsurf", "mcp_config.json")],
        project_files: &[],
        servers: &[&["mcpServers"]],
        has_windows: true,
        hooks: None,
    },
    AgentClient {
        word: "zed",
        label: "Zed",
        format: FileFormat::Json,
        user_files: &[
            on(System::Other, in_config("zed/settings.json")),
            on(System::MacOs, in_home(".config", "zed/settings.json")),
        ],
        project_files: &[".zed/settings.json"],
        servers: &[&["context_servers"]],
        has_windows: true,
        hooks: None,
    },
    AgentClient {
        word: "claude-desktop",
        label: "Claude Desktop",
        format: FileFormat::Json,
        user_files: &[
            on(System::Other, in_config("Claude/claude_desktop_config.json")),
            on(
                System::MacOs,
                in_home("Library/Application Support", "Claude/claude_desktop_config.json"),
            ),
        ],
        project_files: &[],
        servers: &[&["mcpServers"]],
        has_windows: true,
        hooks: None,
    },
];

impl UserFile {
    /// Its path. `None` on another system, and where its folder is not known.
    fn path(&self, variable: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let is_here = match self.system {
            System::Any => true,
            System::MacOs => cfg!(target_os = "macos"),
            System::Other => !cfg!(target_os = "macos"),
        };
        let named = self.variable.and_then(variable).map(PathBuf::from);
        let folder = named
            .filter(|folder| folder.is_absolute())
            .or_else(|| Some(Path::new(&variable("HOME")?).join(self.folder)))?;
        is_here.then(|| folder.join(self.file))
    }
}

/// Other names of clients, and the words that mean them.
const OTHER_NAMES: [(&str, &str); 5] = [
    ("claude-code", "claude"),
    ("code", "vscode"),
    ("codex-cli", "codex"),
    ("gemini-cli", "gemini"),
    ("vs-code", "vscode"),
];

impl AgentClient {
    /// The client of a word, or of another name.
    pub fn of_word(word: &str) -> Option<&'static Self> {
        let meant = OTHER_NAMES.iter().find(|(other, _)| *other == word);
        let word = meant.map_or(word, |(_, word)| word);
        CLIENTS.iter().find(|client| client.word == word)
    }

    /// Its other names.
    pub fn other_names(&self) -> impl Iterator<Item = &'static str> {
        let own = OTHER_NAMES.iter().filter(|(_, word)| *word == self.word);
        own.map(|(other, _)| *other)
    }

    /// The places of its file for a user. `variable` reads the environment.
    pub fn user_files(&self, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
        self.user_files.iter().filter_map(|file| file.path(&variable)).collect()
    }

    /// The file of its hooks for a user. `variable` reads the environment.
    pub fn user_hooks(&self, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        self.hooks.as_ref()?.user.path(&variable)
    }

    /// The file of its hooks for a project.
    pub fn project_hooks(&self, project: &Path) -> Option<PathBuf> {
        Some(project.join(self.hooks.as_ref()?.project))
    }

    /// Whether this program knows its hooks.
    pub fn has_hooks(&self) -> bool {
        self.hooks.is_some()
    }

    /// The places of its file for a project.
    pub fn project_files(&self, project: &Path) -> Vec<PathBuf> {
        self.project_files.iter().map(|file| project.join(file)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(word: &str, env: &[(&str, &str)]) -> Vec<PathBuf> {
        let value = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into());
        AgentClient::of_word(word).unwrap().user_files(value)
    }

    #[test]
    fn a_moved_folder_counts_where_its_name_is_absolute() {
        let home = ("HOME", "/home/ada");
        assert_eq!(files("codex", &[home]), [Path::new("/home/ada/.codex/config.toml")]);
        let moved = ("CODEX_HOME", "/srv/codex");
        assert_eq!(files("codex", &[home, moved]), [Path::new("/srv/codex/config.toml")]);
        let relative = ("CLAUDE_CONFIG_DIR", "claude");
        assert_eq!(
            files("claude", &[home, relative]),
            [Path::new("/home/ada/.claude.json")]
        );
        assert!(files("cursor", &[]).is_empty());
    }

    #[test]
    fn every_client_has_one_place_on_each_system_or_variants_of_its_name() {
        for client in &CLIENTS {
            let found = files(client.word, &[("HOME", "/home/ada")]);
            assert_eq!(found.len(), if client.word == "opencode" { 2 } else { 1 }, "{found:?}");
        }
    }
}
