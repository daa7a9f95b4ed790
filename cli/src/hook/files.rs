//! The names of the files that hooks keep in the runtime folder.

use std::path::PathBuf;

use sha2::{Digest, Sha256};

use common::user_broker::{HOOK_PREFIX, LocalPaths};

/// A file of a conversation in the runtime folder. Its name is a digest, because clients choose the names of conversations.
pub fn file_of(paths: &LocalPaths, conversation: &str, extension: &str) -> PathBuf {
    let digest = Sha256::digest(conversation.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    let digest = u64::from_be_bytes(first);
    paths.folder.join(format!("{HOOK_PREFIX}{digest:016x}.{extension}"))
}
