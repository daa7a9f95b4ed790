//! Output of commands, and their exit codes.

use std::io::{ErrorKind, Write};

use super::error::CliError;

/// Exit codes of the commands other than `serve`.
pub const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 wrong command line or configuration.";

/// Writes to stdout. A closed pipe is no error. A full disk is: the text may be a key that is not shown again.
///
/// # Errors
/// [`CliError::Failed`] when the text cannot be written.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::Failed(format!("the answer could not be written: {error}")))
        }
        _ => Ok(()),
    }
}
