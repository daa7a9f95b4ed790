//! Reads the configuration file of an MCP client. Texts of the file are not quoted in errors: they may hold secrets.

use std::{fs::File, io::Read, os::unix::fs::OpenOptionsExt, path::Path};

use jsonc_parser::ParseOptions;
use rustix::fs::OFlags;
use serde_json::Value;

use super::agent_clients::FileFormat;

/// Bytes of a file that is read. Parsed, a file takes up to 180 times as much memory.
pub const FILE_BYTES_MAX: u64 = 8 << 20;

/// Reads a file. `None` if it does not exist.
///
/// # Errors
/// Why it cannot be used.
pub fn read(path: &Path) -> Result<Option<String>, String> {
    let mut bytes = Vec::new();
    // A FIFO would keep a plain open waiting for a writer.
    let opened = File::options()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path);
    match opened {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("it cannot be read: {error}")),
        Ok(file) if !file.metadata().is_ok_and(|file| file.is_file()) => return Err("it is not a file".to_owned()),
        Ok(file) => {
            let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
            read.map_err(|error| format!("it cannot be read: {error}"))?;
        }
    }
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it has more than {} MiB", FILE_BYTES_MAX >> 20));
    }
    decoded(bytes).map(Some)
}

/// The text of a file: UTF-8, or UTF-16 with a byte order mark, which PowerShell writes.
fn decoded(bytes: Vec<u8>) -> Result<String, String> {
    let order: Option<fn([u8; 2]) -> u16> = match bytes.as_slice() {
        [0xff, 0xfe, ..] => Some(u16::from_le_bytes),
        [0xfe, 0xff, ..] => Some(u16::from_be_bytes),
        _ => None,
    };
    let Some(order) = order else {
        return String::from_utf8(bytes).map_err(|_| "it cannot be read: it is not UTF-8".to_owned());
    };
    let (pairs, []) = bytes.as_chunks::<2>() else {
        return Err("it cannot be read: it ends in the middle of a character of UTF-16".to_owned());
    };
    let units: Vec<u16> = pairs.iter().map(|pair| order(*pair)).collect();
    String::from_utf16(&units).map_err(|_| "it cannot be read: it is not UTF-16".to_owned())
}

/// Parses the text of a file. An empty one is null.
///
/// # Errors
/// Where it is wrong.
pub fn parse(format: FileFormat, text: &str) -> Result<Value, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match format {
        FileFormat::Json if text.trim().is_empty() => Ok(Value::Null),
        FileFormat::Json => jsonc_parser::parse_to_serde_value(text, &json_with_comments()).map_err(|error| {
            let (line, column) = (error.line_display(), error.column_display());
            format!("it is not valid JSON at line {line}, column {column}")
        }),
        FileFormat::Toml => toml::from_str(text).map_err(|error: toml::de::Error| {
            let before = error.span().map_or(0, |span| span.start);
            let line = text.get(..before).unwrap_or_default().matches('\n').count() + 1;
            format!("it is not valid TOML at line {line}")
        }),
    }
}

/// JSON with comments and trailing commas, as editors write it.
pub fn json_with_comments() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_file_is_located_and_not_quoted() {
        let error = parse(FileFormat::Json, "{\n  \"key\": \"hunter2\",\n  oops\n}").unwrap_err();
        assert_eq!(error, "it is not valid JSON at line 3, column 3");
        let error = parse(FileFormat::Toml, "a = 1\nb = hunter2\n").unwrap_err();
        assert_eq!(error, "it is not valid TOML at line 2");
        assert!(parse(FileFormat::Json, "{// with a comment\n\"a\": [1,],}").is_ok());
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let folder = std::env::temp_dir().join(format!("mb-{}", uuid::Uuid::now_v7().simple()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("mcp.json");
        assert!(
            std::process::Command::new("mkfifo")
                .arg(&path)
                .status()
                .unwrap()
                .success()
        );
        for path in [&path, &folder] {
            assert_eq!(read(path).unwrap_err(), "it is not a file");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn deep_nesting_is_an_error() {
        for (open, format) in [
            ("[".repeat(100_000), FileFormat::Json),
            (format!("a = {}", "[".repeat(100_000)), FileFormat::Toml),
        ] {
            assert!(parse(format, &open).is_err());
        }
    }
}
