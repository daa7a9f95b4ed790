//! Which rungs a front has: what the user chose, what the environment offers, and who the client is. Pure.

use std::path::PathBuf;

use super::{inbox::Inbox, tmux::Pane};
use crate::identity::{CLAUDE_CODE, CODEX, Identity};

/// The ways to wake an agent that the user allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WakeMode {
    /// Those that the client offers by itself: its inbox socket, or its queue.
    #[default]
    Auto,
    Inbox,
    Channel,
    Queue,
    Tmux,
    Off,
}

impl WakeMode {
    /// The names on the command line.
    pub const NAMES: [&str; 6] = ["auto", "inbox", "channel", "queue", "tmux", "off"];

    /// The mode with this name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "inbox" => Some(Self::Inbox),
            "channel" => Some(Self::Channel),
            "queue" => Some(Self::Queue),
            "tmux" => Some(Self::Tmux),
            "off" => Some(Self::Off),
            _ => None,
        }
    }
}

/// One way to wake an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// The inbox socket of Claude Code.
    Inbox,
    /// The notification of a channel of Claude Code.
    Channel,
    /// The queue of Codex.
    Queue,
    /// Keys for a terminal of tmux.
    Tmux,
}

impl Rung {
    /// The name that the broker knows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Channel => "channel",
            Self::Queue => "queue",
            Self::Tmux => "tmux",
        }
    }
}

/// How a front may wake its agent.
#[derive(Clone, Debug, Default)]
pub struct WakeOptions {
    pub mode: WakeMode,
    /// The socket that the client has given this process.
    pub inbox: Option<Inbox>,
    /// The program of Codex.
    pub codex: PathBuf,
    /// The terminal of the agent.
    pub pane: Option<Pane>,
}

impl WakeOptions {
    /// The rungs for this client, the best one first.
    pub fn rungs(&self, identity: &Identity) -> Vec<Rung> {
        let (is_claude, is_codex) = (identity.is_product(CLAUDE_CODE), identity.is_product(CODEX));
        // A program that Claude Code has started inherits its environment: the socket wakes Claude Code alone.
        let inbox = (is_claude && self.inbox.is_some()).then_some(Rung::Inbox);
        let queue = is_codex.then_some(Rung::Queue);
        match self.mode {
            WakeMode::Auto => inbox.into_iter().chain(queue).collect(),
            WakeMode::Inbox => inbox.into_iter().collect(),
            WakeMode::Channel if is_claude => vec![Rung::Channel],
            WakeMode::Queue => queue.into_iter().collect(),
            WakeMode::Tmux if self.pane.is_some() && (is_claude || is_codex) => vec![Rung::Tmux],
            WakeMode::Channel | WakeMode::Tmux | WakeMode::Off => Vec::new(),
        }
    }

    /// The names of the rungs, for the broker.
    pub fn rung_names(&self, identity: &Identity) -> Vec<String> {
        let rungs = self.rungs(identity);
        rungs.into_iter().map(|rung| rung.as_str().to_owned()).collect()
    }

    /// Whether the agent is woken by the notification of a channel, which the handshake announces.
    pub fn is_channel(&self, identity: &Identity) -> bool {
        self.rungs(identity).contains(&Rung::Channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::mcp::version::ClientInfo;

    #[test]
    fn a_client_is_woken_by_its_own_ways_alone() {
        let options = |mode| WakeOptions {
            mode,
            inbox: Some(Inbox::new("/run/1.sock".into(), "t".to_owned())),
            codex: "codex".into(),
            pane: Pane::parse("%1"),
        };
        for (mode, claude, codex) in [
            (WakeMode::Auto, &[Rung::Inbox][..], &[Rung::Queue][..]),
            (WakeMode::Inbox, &[Rung::Inbox], &[]),
            (WakeMode::Channel, &[Rung::Channel], &[]),
            (WakeMode::Queue, &[], &[Rung::Queue]),
            (WakeMode::Tmux, &[Rung::Tmux], &[Rung::Tmux]),
            (WakeMode::Off, &[], &[]),
        ] {
            for (name, expected) in [("claude-code", claude), ("codex-mcp-client", codex), ("cursor", &[])] {
                let mut identity = Identity::default();
                identity.meet(&ClientInfo {
                    name: name.to_owned(),
                    version: "1".to_owned(),
                });
                assert_eq!(options(mode).rungs(&identity), expected, "{mode:?} {name}");
            }
        }
        let bare = WakeOptions::default();
        let claude = Identity::from_environment(|name| (name == "CLAUDECODE").then(|| "1".to_owned()), None);
        assert!(bare.rungs(&claude).is_empty(), "no socket");
    }

    #[test]
    fn every_name_is_a_mode() {
        assert!(WakeMode::NAMES.iter().all(|name| WakeMode::parse(name).is_some()));
        assert_eq!(WakeMode::parse("hook"), None);
    }
}
