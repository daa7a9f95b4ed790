//! A parser for command lines with a few flags.

use std::{fmt::Display, process::exit, str::FromStr};

/// The arguments that have not been consumed yet.
pub struct Args {
    left: Vec<String>,
    usage: &'static str,
}

impl Args {
    /// The arguments of this process. Prints the usage and exits on `--help`.
    pub fn new(usage: &'static str) -> Self {
        let left: Vec<_> = std::env::args().skip(1).collect();
        let args = Self { left, usage };
        if args.left.iter().any(|it| it == "--help" || it == "-h") {
            println!("{usage}");
            exit(0);
        }
        args
    }

    /// Consumes a switch; true if it was given.
    pub fn has(&mut self, flag: &str) -> bool {
        let before = self.left.len();
        self.left.retain(|it| it != flag);
        self.left.len() < before
    }

    /// Consumes a flag with a value: `--flag value` or `--flag=value`.
    pub fn value<T: FromStr<Err: Display>>(&mut self, flag: &str) -> Option<T> {
        let at = self.left.iter().position(|it| {
            it.strip_prefix(flag)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })?;
        let given = self.left.remove(at);
        let text = match given.split_once('=') {
            Some((_, text)) => text.to_owned(),
            None if at < self.left.len() => self.left.remove(at),
            None => self.fail(&format!("{flag} wants a value")),
        };
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => self.fail(&format!("{flag}: {error}")),
        }
    }

    /// Fails if an argument is left.
    pub fn finish(self) {
        if let Some(unknown) = self.left.first() {
            self.fail(&format!("unknown: {unknown}"));
        }
    }

    /// Prints an error and the usage, and exits with code 2.
    pub fn fail(&self, why: &str) -> ! {
        eprintln!("{why}\n{}", self.usage);
        exit(2);
    }
}
