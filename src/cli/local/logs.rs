//! `logs`: shows the log of a broker, and follows it.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::{
    cli::{
        error::CliError,
        output::{Written, is_closed, write},
        table::escaped_json,
    },
    local::LocalPaths,
    telemetry::older_file,
};

/// Time between two looks at a log that is followed.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How much of a log to show.
#[derive(Debug)]
pub struct Logs {
    pub lines_max: usize,
    pub follows: bool,
    /// Every line is made a JSON object.
    pub is_json: bool,
}

impl Logs {
    /// Prints the last lines, and with `follows` each line that comes.
    ///
    /// # Errors
    /// There is no log, or it cannot be read.
    pub fn show(&self, paths: &LocalPaths) -> Result<(), CliError> {
        let path = &paths.log;
        let unreadable = |error: io::Error| CliError::Failed(format!("the log {}: {error}", path.display()));
        let mut file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if !self.follows => CliError::Failed(format!(
                "there is no log {}: the broker was never started; {} starts it",
                path.display(),
                paths.instance.command_line("start")
            )),
            _ => unreadable(error),
        })?;
        let mut text = String::new();
        read_to_end(&mut file, &mut text).map_err(unreadable)?;
        if text.lines().count() < self.lines_max {
            let older = fs::read(older_file(path, 1)).unwrap_or_default();
            text.insert_str(0, &String::from_utf8_lossy(&older));
        }
        let skipped = text.lines().count().saturating_sub(self.lines_max);
        let shown: String = text.lines().skip(skipped).map(|line| self.line(line)).collect();
        let mut written = write(&shown)?;
        let mut partial = String::new();
        while self.follows && written == Written::Done && !is_closed() {
            thread::sleep(POLL_INTERVAL);
            read_to_end(&mut file, &mut partial).map_err(unreadable)?;
            if is_replaced(&file, path)
                && let Ok(newer) = File::open(path)
            {
                read_to_end(&mut file, &mut partial).map_err(unreadable)?;
                file = newer;
            }
            let whole = partial.rfind('\n').map_or(0, |at| at + 1);
            let lines: String = partial.drain(..whole).collect();
            let lines: String = lines.lines().map(|line| self.line(line)).collect();
            written = write(&lines)?;
        }
        Ok(())
    }

    fn line(&self, line: &str) -> String {
        if !self.is_json {
            return format!("{}\n", escaped_json(line));
        }
        match serde_json::from_str(line) {
            Ok(Value::Object(event)) => format!("{}\n", Value::Object(event)),
            _ => format!("{}\n", json!({"message": line})),
        }
    }
}

fn read_to_end(file: &mut File, text: &mut String) -> io::Result<()> {
    // A log that was cut is read from its beginning.
    if file.stream_position()? > file.metadata()?.len() {
        file.seek(SeekFrom::Start(0))?;
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    text.push_str(&String::from_utf8_lossy(&bytes));
    Ok(())
}

fn is_replaced(file: &File, path: &Path) -> bool {
    let id = |file: fs::Metadata| (file.dev(), file.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => id(open) != id(named),
        _ => false,
    }
}
