//! A log file of bounded size: what becomes too old is removed. Several processes may write to one.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use actors::locked::Locked;

use tracing_subscriber::fmt::MakeWriter;

/// Bytes from which on a new file is begun.
const FILE_LEN_MAX: u64 = 5 << 20;
/// Files of one log, the current one included.
const FILES_MAX: u32 = 5;

/// A log file. Clones write to the same one.
#[derive(Clone, Debug)]
pub struct LogFile(Arc<Locked<Current>>);

#[derive(Debug)]
struct Current {
    path: PathBuf,
    file: File,
    len_max: u64,
    /// Whether stdout and stderr lead to the file as well.
    has_output: bool,
}

impl LogFile {
    /// Opens a file for appending. It and its folder are private to the user.
    ///
    /// # Errors
    /// The folder cannot be made, or the file cannot be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::with_len_max(path, FILE_LEN_MAX)
    }

    fn with_len_max(path: &Path, len_max: u64) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        Ok(Self(Arc::new(Locked::new(Current {
            path: path.to_owned(),
            file: open(path)?,
            len_max,
            has_output: false,
        }))))
    }

    /// Leads stdout and stderr of the process to the file, also once it is replaced.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn take_output(&self) -> io::Result<()> {
        let mut current = self.0.lock();
        current.has_output = true;
        current.redirect()
    }

    /// Writes a line.
    ///
    /// # Errors
    /// The disk is full, or the folder is gone.
    pub fn write_line(&self, line: &str) -> io::Result<()> {
        let mut current = self.0.lock();
        current.write(format!("{line}\n").as_bytes())
    }
}

impl Current {
    /// Writes whole lines at once, so that lines of several processes do not mix.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self
            .file
            .metadata()
            .is_ok_and(|file| file.len() + lines.len() as u64 > self.len_max)
        {
            // A log that cannot be replaced is better than none.
            let _ = self.replace();
        }
        self.file.write_all(lines)
    }

    /// Begins a new file, unless another process has done so.
    fn replace(&mut self) -> io::Result<()> {
        self.file.lock()?;
        let id = |file: fs::Metadata| (file.dev(), file.ino());
        let own = self.file.metadata().map(id)?;
        if fs::symlink_metadata(&self.path).map(id).is_ok_and(|named| named == own) {
            for number in (1..FILES_MAX - 1).rev() {
                let _ = fs::rename(older_file(&self.path, number), older_file(&self.path, number + 1));
            }
            fs::rename(&self.path, older_file(&self.path, 1))?;
        }
        // The lock of the old file ends with it.
        self.file = open(&self.path)?;
        if self.has_output { self.redirect() } else { Ok(()) }
    }

    fn redirect(&self) -> io::Result<()> {
        rustix::stdio::dup2_stdout(&self.file)?;
        rustix::stdio::dup2_stderr(&self.file)?;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// The name of an older file: `broker.log.1` is younger than `broker.log.2`.
pub fn older_file(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

/// Writes the events of the log to a [`LogFile`].
#[derive(Debug)]
pub struct LogFileWriter<'a>(&'a LogFile);

impl Write for LogFileWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut current = self.0.0.lock();
        current.write(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = LogFileWriter<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LogFileWriter(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_bounded_and_two_writers_lose_no_line() {
        let folder = std::env::temp_dir().join(format!("mb-{}", uuid::Uuid::now_v7().simple()));
        let path = folder.join("a/broker.log");
        let writers = [
            LogFile::with_len_max(&path, 1000).unwrap(),
            LogFile::with_len_max(&path, 1000).unwrap(),
        ];
        // 20 bytes a line: 250 lines fit into five files.
        let lines = |range: std::ops::Range<usize>| {
            for number in range {
                writers[number % 2].write_line(&format!("line {number:014}")).unwrap();
            }
        };
        lines(0..240);
        let mut files: Vec<PathBuf> = (1..FILES_MAX).map(|number| older_file(&path, number)).collect();
        files.push(path.clone());
        let read = || {
            let texts = files.iter().map(|file| fs::read_to_string(file).unwrap_or_default());
            let mut lines: Vec<String> = texts
                .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
                .collect();
            lines.sort();
            lines
        };
        assert_eq!(
            read(),
            (0..240).map(|number| format!("line {number:014}")).collect::<Vec<_>>()
        );
        lines(240..1000);
        let kept = read();
        assert_eq!(kept.last().unwrap(), "line 00000000000999");
        assert!((200..=250).contains(&kept.len()), "{}", kept.len());
        assert_eq!(
            fs::read_dir(path.parent().unwrap()).unwrap().count(),
            FILES_MAX as usize
        );
        for file in &files {
            let metadata = fs::metadata(file).unwrap();
            assert!(metadata.len() <= 1000);
            assert_eq!(metadata.mode() & 0o777, 0o600);
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
