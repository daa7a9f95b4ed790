//! The test binaries are whole: each file of tests is in one of them, and the scripts name parts of the contract that exist.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The names in a folder.
fn entries(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_str().unwrap().to_owned()
}

/// The modules that a file declares.
fn modules(file: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(file).unwrap();
    let declared = text
        .lines()
        .filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    declared.map(str::to_owned).collect()
}

/// Cargo finds no test binaries by itself here, so a forgotten file would never run.
#[test]
fn every_file_of_tests_is_in_a_test_binary() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let binaries: Vec<_> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("path = \"tests/")?.strip_suffix('"'))
        .map(|path| root().join("tests").join(path))
        .collect();
    assert!(binaries.len() > 3, "{binaries:?}");
    let reached: BTreeSet<_> = binaries.iter().flat_map(|binary| modules(binary)).collect();
    for path in entries("tests") {
        let (module, main) = (path.join("mod.rs"), path.join("main.rs"));
        let is_module = module.exists() || path.extension().is_some_and(|extension| extension == "rs");
        let is_reached = binaries.contains(&path) || reached.contains(&stem(&path));
        assert!(
            !is_module || is_reached,
            "{} is in no test binary: give it a line in one",
            path.display()
        );
        assert!(
            !main.exists() || binaries.contains(&main),
            "{} is no test binary of Cargo.toml",
            main.display()
        );
    }
}

/// The parts of the contract in a list of `scripts/lib/contract.sh`.
fn listed(name: &str) -> Vec<String> {
    let script = format!("source scripts/lib/contract.sh; printf '%s\\n' \"${{{name}[@]}}\"");
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// The parts of the contract: `GROUP::FILE`.
fn parts() -> Vec<(String, String)> {
    let groups = entries("tests/contract").into_iter().filter(|path| path.is_dir());
    let parts = groups.flat_map(|group| {
        let files = entries(group.to_str().unwrap()).into_iter();
        let tests = files.filter(|file| {
            let text = fs::read_to_string(file);
            stem(file) != "mod" && text.is_ok_and(|text| text.contains("#[test]"))
        });
        let parts = tests.map(|file| (stem(&group), format!("{}::{}", stem(&group), stem(&file))));
        parts.collect::<Vec<_>>()
    });
    parts.collect()
}

#[test]
fn some_parts_of_each_group_run_with_every_storage() {
    let (without, parts) = (listed("without_storage"), parts());
    for name in &without {
        assert!(
            parts.iter().any(|(_, part)| part == name),
            "scripts/lib/contract.sh: there is no part {name}"
        );
    }
    for (group, _) in &parts {
        let of_group = parts.iter().filter(|(other, _)| other == group);
        let kept = of_group.filter(|(_, part)| !without.contains(part)).count();
        assert!(kept > 0, "no part of {group} runs on disk and Redis");
    }
}

#[test]
fn what_runs_over_the_socket_exists() {
    let parts = parts();
    for name in listed("over_socket") {
        let mut words = name.split("::");
        let (group, file, test) = (words.next().unwrap(), words.next().unwrap(), words.next());
        assert!(
            parts.iter().any(|(_, part)| *part == format!("{group}::{file}")),
            "scripts/lib/contract.sh: there is no part {name}"
        );
        if let Some(test) = test {
            let text = fs::read_to_string(root().join(format!("tests/contract/{group}/{file}.rs"))).unwrap();
            assert!(
                text.contains(&format!("fn {test}")),
                "scripts/lib/contract.sh: there is no test {name}"
            );
        }
    }
}
