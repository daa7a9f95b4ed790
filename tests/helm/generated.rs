//! Files that are generated: compared with what is in the tree, or rewritten with `UPDATE_GOLDEN=1`.

use std::{env, fs, path::Path, process::Command};

use super::tools::{root, scratch_folder, text_of};

/// Asserts that the file is what was generated, and shows the difference.
pub fn assert_current(path: &Path, generated: &str) {
    if is_update() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, generated).unwrap();
        return;
    }
    if fs::read_to_string(path).is_ok_and(|text| text == generated) {
        return;
    }
    let shown = path.strip_prefix(root()).unwrap();
    let name = shown.display().to_string().replace('/', "_");
    let new = scratch_folder(&format!("difference-{name}")).join("generated");
    fs::write(&new, generated).unwrap();
    let difference = Command::new("diff")
        .args(["--unified", "--new-file"])
        .arg(path)
        .arg(&new)
        .output()
        .unwrap();
    panic!(
        "{} is not current; UPDATE_GOLDEN=1 cargo test --test product -- --include-ignored helm:: rewrites it\n{}",
        shown.display(),
        text_of(&difference)
    );
}

/// Whether generated files are to be rewritten.
pub fn is_update() -> bool {
    env::var_os("UPDATE_GOLDEN").is_some()
}
