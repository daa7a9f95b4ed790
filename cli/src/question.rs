//! Questions that a user answers before something is changed.

use std::io::{BufRead, IsTerminal, Write};

use super::error::CliError;

/// Asks on the terminal. Without a terminal the user has to pass `--yes`.
///
/// # Errors
/// [`CliError::Usage`] without a terminal, [`CliError::Failed`] when the answer is not yes.
pub fn confirm(question: &str) -> Result<(), CliError> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(CliError::Usage(format!(
            "{question} There is no terminal to ask on; --yes skips the question"
        )));
    }
    if answers_yes(question, &mut stdin.lock(), &mut std::io::stderr()) {
        Ok(())
    } else {
        Err(CliError::Failed(
            "nothing was changed: the answer was not yes".to_owned(),
        ))
    }
}

fn answers_yes(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> bool {
    let mut answer = String::new();
    let asked = write!(output, "{question} [y/N] ").and_then(|()| output.flush());
    let read = asked.and_then(|()| input.read_line(&mut answer));
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_y_and_yes_confirm() {
        for (answer, yes) in [
            ("y\n", true),
            ("YES\r\n", true),
            ("\n", false),
            ("", false),
            ("yeah\n", false),
        ] {
            let mut asked = Vec::new();
            assert_eq!(
                answers_yes("Delete it?", &mut answer.as_bytes(), &mut asked),
                yes,
                "{answer:?}"
            );
            assert_eq!(asked, b"Delete it? [y/N] ");
        }
    }
}
