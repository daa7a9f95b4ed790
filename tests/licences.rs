//! Every dependency has a licence and a source that `deny.toml` allows. That includes the libraries of the dashboard.

use std::{collections::BTreeSet, fmt::Write, fs, path::Path, process::Command};

use serde_json::Value;
use sha2::{Digest, Sha256};

#[test]
fn every_dependency_has_an_allowed_licence() {
    let allowed = strings("licenses.allow");
    let refused: Vec<_> = packages()
        .iter()
        .map(|package| (text(package, "name"), text(package, "license")))
        .filter(|(_, licence)| !Expression::new(licence).holds(&allowed))
        .collect();
    assert!(refused.is_empty(), "deny.toml does not allow {refused:?}");
}

#[test]
fn every_dependency_comes_from_an_allowed_registry_or_this_repository() {
    let allowed = strings("sources.allow-registry");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    for package in packages() {
        let source = text(&package, "source");
        let is_ours = source.is_empty() && Path::new(&text(&package, "manifest_path")).starts_with(here);
        let is_allowed = source
            .strip_prefix("registry+")
            .is_some_and(|url| allowed.iter().any(|it| it == url));
        assert!(
            is_ours || is_allowed,
            "{} comes from {source:?}",
            text(&package, "name")
        );
    }
}

/// `scripts/renew-assets` fetches the libraries and writes the manifest.
#[test]
fn the_libraries_of_the_dashboard_are_those_of_their_manifest() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/dashboard/vendor");
    let manifest: Value = serde_json::from_slice(&fs::read(folder.join("manifest.json")).unwrap()).unwrap();
    let allowed = strings("licenses.allow");
    let mut listed = BTreeSet::from(["manifest.json".to_owned()]);
    for package in manifest["packages"].as_array().unwrap() {
        let name = text(package, "name");
        assert!(Expression::new(&text(package, "license")).holds(&allowed), "{name}");
        let files = package["files"].as_array().unwrap();
        assert!(
            files.iter().any(|file| text(file, "name").ends_with(".LICENSE.txt")),
            "{name} has its licence"
        );
        for file in files {
            let file_name = text(file, "name");
            let digest = Sha256::digest(fs::read(folder.join(&file_name)).unwrap());
            let found = digest.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            assert_eq!(found, text(file, "sha256"), "{file_name}: run scripts/renew-assets");
            listed.insert(file_name);
        }
    }
    let entries = fs::read_dir(&folder).unwrap();
    let found = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(listed, found, "the folder has the files of the manifest and no others");
}

#[test]
fn a_licence_expression_holds_if_the_allowed_licences_satisfy_it() {
    let allowed = [
        "MIT".to_owned(),
        "Apache-2.0 WITH LLVM-exception".to_owned(),
        "Zlib".to_owned(),
    ];
    for holding in [
        "MIT",
        "MIT OR GPL-3.0",
        "GPL-3.0/MIT",
        "GPL-3.0 OR MIT AND Zlib",
        "(GPL-3.0 OR MIT) AND Zlib",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(Expression::new(holding).holds(&allowed), "{holding}");
    }
    for failing in [
        "",
        "GPL-3.0",
        "Apache-2.0",
        "MIT AND GPL-3.0",
        "(MIT OR Zlib) AND GPL-3.0",
        "MIT OR",
        "(MIT",
    ] {
        assert!(!Expression::new(failing).holds(&allowed), "{failing}");
    }
}

/// The packages of the lock file for this machine, including those of tests and build scripts.
fn packages() -> Vec<Value> {
    let version = stdout(Command::new("rustc").arg("-vV"));
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .expect("rustc names its host");
    let metadata = stdout(
        Command::new(env!("CARGO"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args([
                "metadata",
                "--format-version=1",
                "--locked",
                "--offline",
                "--filter-platform",
                host,
            ]),
    );
    let mut metadata: Value = serde_json::from_str(&metadata).unwrap();
    let Value::Array(packages) = metadata["packages"].take() else {
        panic!("no packages")
    };
    packages
}

fn stdout(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn text(package: &Value, key: &str) -> String {
    package[key].as_str().unwrap_or_default().to_owned()
}

/// A list of strings in `deny.toml`.
fn strings(key: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deny.toml");
    config::Config::builder()
        .add_source(config::File::from(file))
        .build()
        .unwrap()
        .get(key)
        .unwrap()
}

/// An SPDX expression: `AND` binds closer than `OR`, and `/` is an old way to write `OR`.
struct Expression {
    tokens: Vec<String>,
    next: usize,
}

impl Expression {
    fn new(text: &str) -> Self {
        let spaced = text.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        Self {
            tokens: spaced.split_whitespace().map(str::to_owned).collect(),
            next: 0,
        }
    }

    fn holds(mut self, allowed: &[String]) -> bool {
        let holds = self.any(allowed);
        holds && self.next == self.tokens.len()
    }

    fn any(&mut self, allowed: &[String]) -> bool {
        let mut holds = self.all(allowed);
        while self.take("OR") {
            holds |= self.all(allowed);
        }
        holds
    }

    fn all(&mut self, allowed: &[String]) -> bool {
        let mut holds = self.one(allowed);
        while self.take("AND") {
            holds &= self.one(allowed);
        }
        holds
    }

    fn one(&mut self, allowed: &[String]) -> bool {
        if self.take("(") {
            let holds = self.any(allowed);
            return self.take(")") && holds;
        }
        let mut licence = self.word();
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.word());
        }
        allowed.contains(&licence)
    }

    fn take(&mut self, token: &str) -> bool {
        let is_next = self.tokens.get(self.next).is_some_and(|it| it == token);
        self.next += usize::from(is_next);
        is_next
    }

    fn word(&mut self) -> String {
        let word = self.tokens.get(self.next).cloned().unwrap_or_default();
        self.next += 1;
        word
    }
}
