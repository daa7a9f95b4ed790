//! Starts, ends and tidies up the brokers of a user.

use std::{
    fs,
    time::{Duration, Instant},
};

use super::{options::DevOptions, report::Report};
use crate::error::CliError;
use common::user_broker::{
    self, AttachError, Instance, LocalError, LocalPaths, StartPolicy, Stopped, attach, hello::Hello, stop,
};

/// Longest time of a start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for a broker that may run already.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);

impl From<LocalError> for CliError {
    fn from(error: LocalError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<AttachError> for CliError {
    fn from(error: AttachError) -> Self {
        match error {
            // Repeating the command would fail again.
            AttachError::Files(_)
            | AttachError::StartFailed { .. }
            | AttachError::KeyMissing
            | AttachError::KeyRefused(_) => Self::Usage(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// The files of an instance whose broker is to be started.
///
/// # Errors
/// The folder cannot be used.
pub fn paths_of(instance: &Instance) -> Result<LocalPaths, CliError> {
    Ok(LocalPaths::of(instance)?)
}

/// Starts the broker of an instance unless it runs. Says whether it ran before.
///
/// # Errors
/// It does not serve in time, and why.
pub fn start(paths: &LocalPaths) -> Result<bool, CliError> {
    let hello = Hello::of_this_process("start");
    let runs = match attach(paths, &hello, StartPolicy::NoStart, Instant::now() + LOOK_TIMEOUT) {
        Ok(_) => true,
        Err(AttachError::NotRunning { .. }) => false,
        Err(error @ (AttachError::NewerRuns { .. } | AttachError::KeyMissing | AttachError::KeyRefused(_))) => {
            return Err(error.into());
        }
        // The broker starts or ends at the moment, or is older: the second attempt waits for it or replaces it.
        Err(_) => false,
    };
    attach(paths, &hello, StartPolicy::Start, Instant::now() + START_TIMEOUT)?;
    Ok(runs)
}

/// Starts a broker for development with these options, unless it runs with the same ones.
///
/// # Errors
/// Those of [`start`]; it runs with other options.
pub fn start_dev(paths: &LocalPaths, options: &DevOptions) -> Result<bool, CliError> {
    if user_broker::is_alive(paths).unwrap_or(false) {
        if DevOptions::read(paths) != *options {
            return Err(CliError::Failed(format!(
                "{} runs with other options; {} stops it",
                paths.instance,
                paths.instance.command_line("stop")
            )));
        }
    } else {
        options.write(paths)?;
    }
    start(paths)
}

/// Ends the broker of an instance.
///
/// # Errors
/// It lives after `grace` and SIGKILL, or its files cannot be used.
pub fn end(instance: &Instance, grace: Duration) -> Result<Stopped, CliError> {
    Ok(stop(&LocalPaths::look_up(instance)?, grace)?)
}

/// One sentence about what [`end`] did.
pub fn ended_text(instance: &Instance, stopped: Stopped) -> String {
    match stopped {
        Stopped::WasDead => format!("{instance} does not run\n"),
        Stopped::Asked => format!("{instance} has ended\n"),
        Stopped::Terminated => format!("{instance} did not answer and stopped at SIGTERM\n"),
        Stopped::Killed => format!("{instance} did not stop in time and was killed\n"),
    }
}

/// The brokers for development that have a runtime folder, by name.
///
/// # Errors
/// The folder cannot be read.
pub fn dev_instances() -> Result<Vec<Instance>, CliError> {
    let folder = LocalPaths::dev_folder()?;
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(CliError::Usage(format!("{} cannot be read: {error}", folder.display()))),
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut instances: Vec<Instance> = names.filter_map(|name| Instance::dev(&name).ok()).collect();
    instances.sort_by(|one, other| one.as_str().cmp(other.as_str()));
    Ok(instances)
}

/// Removes the runtime folders of brokers for development that do not live, and returns the names of what was removed,
/// or with `is_dry` of what would be.
///
/// # Errors
/// A folder or a file cannot be removed.
pub fn clean_up(is_dry: bool) -> Result<Vec<String>, CliError> {
    let mut removed = Vec::new();
    for instance in dev_instances()? {
        let paths = LocalPaths::look_up(&instance)?;
        let failed = |error: std::io::Error| CliError::Failed(format!("{}: {error}", paths.folder.display()));
        let files = if !is_dry {
            user_broker::remove_folder(&paths).map_err(failed)?
        } else if user_broker::is_alive(&paths).map_err(failed)? {
            Vec::new()
        } else {
            let mut files = user_broker::files(&paths);
            files.push(paths.folder.clone());
            files
        };
        removed.extend(files.iter().map(|file| file.display().to_string()));
    }
    Ok(removed)
}

/// The reports of several instances.
///
/// # Errors
/// A folder cannot be used.
pub fn reports(instances: &[Instance]) -> Result<Vec<Report>, CliError> {
    let report = |instance: &Instance| {
        let paths = LocalPaths::look_up(instance)?;
        // A start would be refused there: that the broker does not run is not all there is to say.
        user_broker::vet_above(&paths.folder)?;
        Ok(Report::of(&paths))
    };
    instances.iter().map(report).collect()
}
