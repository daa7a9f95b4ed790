//! A Unix socket whose name appears at once, with its final mode, and replaces the name of a dead broker.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use socket2::{Domain, SockAddr, Socket, Type};

/// The longest path of a socket, in bytes: the smallest limit of the supported systems, without the zero at its end.
pub const SOCKET_PATH_LEN_MAX: usize = 103;

const MODE: u32 = 0o600;
/// Connections that wait to be accepted.
const BACKLOG_LEN: i32 = 1024;

/// The name of a listening socket. Dropping it removes the name, unless it is another socket's by now.
#[derive(Debug)]
pub struct PublishedSocket {
    path: PathBuf,
    /// Where the name is while it is withdrawn.
    hidden: PathBuf,
    /// Device and inode.
    file: (u64, u64),
}

/// Listens at a path, of mode 0600. The socket is bound to another name, listens and is renamed, so that clients of the
/// path see the old socket or the new one, and never none. The caller knows that the old one is dead.
///
/// # Errors
/// The path is too long, or its folder cannot be written to.
pub fn publish_socket(path: &Path) -> io::Result<(UnixListener, PublishedSocket)> {
    let hidden = hidden_name(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    let address = SockAddr::unix(&hidden)?;
    // Linux gives the file the mode of the socket; other systems need the second change, before anyone can connect.
    let _ = rustix::fs::fchmod(&socket, rustix::fs::Mode::from_raw_mode(MODE as rustix::fs::RawMode));
    socket.bind(&address)?;
    let published = fs::set_permissions(&hidden, Permissions::from_mode(MODE))
        .and_then(|()| socket.listen(BACKLOG_LEN))
        .and_then(|()| fs::symlink_metadata(&hidden))
        .and_then(|file| fs::rename(&hidden, path).map(|()| (file.dev(), file.ino())));
    match published {
        Ok(file) => Ok((
            socket.into(),
            PublishedSocket {
                path: path.to_owned(),
                hidden,
                file,
            },
        )),
        Err(error) => {
            let _ = fs::remove_file(&hidden);
            Err(error)
        }
    }
}

/// A name in the same folder that no other process uses.
fn hidden_name(path: &Path) -> io::Result<PathBuf> {
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let hidden = path.with_file_name(format!(".b{:08x}", u32::from_ne_bytes(random)));
    let longest = path.as_os_str().len().max(hidden.as_os_str().len());
    if longest > SOCKET_PATH_LEN_MAX {
        let text = format!("the path of the socket has more than {SOCKET_PATH_LEN_MAX} bytes; use a shorter folder");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(hidden)
}

impl PublishedSocket {
    /// Where clients find the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the name away: from then on clients find no socket. Those that are connected stay, and connections that wait to be
    /// accepted can still be accepted.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn withdraw(&self) -> io::Result<()> {
        if self.is_own(&self.path) {
            fs::rename(&self.path, &self.hidden)?;
        }
        Ok(())
    }

    /// Undoes [`Self::withdraw`], unless the path has another socket by now.
    ///
    /// # Errors
    /// The path has another socket, or the folder cannot be written to.
    pub fn restore(&self) -> io::Result<()> {
        if self.is_own(&self.hidden) {
            renameat_with(CWD, &self.hidden, CWD, &self.path, RenameFlags::NOREPLACE)?;
        }
        Ok(())
    }

    fn is_own(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == self.file)
    }
}

impl Drop for PublishedSocket {
    fn drop(&mut self) {
        for path in [&self.path, &self.hidden] {
            if self.is_own(path) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn folder() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("mb-{}", uuid::Uuid::now_v7().simple()));
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_socket_replaces_a_stale_one_and_removes_only_itself() {
        let folder = folder();
        let path = folder.join("broker.sock");
        let (stale, name) = publish_socket(&path).unwrap();
        drop(stale);
        assert!(UnixStream::connect(&path).is_err(), "it is stale");
        let (_listener, later) = publish_socket(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        drop(name);
        UnixStream::connect(&path).unwrap();
        drop(later);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_withdrawn_name_returns_unless_it_was_taken() {
        let folder = folder();
        let path = folder.join("broker.sock");
        let (listener, name) = publish_socket(&path).unwrap();
        let client = UnixStream::connect(&path).unwrap();
        name.withdraw().unwrap();
        assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        listener.accept().unwrap();
        name.restore().unwrap();
        UnixStream::connect(&path).unwrap();
        name.withdraw().unwrap();
        let (_other, other) = publish_socket(&path).unwrap();
        assert!(name.restore().is_err());
        drop((client, name));
        UnixStream::connect(&path).unwrap();
        drop(other);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_path_that_no_system_takes_is_refused() {
        let path = Path::new("/tmp").join("x".repeat(SOCKET_PATH_LEN_MAX));
        let refused = publish_socket(&path).unwrap_err();
        assert!(refused.to_string().contains("shorter"), "{refused}");
    }
}
