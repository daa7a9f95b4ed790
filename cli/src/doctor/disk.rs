//! The data folder of `storage = disk`.

use std::time::Duration;

use actors::storage::disk::{DiskSettings, DiskSpace, LAYOUT_VERSION};

use super::findings::Finding;
use common::config::Config;
use storage::disk::{FolderReport, inspect};

/// The time of a sync from which on senders notice it.
const SLOW_SYNC: Duration = Duration::from_millis(50);

/// Checks the folder that a start would use.
pub fn check(config: &Config) -> Vec<Finding> {
    let folder = config.data_dir.display().to_string();
    let report = inspect(&config.data_dir);
    let mut findings = vec![state(&folder, &report)];
    findings.extend(report.layout.as_ref().map(|layout| layout_finding(&folder, layout)));
    findings.extend(report.space.map(|space| space_finding(&folder, space)));
    findings.push(match report.sync {
        Ok(time) if time >= SLOW_SYNC => {
            let ms = time.as_millis();
            Finding::warning(format!(
                "a sync takes {ms} ms, and every accepted message waits for one"
            ))
            .cure("put data_dir on a local disk: mcp-broker serve --storage disk --data-dir FOLDER")
        }
        Ok(time) => Finding::ok(format!("a sync takes {:.1} ms", time.as_secs_f64() * 1000.0)),
        Err(error) => Finding::error(format!("data_dir {folder} cannot be written: {error}"))
            .cure("give it to the user of the broker (chown), or name another: --data-dir FOLDER"),
    });
    findings
}

fn state(folder: &str, report: &FolderReport) -> Finding {
    match &report.refusal {
        Some(why) => Finding::error(format!("data_dir {folder} is refused: {why}"))
            .cure(format!("run chmod 700 {folder}, or name a folder inside it")),
        None if report.is_locked => Finding::ok(format!("data_dir {folder} belongs to a running broker")),
        None if report.exists => Finding::ok(format!("data_dir {folder} exists, and no process uses it")),
        None => Finding::ok(format!("data_dir {folder} does not exist: the first start creates it")),
    }
}

fn layout_finding(folder: &str, layout: &Result<u32, String>) -> Finding {
    match layout {
        Ok(version) if *version > LAYOUT_VERSION => {
            let found = format!(
                "the data in {folder} have version {version}, and this build reads versions up to {LAYOUT_VERSION}"
            );
            Finding::error(found).cure("run the newer mcp-broker that wrote them, or name another --data-dir")
        }
        Ok(version) => Finding::ok(format!("the data have version {version}, which this build reads")),
        Err(error) => Finding::error(format!("the data in {folder} cannot be read: {error}"))
            .cure("restore a backup of the folder, or name another --data-dir"),
    }
}

fn space_finding(folder: &str, space: DiskSpace) -> Finding {
    let reserve = DiskSettings::default().reserve_bytes.min(space.total / 2);
    let free = megabytes(space.free);
    let cure = "free space there, or name another disk: --data-dir FOLDER";
    if space.free < reserve {
        let needed = megabytes(reserve);
        let found = format!("{free} MB are free for {folder}: below {needed} MB the broker accepts no message");
        return Finding::error(found).cure(cure);
    }
    if space.free < reserve.saturating_mul(2) {
        return Finding::warning(format!("only {free} MB are free for {folder}")).cure(cure);
    }
    Finding::ok(format!("{free} MB are free"))
}

fn megabytes(bytes: u64) -> u64 {
    bytes >> 20
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::findings::Severity;

    #[test]
    fn the_free_space_is_compared_with_the_reserve() {
        let found = |free: u64, total: u64| {
            let space = DiskSpace {
                free: free << 20,
                total: total << 20,
            };
            space_finding("data", space).severity
        };
        assert_eq!(found(100, 10_000), Severity::Error);
        assert_eq!(found(300, 10_000), Severity::Warning);
        assert_eq!(found(600, 10_000), Severity::Ok);
        // On a small disk the reserve is half of it.
        assert_eq!(found(90, 100), Severity::Warning);
        assert_eq!(found(40, 100), Severity::Error);
    }
}
