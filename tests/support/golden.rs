//! Files that a program makes: compared with what is in the tree, or written with `UPDATE_GOLDEN=1`.

use std::{env, fs, path::Path, process::Command};

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
    if fs::read_to_string(path).is_ok_and(|expected| expected == text) {
        return;
    }
    let new = env::temp_dir().join(format!("mcp-broker-{}", uuid::Uuid::now_v7().simple()));
    fs::write(&new, text).unwrap();
    let mut diff = Command::new("diff");
    let difference = diff.args(["--unified", "--new-file"]).arg(path).arg(&new).output();
    fs::remove_file(&new).unwrap();
    panic!(
        "{} is not current; UPDATE_GOLDEN=1 with the command of this test writes it\n{}",
        path.display(),
        difference.map_or(text.to_owned(), |difference| String::from_utf8_lossy(
            &difference.stdout
        )
        .into_owned())
    );
}
