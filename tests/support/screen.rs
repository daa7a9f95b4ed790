//! A real terminal for tests: one command in tmux.

use std::process::Command;

use test_client::wait::eventually_or;

/// A terminal of tmux with one command in it. When it has ended, the screen stays and shows its exit code.
pub struct Screen {
    server: String,
}

impl Screen {
    /// Starts a command of the binary in a terminal of this size, with these variables.
    pub fn start(size: (u16, u16), environment: &str, words: &str) -> Self {
        let screen = Self {
            server: format!("mcp-broker-{}", uuid::Uuid::new_v4().simple()),
        };
        let (width, height) = (size.0.to_string(), size.1.to_string());
        let binary = env!("CARGO_BIN_EXE_mcp-broker");
        let variables = format!("TERM=$TERM LANG=C.UTF-8 {environment}");
        let command = format!("echo before; env -i {variables} '{binary}' {words}; echo \"ended with $?\"; cat");
        let words = [
            "-u",
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &width,
            "-y",
            &height,
            &command,
        ];
        screen.tmux(&words);
        screen
    }

    pub fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let output = command
            .env_remove("TMUX")
            .args(["-L", &self.server])
            .args(words)
            .output();
        let output = output.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen has this text, and returns all of it.
    pub fn shows(&self, wanted: &str) -> String {
        self.shows_that(wanted, |text| text.contains(wanted))
    }

    pub fn shows_that(&self, what: &str, is_shown: impl Fn(&str) -> bool) -> String {
        eventually_or(
            || format!("the screen shows {what}, and not\n{}", self.text()),
            || Some(self.text()).filter(|text| is_shown(text)),
        )
    }

    pub fn presses(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the command has ended, and returns its exit code.
    pub fn ends(&self) -> i32 {
        let text = self.shows("ended with ");
        let (_, rest) = text.split_once("ended with ").unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-L", &self.server, "kill-server"]).output();
    }
}
