//! The token that scrapers send instead of a key: the first line of a file, read again when the file changes.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use actors::{locked::Locked, model::KeyDigest};

/// Bytes of a token.
const TOKEN_LEN: std::ops::RangeInclusive<usize> = 16..=4096;

/// A token in a file.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    read: Locked<Read>,
}

/// The token as it was read, and what the file was like then.
#[derive(Debug, Default)]
struct Read {
    stamp: Option<(SystemTime, u64)>,
    /// None while the file has no token.
    token: Option<KeyDigest>,
}

impl TokenFile {
    /// Reads the token.
    ///
    /// # Errors
    /// The file cannot be read, or its first line is no token.
    pub fn open(path: &Path) -> io::Result<Self> {
        let read = Read {
            stamp: Some(stamp(path)?),
            token: Some(read_token(path)?),
        };
        Ok(Self {
            path: path.to_owned(),
            read: Locked::new(read),
        })
    }

    /// Whether this is the token. The comparison takes the same time for every other text of its length. A file that
    /// cannot be read accepts no token, and is logged once.
    pub fn accepts(&self, given: &str) -> bool {
        let mut read = self.read.lock();
        let stamp = stamp(&self.path).ok();
        if stamp.is_none() || stamp != read.stamp {
            let token = read_token(&self.path);
            if let Err(error) = &token
                && (read.token.is_some() || stamp != read.stamp)
            {
                tracing::warn!(file = %self.path.display(), %error, "metrics_token_file has no token: scrapers are refused");
            }
            *read = Read {
                stamp,
                token: token.ok(),
            };
        }
        let given = KeyDigest::of_key(given);
        read.token.as_ref().is_some_and(|token| token.matches(&given))
    }
}

fn stamp(path: &Path) -> io::Result<(SystemTime, u64)> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.modified()?, metadata.len()))
}

fn read_token(path: &Path) -> io::Result<KeyDigest> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().next().unwrap_or_default().trim();
    if TOKEN_LEN.contains(&line.len()) && line.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(KeyDigest::of_key(line));
    }
    let reason = "its first line is not 16 to 4096 visible ASCII characters without spaces";
    Err(io::Error::new(io::ErrorKind::InvalidData, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_has_another_token() {
        let path = std::env::temp_dir().join(format!("mcp-broker-token-{}", std::process::id()));
        let (one, other) = ("a-token-of-sixteen-bytes", "another-token-of-other-length");
        fs::write(&path, format!("{one}\n")).unwrap();
        let token = TokenFile::open(&path).unwrap();
        assert!(token.accepts(one) && !token.accepts(other) && !token.accepts(""));
        fs::write(&path, format!("{other}\n")).unwrap();
        assert!(token.accepts(other) && !token.accepts(one));
        fs::write(&path, "short\n").unwrap();
        assert!(!token.accepts("short") && !token.accepts(other));
        fs::remove_file(&path).unwrap();
        assert!(!token.accepts(other));
        assert!(TokenFile::open(&path).is_err());
    }
}
