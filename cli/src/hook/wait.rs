//! Waits for messages in the background, and tells Claude Code by the exit code that some wait.
//!
//! The waiter lives as long as its client at most, one for each conversation. It follows the broker through restarts and
//! starts none.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use rustix::process::getppid;

use super::{
    answer,
    files::file_of,
    mailbox::{Mailbox, TIMEOUT},
};
use actors::backoff::{Backoff, random};
use common::user_broker::{FileLock, Instance, LocalPaths, RequestError, mail::MAIL_WAIT_MAX};

/// The exit code when messages wait: Claude Code tells the agent what stderr says.
const MAIL_WAITS: u8 = 2;
/// How long a waiter looks for a first broker: the front of the same client may just start it.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// The time between two attempts.
const BACKOFF: Backoff = Backoff {
    min: Duration::from_millis(100),
    max: Duration::from_secs(10),
};
/// What the answer to a query may take beyond the time that it waits.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// JSON-RPC: the broker does not know the method, or the parameters.
const UNKNOWN: [i64; 2] = [-32601, -32602];

/// Waits, and returns the exit code.
pub fn run(instance: &Instance, conversation: &str, parent_check: Duration) -> ExitCode {
    let Ok(paths) = LocalPaths::of(instance) else {
        return ExitCode::SUCCESS;
    };
    let file = file_of(&paths, conversation, "lock");
    let Ok(_lock) = FileLock::try_take(&file) else {
        return ExitCode::SUCCESS;
    };
    end_with_parent(file.clone(), parent_check);
    let line = wait(&paths, conversation);
    let _ = fs::remove_file(&file);
    let Some(line) = line else { return ExitCode::SUCCESS };
    match writeln!(std::io::stderr(), "{line}") {
        Ok(()) => ExitCode::from(MAIL_WAITS),
        Err(_) => ExitCode::SUCCESS,
    }
}

/// Ends the process when its parent has ended. The parent is looked at now and then, because not every system tells.
fn end_with_parent(lock: PathBuf, check: Duration) {
    let parent = getppid();
    thread::spawn(move || {
        while getppid() == parent {
            thread::sleep(check);
        }
        let _ = fs::remove_file(&lock);
        std::process::exit(0);
    });
}

/// Waits until messages wait and returns the line about them. `None` when there is nothing to wait for.
fn wait(paths: &LocalPaths, conversation: &str) -> Option<String> {
    let begin = Instant::now();
    let mut was_served = false;
    let mut attempts = 0;
    loop {
        let attempt = Instant::now();
        match Mailbox::open(paths, conversation, attempt + TIMEOUT) {
            Some(mailbox) => {
                was_served = true;
                match follow(mailbox) {
                    Followed::Mail(line) => return Some(line),
                    Followed::Ended => return None,
                    Followed::Lost => {}
                }
            }
            None if !was_served && begin.elapsed() > START_TIME_MAX => return None,
            None => {}
        }
        attempts = rest(attempts, attempt);
    }
}

/// What became of a connection.
enum Followed {
    /// Messages wait: the line about them.
    Mail(String),
    /// The broker tells this waiter nothing.
    Ended,
    /// The connection is lost.
    Lost,
}

fn follow(mut mailbox: Mailbox) -> Followed {
    let mut attempts = 0;
    loop {
        let attempt = Instant::now();
        let deadline = attempt + Duration::from_secs(MAIL_WAIT_MAX) + ANSWER_TIME_MAX;
        match mailbox.query(MAIL_WAIT_MAX, deadline) {
            Ok(mail) if mail.is_replaced => return Followed::Ended,
            Ok(mail) => {
                if let Some(line) = answer::waiting(&mail.summary) {
                    return Followed::Mail(line);
                }
            }
            Err(RequestError::Refused { code, .. }) if UNKNOWN.contains(&code) => return Followed::Ended,
            Err(_) => return Followed::Lost,
        }
        attempts = rest(attempts, attempt);
    }
}

/// Pauses after an attempt, and returns how many there were since one that has lasted.
fn rest(attempts: u32, attempt: Instant) -> u32 {
    let attempts = if attempt.elapsed() > BACKOFF.max {
        1
    } else {
        attempts + 1
    };
    thread::sleep(BACKOFF.wait(attempts, random()));
    attempts
}
