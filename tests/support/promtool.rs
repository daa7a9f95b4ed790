//! `promtool` of Prometheus. `scripts/test` installs it. Without it a test prints that and passes, unless
//! `PROMTOOL=required`.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Runs `promtool` in the folder of the repository and fails unless it succeeds and has nothing to say against its input.
#[allow(dead_code, reason = "only some tests check metrics")]
pub fn promtool(arguments: &[&str], input: &str) {
    let started = Command::new("promtool")
        .args(arguments)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = started else {
        assert!(
            std::env::var_os("PROMTOOL").is_none_or(|it| it != "required"),
            "promtool is not installed: run scripts/test"
        );
        eprintln!("skipped: promtool is not installed; scripts/test installs it");
        return;
    };
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}:\n{out}\n{err}");
    assert!(err.is_empty(), "promtool {arguments:?}:\n{err}");
}
