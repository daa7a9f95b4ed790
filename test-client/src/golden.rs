//! Files that a program makes: compared with what is in the tree, or written with `UPDATE_GOLDEN=1`.

use std::{
    env, fs,
    io::{self, Write},
    path::Path,
    process::{Command, Stdio},
};

/// Whether the files are to be written.
pub fn is_update() -> bool {
    env::var_os("UPDATE_GOLDEN").is_some()
}

/// Asserts that a file has this text, and shows the difference.
pub fn assert_golden(path: &Path, text: &str) {
    if is_update() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        return;
    }
    assert!(
        fs::read_to_string(path).is_ok_and(|expected| expected == text),
        "{} is not current; UPDATE_GOLDEN=1 with the command of this test writes it\n{}",
        path.display(),
        difference(path, text).unwrap_or_else(|_| text.to_owned())
    );
}

fn difference(path: &Path, text: &str) -> io::Result<String> {
    let mut diff = Command::new("diff");
    diff.args(["--unified", "--new-file"]).arg(path).arg("-");
    let mut diff = diff.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    if let Some(mut input) = diff.stdin.take() {
        input.write_all(text.as_bytes())?;
    }
    let output = diff.wait_with_output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
