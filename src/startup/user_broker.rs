//! The local transports of a broker: checks where their files are, starts them, and stops them.

use std::{future, io, os::unix::fs::FileTypeExt, os::unix::fs::MetadataExt, path::Path, sync::Arc, time::Duration};

use actix_rt::ArbiterHandle;
use actors::idle;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::transport::{
    Connections, TransportContext,
    unix::{Fifo, LocalFacts, LocalListener, LocalService, WarningTexts, open_fifo},
};
use common::{
    config::Config,
    user_broker::{PublishedSocket, publish_socket, vet},
};

/// Time in which the listener accepts the clients that connected before the name was withdrawn.
const LAST_CLIENTS_PAUSE: Duration = Duration::from_millis(20);

/// The local transports of a broker, if it has any.
#[derive(Default)]
pub struct LocalTransports {
    service: Option<Arc<LocalService>>,
    listener: Option<LocalListener>,
    fifo: Option<Fifo>,
}

impl LocalTransports {
    /// Starts the socket and the FIFOs that the configuration names.
    ///
    /// # Errors
    /// A folder is not private, or a name is in use: the text says which setting to look at.
    pub fn start(
        config: &Config,
        context: &TransportContext,
        (http, storage, warnings): (String, &str, WarningTexts),
        workers: &[ArbiterHandle],
    ) -> io::Result<Self> {
        if config.local_socket.is_none() && config.local_fifo.is_none() {
            return Ok(Self::default());
        }
        let facts = LocalFacts {
            http: Some(http),
            storage: storage.to_owned(),
            clients_max: config.local_connections_max,
            ends_when_idle: !config.idle_shutdown.is_zero(),
            requires_key: config.local_auth,
            warnings,
        };
        let service = LocalService::new(context.clone(), facts);
        let listener = match &config.local_socket {
            Some(path) => {
                check_place("local_socket", path)?;
                check_unused(path)?;
                let published = publish_socket(path).map_err(|error| about("local_socket", path, &error))?;
                Some(LocalListener::start(published, &service, workers)?)
            }
            None => None,
        };
        let fifo = match (&config.local_fifo, workers.first()) {
            (Some(prefix), Some(worker)) => {
                check_place("local_fifo", prefix)?;
                Some(open_fifo(prefix, &service, worker).map_err(|error| about("local_fifo", prefix, &error))?)
            }
            _ => None,
        };
        Ok(Self {
            service: Some(service),
            listener,
            fifo,
        })
    }

    /// Where local clients find the broker, in words.
    pub fn announcement(&self) -> Option<String> {
        let socket = self.listener.as_ref().map(|listener| listener.name().path());
        let fifo = self.fifo.as_ref().map(Fifo::paths);
        let places: Vec<_> = socket.into_iter().chain(fifo.into_iter().flatten()).collect();
        let places: Vec<_> = places.iter().map(|path| path.display().to_string()).collect();
        (!places.is_empty()).then(|| format!("local clients are served at {}", places.join(", ")))
    }

    /// Waits until a local client asks the process to end.
    pub async fn retired(&self) {
        match &self.service {
            Some(service) => service.retired().await,
            None => future::pending().await,
        }
    }

    /// Whether a client of a newer version has connected.
    pub fn has_upgrade(&self) -> bool {
        self.service.as_ref().is_some_and(|service| service.has_upgrade())
    }

    /// Whether a program has the FIFO for requests open.
    pub async fn has_fifo_client(&self) -> bool {
        match &self.fifo {
            Some(fifo) => fifo.has_writer().await,
            None => false,
        }
    }

    /// Withdraws the name of the socket, so that the next client starts a broker, and then checks for clients once more. If
    /// one came before, it is served: the name is restored, and the result is false.
    pub async fn withdraw_unless_used(&self, connections: &Connections) -> bool {
        let socket = self.listener.as_ref().map(LocalListener::name);
        if let Some(Err(error)) = socket.map(PublishedSocket::withdraw) {
            tracing::warn!(%error, "the name of the local socket cannot be removed");
        }
        // The listener runs on this thread, so it accepts waiting connections before the timer of this pause fires.
        tokio::time::sleep(LAST_CLIENTS_PAUSE).await;
        let has_socket_clients = self
            .service
            .as_ref()
            .is_some_and(|service| service.has_socket_clients());
        // A request or a call that came meanwhile was noted as activity.
        let is_used = connections.has_clients()
            || has_socket_clients
            || idle::quiet_for() < LAST_CLIENTS_PAUSE
            || self.has_fifo_client().await;
        if !is_used {
            return true;
        }
        if let Some(Err(error)) = socket.map(PublishedSocket::restore) {
            tracing::warn!(%error, "the name of the local socket cannot be restored");
        }
        false
    }

    /// Removes the names, so that no further client comes.
    pub async fn stop(&mut self) {
        drop(self.fifo.take());
        if let Some(listener) = self.listener.take() {
            listener.stop().await;
        }
    }
}

/// Checks that only this user may enter the folder of a socket or FIFO.
fn check_place(setting: &str, path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let refuse = |why: String| {
        let text = format!("{setting} = {}: {why}", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    };
    let metadata = match folder.metadata() {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => return refuse(format!("{} is no folder", folder.display())),
        Err(error) => return refuse(format!("the folder {} cannot be used: {error}", folder.display())),
    };
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!(
            "others may enter the folder {} (mode {mode:o}): run chmod 700, or name a folder inside it",
            folder.display()
        );
        return refuse(why);
    }
    let folder = folder.canonicalize()?;
    vet(&folder).or_else(|error| refuse(error.to_string()))
}

/// Checks that no living broker has the socket. That of a dead one is replaced.
fn check_unused(path: &Path) -> io::Result<()> {
    let in_use = |why: &str| {
        let text = format!("local_socket = {}: {why}; choose another", path.display());
        Err(io::Error::new(io::ErrorKind::AddrInUse, text))
    };
    match path.symlink_metadata() {
        Ok(file) if !file.file_type().is_socket() => return in_use("it exists and is no socket"),
        Ok(_) => {}
        Err(_) => return Ok(()),
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A living broker that accepts nothing would keep a blocking socket waiting.
    socket.set_nonblocking(true)?;
    match socket.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Ok(()) => in_use("another program listens there"),
        Err(error) => in_use(&format!("another program may listen there ({error})")),
    }
}

fn about(setting: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{setting} = {}: {error}", path.display()))
}
