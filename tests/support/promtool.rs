//! `promtool` of Prometheus. `scripts/test` installs it.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Runs `promtool` in the folder of the repository and fails unless it succeeds and has nothing to say against its input.
pub fn promtool(arguments: &[&str], input: &str) {
    let mut child = Command::new("promtool")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is not installed: run scripts/test");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}:\n{out}\n{err}");
    assert!(err.is_empty(), "promtool {arguments:?}:\n{err}");
}
