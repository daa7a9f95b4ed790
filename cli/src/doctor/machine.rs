//! The machine: the limit of open files, and its clock.

use actors::clock::{now, rfc3339_text};
use rustix::process::{Resource, getrlimit};

use super::{findings::Finding, setup::Setup};
use common::user_broker::{Living, living_brokers};

/// A time at which this program existed already: 2026-01-01T00:00:00Z, in ms.
const BUILT_AFTER_MS: u64 = 1_767_225_600_000;
/// A time by which this program is out of date: 2056-01-01T00:00:00Z, in ms.
const USED_BEFORE_MS: u64 = 2_713_910_400_000;

/// Compares the hard limit with what the configured connections need. The broker raises the soft limit by itself.
pub fn check_files(setup: &Setup) -> Vec<Finding> {
    let Some(config) = setup.config() else {
        return vec![Finding::note("not checked: the configuration is refused")];
    };
    let (wanted, limit) = (config.files_wanted(), getrlimit(Resource::Nofile).maximum);
    let connections = config.connections_max;
    vec![match limit {
        Some(limit) if limit < wanted => Finding::warning(format!(
            "the hard limit is {limit}, and connections_max = {connections} needs {wanted}"
        ))
        .cure(format!(
            "raise it (ulimit -Hn {wanted}; LimitNOFILE={wanted} in a systemd unit; --ulimit nofile={wanted} for a \
             container), or lower --connections-max"
        )),
        Some(limit) => Finding::ok(format!("the hard limit is {limit}, and {wanted} are needed")),
        None => Finding::ok(format!("the number is not limited, and {wanted} are needed")),
    }]
}

/// Names the brokers of this user that live. Two of one instance are two worlds of agents.
pub fn check_brokers(_: &Setup) -> Vec<Finding> {
    let living = living_brokers();
    if living.is_empty() {
        return vec![Finding::ok("none of this user runs in the background")];
    }
    let findings = living.iter().map(|(paths, state)| {
        let (name, socket) = (&paths.instance, paths.socket.display());
        let twins = living.iter().filter(|(other, _)| other.instance == paths.instance);
        if twins.count() == 1 {
            return Finding::ok(format!("{name} runs, {socket}"));
        }
        let found =
            format!("{name} runs more than once, here with {socket}: agents of one do not see those of the other");
        let cure = match state {
            Living::Yes(info) => format!("end one of them, such as this one: kill {}", info.pid),
            Living::Changing | Living::No => "end one of them".to_owned(),
        };
        Finding::warning(found).cure(cure)
    });
    findings.collect()
}

/// Checks that the clock shows a possible time. The clock of a Redis server is compared by the check of the storage.
pub fn check_clock(_: &Setup) -> Vec<Finding> {
    let shown = now().unix_ms;
    let text = rfc3339_text(shown);
    vec![if (BUILT_AFTER_MS..USED_BEFORE_MS).contains(&shown) {
        Finding::ok(format!("it shows {text}"))
    } else {
        Finding::error(format!(
            "it shows {text}, which cannot be: certificates and tokens will be refused"
        ))
        .cure("set the clock: timedatectl set-ntp true")
    }]
}
