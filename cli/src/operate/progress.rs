//! Progress of long work, on stderr and only where it is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::client::ClientError;

/// How often in sequence a request is repeated that the broker refuses for a reason that passes.
const REPEATS_MAX: u32 = 8;
/// The wait before a repeat, if the broker names none.
const REPEAT_WAIT: Duration = Duration::from_secs(1);
/// The longest wait before a repeat.
const REPEAT_WAIT_MAX: Duration = Duration::from_secs(60);

/// A bar for work of a known size. Nothing is drawn where stderr is no terminal.
pub fn bar(len: u64) -> ProgressBar {
    let bar = ProgressBar::new(len);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left {msg}") {
        bar.set_style(style);
    }
    bar
}

/// A count for work of an unknown size. Nothing is drawn where stderr is no terminal.
pub fn count() -> ProgressBar {
    let bar = ProgressBar::no_length();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos} {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Asks again while the broker refuses for a reason that passes by itself, as it wants: work that was begun is finished.
///
/// # Errors
/// Another failure, or too many refusals.
pub fn persistently<T>(bar: &ProgressBar, mut ask: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let mut repeats = 0;
    loop {
        match ask() {
            Err(error) if error.is_passing() && repeats < REPEATS_MAX => {
                let wait = error.retry_after.unwrap_or(REPEAT_WAIT).min(REPEAT_WAIT_MAX);
                bar.set_message(format!("(the broker asks to wait {} s)", wait.as_secs().max(1)));
                std::thread::sleep(wait);
                bar.set_message("");
                repeats += 1;
            }
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_passes_is_waited_out_and_another_is_not() {
        let refusal = |code: &str| ClientError {
            line: code.to_owned(),
            code: Some(code.to_owned()),
            retry_after: Some(Duration::ZERO),
        };
        let mut calls = 0;
        let done = persistently(&ProgressBar::hidden(), || {
            calls += 1;
            if calls < 4 {
                Err(refusal("rate_limited"))
            } else {
                Ok(calls)
            }
        });
        assert_eq!(done, Ok(4));
        let mut calls = 0;
        let refused = persistently(&ProgressBar::hidden(), || {
            calls += 1;
            Err::<(), _>(refusal("forbidden"))
        });
        assert_eq!((refused, calls), (Err(refusal("forbidden")), 1));
        let mut calls = 0;
        let refused = persistently(&ProgressBar::hidden(), || {
            calls += 1;
            Err::<(), _>(refusal("unavailable"))
        });
        assert_eq!((refused, calls), (Err(refusal("unavailable")), REPEATS_MAX + 1));
    }
}
