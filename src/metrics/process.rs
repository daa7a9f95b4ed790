//! What the process uses, as the system says. Where the system does not say it, the figures are 0 and are left out.

use std::fs;

use rest::stats::ProcessStats;

/// Figures of the process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessFigures {
    pub stats: ProcessStats,
    /// The largest resident memory so far.
    pub peak_bytes: u64,
    /// Resident memory without files.
    pub anonymous_bytes: u64,
    /// The limit of open files; 0 for none.
    pub files_max: u64,
}

const KIB: u64 = 1024;

impl ProcessFigures {
    /// Asks the system.
    pub fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|rest| rest.split_whitespace().next());
            number.and_then(|number| number.parse::<u64>().ok()).unwrap_or(0)
        };
        // The folder has an entry for its own reading.
        let open_files = fs::read_dir("/proc/self/fd").map_or(0, |files| files.count().saturating_sub(1));
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Self {
            stats: ProcessStats {
                cpu_seconds: cpu_seconds(),
                resident_bytes: field("VmRSS:") * KIB,
                open_files: open_files as u64,
                threads: field("Threads:"),
            },
            peak_bytes: field("VmHWM:") * KIB,
            anonymous_bytes: field("RssAnon:") * KIB,
            files_max: limit.current.unwrap_or(0),
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "seconds and nanoseconds of a process fit")]
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
