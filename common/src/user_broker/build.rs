//! Which build of the program runs, and since when.

use std::{
    env,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::OnceLock,
};

use actors::{clock, faults};
use sha2::{Digest, Sha256};

use super::hello::{Hello, HelloKey, PROTOCOL};
use crate::config::API_KEY_ENV;

/// What the kernel adds to the name of an executable that was removed or replaced.
const DELETED: &str = " (deleted)";

/// The version of this program. In builds with the feature `faults` a test may name another.
pub fn running_version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| faults::text("FAULT_VERSION").unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()))
}

/// When this broker started, RFC 3339: the time of the first call, which the service of local clients makes at its start.
pub fn started_at() -> &'static str {
    static STARTED_AT: OnceLock<String> = OnceLock::new();
    STARTED_AT.get_or_init(|| clock::rfc3339_text(clock::now().unix_ms))
}

/// The version of the local methods that this program speaks. In builds with the feature `faults` a test may name
/// another.
pub fn own_protocol() -> u32 {
    faults::text("FAULT_PROTOCOL")
        .and_then(|text| text.parse().ok())
        .unwrap_or(PROTOCOL)
}

impl Hello {
    /// The hello of this process without an agent, with the key of the environment.
    pub fn of_this_process(kind: &str) -> Self {
        Self {
            protocol: own_protocol(),
            version: running_version().to_owned(),
            build: build_id().to_owned(),
            pid: std::process::id(),
            kind: kind.to_owned(),
            agent: None,
            api_key: env::var(API_KEY_ENV).ok().filter(|key| !key.is_empty()).map(HelloKey),
        }
    }
}

/// Eight hexadecimal digits that tell executables apart, from their version, size and time of change. A process keeps
/// those of the file that it was started from.
pub fn build_id() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let mut digest = Sha256::new_with_prefix(running_version());
        if let Ok(file) = own_metadata() {
            digest.update(file.len().to_be_bytes());
            digest.update(file.mtime().to_be_bytes());
            digest.update(file.mtime_nsec().to_be_bytes());
        }
        let [first, second, third, fourth, ..]: [u8; 32] = digest.finalize().into();
        format!("{:08x}", u32::from_be_bytes([first, second, third, fourth]))
    })
}

/// Whether the file that this process was started from was replaced or removed.
pub fn is_replaced() -> bool {
    static STARTED_FROM: OnceLock<Option<(u64, u64)>> = OnceLock::new();
    let id = |file: Metadata| (file.dev(), file.ino());
    let Some(own) = STARTED_FROM.get_or_init(|| own_metadata().ok().map(id)) else {
        return false;
    };
    match executable().and_then(fs::metadata) {
        Ok(file) => id(file) != *own,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// Where this program is installed: the file that a new process is started from.
///
/// # Errors
/// The system does not tell the name of the executable.
pub fn executable() -> io::Result<PathBuf> {
    let path = env::current_exe()?;
    Ok(match path.to_str().and_then(|text| text.strip_suffix(DELETED)) {
        Some(path) => PathBuf::from(path),
        None => path,
    })
}

/// The file that this process was started from, even if it was replaced since.
fn own_metadata() -> io::Result<Metadata> {
    fs::metadata(if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        executable()?
    })
}
