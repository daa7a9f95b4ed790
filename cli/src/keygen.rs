//! `keygen`: makes a new admin key and prints it. It stores nothing and calls no broker.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;

use clap::Args;

use super::call::{Call, Run, done};
use super::error::CliError;
use super::output::{EXIT_CODES, print};

const ABOUT: &str = "\
Make a new admin key and print it. Only the key goes to stdout.

The command calls no broker and stores nothing. Give the key to the broker as MCP_BROKER_ADMIN_KEY, or in
the file that its setting admin_key_file names, and to its administrators.";

const HINT: &str = "\
give it to the broker as MCP_BROKER_ADMIN_KEY, or in the file that admin_key_file names; it is not shown again";

/// Make a new admin key and print it.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES)]
pub struct Keygen {}

impl Run for Keygen {
    fn run(self, _: &Call<'_>) -> Result<ExitCode, CliError> {
        let key =
            admin_key().map_err(|error| CliError::Failed(format!("the system provides no random bytes: {error}")))?;
        print(&format!("{key}\n"))?;
        let mut stderr = std::io::stderr();
        if stderr.is_terminal() {
            let _ = writeln!(stderr, "{HINT}");
        }
        done(Ok(()))
    }
}

const KEY_ID_LEN: usize = 8;
const SECRET_BYTES: usize = 24;

/// `admin_{key_id}_{secret}`: the form of every key, with the reserved project id `admin`.
fn admin_key() -> Result<String, getrandom::Error> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret)?;
    let mut key = format!("admin_{}_", key_id()?);
    for byte in secret {
        let _ = write!(key, "{byte:02x}");
    }
    Ok(key)
}

const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

fn key_id() -> Result<String, getrandom::Error> {
    let mut id = String::with_capacity(KEY_ID_LEN);
    let mut byte = [0];
    while id.len() < KEY_ID_LEN {
        getrandom::fill(&mut byte)?;
        id.extend(letter(byte[0]));
    }
    Ok(id)
}

/// `None` for the bytes beyond the last complete round of letters, which would make the first letters more likely.
fn letter(byte: u8) -> Option<char> {
    let rounds = usize::from(u8::MAX) / LETTERS.len();
    let byte = usize::from(byte);
    (byte < rounds * LETTERS.len()).then(|| char::from(LETTERS[byte % LETTERS.len()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_letter_is_as_likely_as_any_other() {
        let letters: Vec<char> = (0..=u8::MAX).filter_map(letter).collect();
        for wanted in LETTERS {
            assert_eq!(
                letters.iter().filter(|&&letter| letter == char::from(*wanted)).count(),
                7
            );
        }
    }
}
