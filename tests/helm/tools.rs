//! The programs of the tests, and what they need: where they are, how Helm renders, how YAML is read.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// The name of the release and of its namespace in all tests.
pub const RELEASE: &str = "mcp-broker";
pub const NAMESPACE: &str = "mcp-broker";

/// The programs that `scripts/test` installs, by their paths from the root of the repository.
#[derive(Clone, Copy)]
pub struct Tools {
    /// The folder of the programs of the Python environment.
    python: &'static str,
}

impl Tools {
    pub fn find() -> Self {
        let tools = Self {
            python: "target/clients/chart/bin",
        };
        let wanted = [
            root().join(tools.python).join("helm"),
            root().join(tools.python).join("kubectl"),
            here().join("node_modules/.installed"),
        ];
        let missing = wanted.iter().find(|path| !path.exists());
        assert_eq!(missing, None, "scripts/test installs it");
        tools
    }

    /// A program of the Python environment, with folders of its own for what it keeps.
    pub fn python_program(self, name: &str) -> Command {
        let mut command = Command::new(root().join(self.python).join(name));
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm-home");
        command
            .env("HOME", &home)
            .env("HELM_CACHE_HOME", home.join("cache"))
            .env("HELM_CONFIG_HOME", home.join("config"))
            .env("HELM_DATA_HOME", home.join("data"))
            .env("KUBECONFIG", "/dev/null")
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .current_dir(root())
            .stdin(Stdio::null());
        command
    }

    /// What `helm template` prints with these arguments.
    ///
    /// # Errors
    ///
    /// The message of Helm, if it refuses the values.
    pub fn try_render(self, arguments: &[&str]) -> Result<String, String> {
        let output = self
            .python_program("helm")
            .args(["template", RELEASE, "helm/mcp-broker", "--namespace", NAMESPACE])
            .args(["--kube-version", "1.35.0"])
            .args(arguments)
            .output()
            .unwrap();
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).unwrap())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// What `helm template` prints with these arguments, which are accepted.
    pub fn render(self, arguments: &[&str]) -> String {
        self.try_render(arguments)
            .unwrap_or_else(|error| panic!("helm template {arguments:?}: {error}"))
    }

    /// The documents of rendered manifests.
    pub fn documents(self, yaml: &str) -> Vec<Value> {
        let mut command = self.python_program("python");
        command.args(["tests/helm/manifests.py", "json", "-"]);
        let said = text_of(&run_with_input(command, yaml));
        let files: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}\n{yaml}"));
        files["-"].as_array().unwrap().clone()
    }
}

/// Runs a program with a text on its standard input.
pub fn run_with_input(mut command: Command, input: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().ok();
    output
}

/// All output of a program.
pub fn text_of(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}

/// The document of this kind and name.
pub fn find<'a>(documents: &'a [Value], kind: &str, name: &str) -> &'a Value {
    documents
        .iter()
        .find(|document| document["kind"] == kind && document["metadata"]["name"] == name)
        .unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of these tests.
pub fn here() -> PathBuf {
    root().join("tests/helm")
}

/// An empty folder for the files of a test.
pub fn scratch_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("helm").join(name);
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    folder
}
