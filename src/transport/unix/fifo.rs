//! A pair of FIFOs, for clients that can write to a file and read from another. One client at a time uses it; a client
//! that sends `initialize` ends the turn of the one before. The pair has a client while a program has the FIFO for requests open.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use actix_rt::ArbiterHandle;
use rustix::fs::OFlags;
use tokio::{
    net::unix::pipe::{Receiver, Sender},
    sync::oneshot,
};

use super::{
    admission::{self, FirstLines},
    service::LocalService,
    wire::FifoPair,
    write_end::WriteEnd,
};

/// The mode of a FIFO.
const MODE: u32 = 0o600;
/// Pause before the pair is served again after a connection has ended without a next client.
const RESTART_PAUSE: Duration = Duration::from_millis(100);

/// A pair that is served. Dropping it removes each name that is still that of the same FIFO.
pub struct Fifo {
    names: [FifoName; 2],
    write_end: Arc<WriteEnd>,
    /// Serves the pair.
    worker: ArbiterHandle,
}

impl Fifo {
    /// The paths of the FIFO for requests and of the one for answers.
    pub fn paths(&self) -> [&Path; 2] {
        self.names.each_ref().map(|name| name.path.as_path())
    }

    /// Whether a program has the FIFO for requests open for writing.
    pub async fn has_writer(&self) -> bool {
        let (answer, answered) = oneshot::channel();
        let write_end = Arc::clone(&self.write_end);
        self.worker.spawn_fn(move || {
            let _ = answer.send(write_end.has_other());
        });
        answered.await.unwrap_or(false)
    }
}

struct FifoName {
    path: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

impl Drop for FifoName {
    fn drop(&mut self) {
        let is_own = |file: fs::Metadata| (file.dev(), file.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(is_own) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes the FIFOs PREFIX-in and PREFIX-out and serves them on `worker` until the broker stops.
///
/// # Errors
/// A name is used by another broker or is no FIFO, or the folder cannot be written to; the text names the path.
pub fn open(prefix: &Path, service: &Arc<LocalService>, worker: &ArbiterHandle) -> io::Result<Fifo> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    // Only a reader that does not block can be opened before there is a writer.
    let requests = make(
        suffixed(prefix, "-in"),
        OpenOptions::new().read(true).custom_flags(nonblocking),
    )?;
    // Open for both, so that it never ends when a client closes it.
    let answers = make(suffixed(prefix, "-out"), OpenOptions::new().read(true).write(true))?;
    let write_end = Arc::new(WriteEnd::open(requests.1.try_clone()?, &requests.0.path)?);
    let fifo = Fifo {
        names: [requests.0, answers.0],
        write_end: Arc::clone(&write_end),
        worker: worker.clone(),
    };
    let service = Arc::clone(service);
    worker.spawn_fn(move || {
        let pair = Receiver::from_file(requests.1).and_then(|requests| {
            let answers = Sender::from_file(answers.1)?;
            Ok(FifoPair::new(requests, answers, write_end))
        });
        match pair {
            Ok(pair) => drop(actix_rt::spawn(serve(pair, service))),
            Err(error) => tracing::error!(%error, "the FIFOs cannot be served"),
        }
    });
    Ok(fifo)
}

fn suffixed(prefix: &Path, suffix: &str) -> PathBuf {
    let mut path = OsString::from(prefix);
    path.push(suffix);
    path.into()
}

/// Makes one FIFO and opens it.
fn make(path: PathBuf, options: &OpenOptions) -> io::Result<(FifoName, File)> {
    remove_stale(&path)?;
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    make_fifo(&path).map_err(named)?;
    let file = options.open(&path).map_err(named)?;
    let opened = file.metadata()?;
    let file_id = (opened.dev(), opened.ino());
    Ok((FifoName { path, file: file_id }, file))
}

/// Removes a FIFO that no program reads.
fn remove_stale(path: &Path) -> io::Result<()> {
    let in_use = |why: &str| {
        let text = format!("{} {why}; choose another local_fifo", path.display());
        Err(io::Error::new(io::ErrorKind::AddrInUse, text))
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_fifo() => return in_use("exists and is no FIFO"),
        Ok(_) => {}
    }
    // A FIFO without a reader cannot be opened for writing.
    let mut probe = OpenOptions::new();
    match probe
        .write(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)
    {
        Ok(_) => in_use("is used by another program"),
        Err(_) => fs::remove_file(path),
    }
}

#[cfg(target_os = "linux")]
fn make_fifo(path: &Path) -> io::Result<()> {
    let mode = rustix::fs::Mode::from_raw_mode(MODE);
    Ok(rustix::fs::mkfifoat(rustix::fs::CWD, path, mode)?)
}

/// Makes a FIFO with the program `mkfifo`, because the system call would need `unsafe` code.
#[cfg(not(target_os = "linux"))]
fn make_fifo(path: &Path) -> io::Result<()> {
    let mode = format!("{MODE:o}");
    let made = std::process::Command::new("mkfifo")
        .args(["-m", &mode])
        .arg(path)
        .status()?;
    made.success()
        .then_some(())
        .ok_or_else(|| io::Error::other("mkfifo failed"))
}

/// Serves one client after another.
async fn serve(mut pair: FifoPair, service: Arc<LocalService>) {
    let mut first = FirstLines::new(&service);
    loop {
        // Admission fails only when the broker stops: the pair takes no place of the socket's clients.
        let admitted = match admission::admit(pair, service.enter_fifo(), first).await {
            Ok(admitted) => admitted,
            Err((_, error)) => return tracing::debug!(error = %error.message, "the FIFOs are no longer served"),
        };
        let (stream, decoder, read) = admitted.run().await;
        if read.is_empty() {
            tokio::time::sleep(RESTART_PAUSE).await;
        }
        pair = stream;
        first = FirstLines { decoder, read };
    }
}
