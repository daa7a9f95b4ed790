//! Command lines of a few flags.

use std::{fmt::Display, process::exit, str::FromStr};

/// What the command line says, taken apart flag by flag.
pub struct Args {
    left: Vec<String>,
    usage: &'static str,
}

impl Args {
    /// Those of this process.
    pub fn new(usage: &'static str) -> Self {
        let left: Vec<_> = std::env::args().skip(1).collect();
        let args = Self { left, usage };
        if args.left.iter().any(|it| it == "--help" || it == "-h") {
            println!("{usage}");
            exit(0);
        }
        args
    }

    /// Whether a flag is there.
    pub fn has(&mut self, flag: &str) -> bool {
        let before = self.left.len();
        self.left.retain(|it| it != flag);
        self.left.len() < before
    }

    /// The value of a flag: `--flag value` or `--flag=value`.
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

    /// Nothing must be left over.
    pub fn finish(self) {
        if let Some(unknown) = self.left.first() {
            self.fail(&format!("unknown: {unknown}"));
        }
    }

    /// Ends the process with an explanation.
    pub fn fail(&self, why: &str) -> ! {
        eprintln!("{why}\n{}", self.usage);
        exit(2);
    }
}
