//! The payload of a message to send: on the command line, in a file, or on stdin.

use std::fs::File;
use std::io::Read;

use serde_json::value::{RawValue, to_raw_value};

use crate::error::CliError;
use crate::table::escaped;

/// The most bytes that are read. The broker has a limit of its own, which may be lower.
const BYTES_MAX: u64 = 256 << 20;

/// Where a payload comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PayloadSource {
    Text(String),
    File(String),
    Stdin,
}

/// Reads the argument: JSON, `@FILE`, or `-` for stdin.
impl From<&str> for PayloadSource {
    fn from(text: &str) -> Self {
        match (text, text.strip_prefix('@')) {
            ("-", _) => Self::Stdin,
            (_, Some(path)) => Self::File(path.to_owned()),
            (text, None) => Self::Text(text.to_owned()),
        }
    }
}

impl PayloadSource {
    /// Reads the argument `FILE`, or `-` for stdin.
    pub fn of_file(file: &str) -> Self {
        match file {
            "-" => Self::Stdin,
            file => Self::File(file.to_owned()),
        }
    }

    /// The payload as the JSON text that was given: numbers keep their digits.
    ///
    /// # Errors
    /// [`CliError::Failed`] when it cannot be read, [`CliError::Usage`] when it is no JSON object.
    pub fn read(&self) -> Result<Box<RawValue>, CliError> {
        self.read_object("allowed: an object such as '{\"text\": \"hello\"}', @FILE, or - for stdin")
    }

    /// Reads a JSON object as [`Self::read`] does. `advice` says what is allowed.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn read_object(&self, advice: &str) -> Result<Box<RawValue>, CliError> {
        self.read_value("object", '{', advice)
    }

    fn read_value(&self, kind: &str, start: char, advice: &str) -> Result<Box<RawValue>, CliError> {
        let (text, from) = self.load()?;
        let value: Result<Box<RawValue>, _> = serde_json::from_str(text.trim());
        let refused = |reason: String| CliError::Usage(format!("{from} is not a JSON {kind}: {reason}; {advice}"));
        let value = value.map_err(|error| refused(format!("line {}, column {}", error.line(), error.column())))?;
        if value.get().starts_with(start) {
            Ok(value)
        } else {
            Err(refused("it is another value".to_owned()))
        }
    }

    /// Reads a JSON list as [`Self::read`] reads an object. `advice` says what is allowed.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn read_list(&self, advice: &str) -> Result<Box<RawValue>, CliError> {
        self.read_value("list", '[', advice)
    }

    /// The payload as JSON: an object as it was given, anything else as a string. The end of the last line of a file is no
    /// part of the text.
    ///
    /// # Errors
    /// [`CliError::Failed`] when it cannot be read, [`CliError::Usage`] when it is empty.
    pub fn read_text(&self) -> Result<Box<RawValue>, CliError> {
        let (text, from) = self.load()?;
        if let Ok(object) = serde_json::from_str::<Box<RawValue>>(text.trim())
            && object.get().starts_with('{')
        {
            return Ok(object);
        }
        let text = match self {
            Self::Text(_) => text.as_str(),
            Self::File(_) | Self::Stdin => text.trim_end_matches(['\r', '\n']),
        };
        if text.is_empty() {
            return Err(CliError::Usage(format!("{from} is empty")));
        }
        to_raw_value(text).map_err(|error| CliError::Failed(error.to_string()))
    }

    /// What was given, and where, in words.
    fn load(&self) -> Result<(String, String), CliError> {
        Ok(match self {
            Self::Text(text) => (text.clone(), "the payload".to_owned()),
            Self::File(path) => {
                let shown = escaped(path);
                let file = File::open(path).map_err(|error| unreadable(&shown, &error))?;
                (read_bounded(file, &shown, BYTES_MAX)?, shown)
            }
            Self::Stdin => (read_bounded(std::io::stdin(), "stdin", BYTES_MAX)?, "stdin".to_owned()),
        })
    }
}

fn unreadable(from: &str, error: &std::io::Error) -> CliError {
    CliError::Failed(format!("{from} cannot be read: {error}"))
}

/// Reads a text of at most so many bytes, a multiple of 1 MB.
///
/// # Errors
/// [`CliError::Failed`]: it cannot be read, or is longer.
pub fn read_bounded(input: impl Read, from: &str, bytes_max: u64) -> Result<String, CliError> {
    let mut text = String::new();
    let read = input.take(bytes_max + 1).read_to_string(&mut text);
    let read = read.map_err(|error| unreadable(from, &error))?;
    if read as u64 > bytes_max {
        return Err(CliError::Failed(format!("{from} has more than {} MB", bytes_max >> 20)));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_a_json_object() {
        let read = |text: &str| PayloadSource::from(text).read();
        let big = r#"{"n": 123456789012345678901234567890.5, "a": 1, "a": 2}"#;
        assert_eq!(read(big).unwrap().get(), big, "the digits stay");
        for wrong in ["", "hello", "[1]", "1", "{\"a\": }", "{} {}"] {
            let Err(CliError::Usage(line)) = read(wrong) else {
                panic!("{wrong}")
            };
            assert!(line.starts_with("the payload is not a JSON object"), "{line}");
        }
        let text = |text: &str| PayloadSource::from(text).read_text().map(|raw| raw.get().to_owned());
        assert_eq!(text(big).unwrap(), big, "an object stays one");
        for (given, expected) in [
            ("hello", r#""hello""#),
            ("say \"hi\"\n", r#""say \"hi\"\n""#),
            ("[1]", r#""[1]""#),
            ("7", r#""7""#),
            ("{ not JSON", r#""{ not JSON""#),
        ] {
            assert_eq!(text(given).unwrap(), expected);
        }
        assert!(matches!(text(""), Err(CliError::Usage(line)) if line == "the payload is empty"));
        assert_eq!(PayloadSource::from("-"), PayloadSource::Stdin);
        let Err(CliError::Failed(line)) = read("@/nowhere/\u{1b}x") else {
            panic!()
        };
        assert!(line.starts_with("/nowhere/\\u{1b}x cannot be read"), "{line}");
    }
}
