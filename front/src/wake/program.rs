//! Runs a program of another vendor with a time limit, without a shell, and without the secrets of this process.

use std::{
    io::{ErrorKind, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{inbox::TOKEN_ENV, missed::Missed};
use common::config::API_KEY_ENV;

/// How often a running program is looked at.
const CHECK: Duration = Duration::from_millis(10);
/// Bytes of an output that are kept.
const OUTPUT_LEN_MAX: usize = 256 * 1024;

/// Runs a program to its end. A program that is not done at the deadline is killed, with its children.
///
/// # Errors
/// It cannot be started, fails, or takes longer.
pub fn run(command: Command, input: &str, deadline: Instant) -> Result<(), Missed> {
    finish(command, input, deadline, Stdio::null(), |_| Ok(()))
}

/// As [`run`], and returns what the program has printed.
///
/// # Errors
/// Those of [`run`].
pub fn output_of(command: Command, deadline: Instant) -> Result<String, Missed> {
    let (mut reader, writer) = UnixStream::pair().map_err(Missed::failed)?;
    let mut output = Vec::new();
    finish(command, "", deadline, Stdio::from(OwnedFd::from(writer)), |program| {
        let mut part = [0; 8192];
        while output.len() < OUTPUT_LEN_MAX {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Missed::failed(format!("{program} takes too long")));
            }
            reader.set_read_timeout(Some(left)).map_err(Missed::failed)?;
            match reader.read(&mut part) {
                Ok(0) => break,
                Ok(len) => output.extend_from_slice(part.get(..len).unwrap_or_default()),
                Err(error) if [ErrorKind::Interrupted, ErrorKind::WouldBlock].contains(&error.kind()) => {}
                Err(error) => return Err(Missed::failed(error)),
            }
        }
        Ok(())
    })?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

fn finish(
    mut command: Command,
    input: &str,
    deadline: Instant,
    stdout: Stdio,
    read: impl FnOnce(&str) -> Result<(), Missed>,
) -> Result<(), Missed> {
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .env_remove(TOKEN_ENV)
        .env_remove(API_KEY_ENV)
        .stdin(if input.is_empty() {
            Stdio::null()
        } else {
            Stdio::piped()
        })
        .stdout(stdout)
        .stderr(Stdio::null())
        .process_group(0);
    let spawned = command.spawn();
    // The descriptors of the output that the command holds would keep it open.
    drop(command);
    let mut child = spawned.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Missed::absent(format!("the program {program} is not found")),
        _ => Missed::failed(format!("the program {program} cannot be started: {error}")),
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        // One line fits into the pipe. A program that does not read it fails by itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    let done = read(&program).and_then(|()| wait(&mut child, &program, deadline));
    let Ok(status) = done else {
        kill(&mut child);
        return done.map(drop);
    };
    if status.success() {
        return Ok(());
    }
    Err(Missed::refused(format!("{program} has failed: {status}")))
}

fn wait(child: &mut Child, program: &str, deadline: Instant) -> Result<ExitStatus, Missed> {
    loop {
        if let Some(status) = child.try_wait().map_err(Missed::failed)? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            return Err(Missed::failed(format!("{program} takes too long")));
        }
        thread::sleep(CHECK);
    }
}

/// Kills a program with the processes that it has started, and collects it.
fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::mcp::waking::WakeResult;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(200)
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[test]
    fn the_end_of_a_program_is_the_result() {
        assert_eq!(run(shell("read line; test \"$line\" = hi"), "hi\n", late()), Ok(()));
        assert_eq!(
            run(shell("exit 3"), "", late()).unwrap_err().result,
            WakeResult::Refused
        );
        let missing = run(Command::new("/no/such/program"), "", late());
        assert_eq!(missing.unwrap_err().result, WakeResult::Absent);
        assert_eq!(output_of(shell("echo a; echo b"), late()).unwrap(), "a\nb\n");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let started = Instant::now();
        for hanging in [
            run(shell("sleep 60 & sleep 60"), "", soon()),
            output_of(shell("sleep 60 & sleep 60"), soon()).map(drop),
            output_of(shell("yes"), soon()).map(drop),
        ] {
            assert_eq!(hanging.unwrap_err().result, WakeResult::Failed);
        }
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_gets_no_secret() {
        let mut command = shell("test -z \"$CLAUDE_CODE_MESSAGING_TOKEN$MCP_BROKER_API_KEY\"");
        command.env(TOKEN_ENV, "secret").env(API_KEY_ENV, "secret");
        assert_eq!(run(command, "", late()), Ok(()));
    }
}
