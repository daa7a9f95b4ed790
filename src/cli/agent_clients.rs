//! The MCP clients that agents run in: their names, their configuration files, and where a file lists servers.

use std::path::{Path, PathBuf};

/// A client.
#[derive(Debug, PartialEq, Eq)]
pub struct AgentClient {
    /// Its word on the command line.
    pub word: &'static str,
    /// Its name for people.
    pub label: &'static str,
    pub format: FileFormat,
    /// The files of a user, from the home folder.
    pub user_files: &'static [&'static str],
    /// The files of a project, from its folder.
    pub project_files: &'static [&'static str],
    /// The keys that lead to the object of all servers; several where its versions differ.
    pub servers: &'static [&'static [&'static str]],
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// JSON, with comments where the client allows them.
    Json,
    Toml,
}

/// All clients. docs/clients.md names the documentation of each.
pub const CLIENTS: [AgentClient; 6] = [
    AgentClient {
        word: "claude",
        label: "Claude Code",
        format: FileFormat::Json,
        user_files: &[".claude.json"],
        project_files: &[".mcp.json"],
        servers: &[&["mcpServers"]],
    },
    AgentClient {
        word: "cursor",
        label: "Cursor",
        format: FileFormat::Json,
        user_files: &[".cursor/mcp.json"],
        project_files: &[".cursor/mcp.json"],
        servers: &[&["mcpServers"]],
    },
    AgentClient {
        word: "vscode",
        label: "VS Code",
        format: FileFormat::Json,
        user_files: &[
            ".config/Code/User/mcp.json",
            "Library/Application Support/Code/User/mcp.json",
        ],
        project_files: &[".vscode/mcp.json"],
        servers: &[&["servers"]],
    },
    AgentClient {
        word: "codex",
        label: "Codex",
        format: FileFormat::Toml,
        user_files: &[".codex/config.toml"],
        project_files: &[".codex/config.toml"],
        servers: &[&["mcp_servers"]],
    },
    AgentClient {
        word: "gemini",
        label: "Gemini CLI",
        format: FileFormat::Json,
        user_files: &[".gemini/settings.json"],
        project_files: &[".gemini/settings.json"],
        servers: &[&["mcpServers"]],
    },
    AgentClient {
        word: "opencode",
        label: "opencode",
        format: FileFormat::Json,
        user_files: &[".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"],
        project_files: &["opencode.json", "opencode.jsonc", ".opencode/opencode.json"],
        servers: &[&["mcp", "servers"], &["mcp"]],
    },
];

impl AgentClient {
    /// The client of a word.
    pub fn of_word(word: &str) -> Option<&'static Self> {
        CLIENTS.iter().find(|client| client.word == word)
    }

    /// All places of its files, each once.
    pub fn files(&self, home: Option<&Path>, project: Option<&Path>) -> Vec<PathBuf> {
        let of_user = self.user_files.iter().filter_map(|file| Some(home?.join(file)));
        let of_project = self.project_files.iter().filter_map(|file| Some(project?.join(file)));
        let mut files = Vec::new();
        for file in of_user.chain(of_project) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
        files
    }
}
