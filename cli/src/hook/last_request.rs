//! When an agent was last asked to continue, for clients that do not report it to their hooks. Without it, a hook would ask an agent
//! that leaves its messages unread again and again.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use actors::model::MailSummary;

use super::files::file_of;
use common::user_broker::{Instance, LocalPaths};

/// The file whose time of change is the time of the last request.
pub struct LastRequest {
    file: PathBuf,
}

impl LastRequest {
    /// The file of a conversation; `None` when there is no folder for it.
    pub fn of(instance: &Instance, conversation: &str) -> Option<Self> {
        let paths = LocalPaths::look_up(instance).ok()?;
        Some(Self {
            file: file_of(&paths, conversation, "told"),
        })
    }

    /// Whether all that waits came after the last request.
    pub fn is_news(&self, mail: &MailSummary) -> bool {
        let last = fs::symlink_metadata(&self.file).and_then(|file| file.modified());
        let oldest = SystemTime::now().checked_sub(Duration::from_secs(mail.oldest_seconds));
        match (last, oldest) {
            (Ok(last), Some(oldest)) => oldest > last,
            _ => true,
        }
    }

    /// Keeps the time of a request. False when it cannot be kept.
    pub fn note(&self) -> bool {
        let opened = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.file);
        opened.and_then(|file| file.set_modified(SystemTime::now())).is_ok()
    }
}
