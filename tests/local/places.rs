//! Private folders for the sockets of tests, and what a broker refuses about them.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use test_client::folder::Folder;

use super::{
    home::is_root,
    support::{Broker, Wire, broker_program, eventually},
};

/// A broker with a local socket.
pub struct LocalBroker {
    pub broker: Broker,
    pub folder: Folder,
}

impl LocalBroker {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(flags: &[&str]) -> Self {
        let folder = Folder::of_broker().unwrap();
        let broker = start_in(&folder, flags);
        Self { broker, folder }
    }

    pub fn wire(&self) -> Wire {
        Wire::open_local(&self.folder.socket())
    }

    /// A connection on which nothing has been sent.
    pub fn stream(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.socket()).unwrap();
        stream.set_read_timeout(Some(crate::support::WAIT_TIMEOUT)).unwrap();
        stream
    }
}

/// A broker whose socket is in this folder.
pub fn start_in(folder: &Folder, flags: &[&str]) -> Broker {
    let socket = format!("--local-socket={}", folder.socket().display());
    Broker::start_with(&[&[socket.as_str()], flags].concat())
}

/// What a broker says that refuses to start with these flags.
pub fn refusal(flags: &[&str]) -> String {
    let mut program = broker_program();
    let output = program
        .args(["serve", "--port=0"])
        .args(flags)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_place_that_is_not_private_is_refused_with_what_to_do() {
    let folder = Folder::of_broker().unwrap();
    let refused = |path: &Path| {
        let socket = refusal(&[&format!("--local-socket={}", path.display())]);
        let fifo = refusal(&[&format!("--local-fifo={}", path.display())]);
        assert!(
            socket.contains("local_socket") && fifo.contains("local_fifo"),
            "{socket}{fifo}"
        );
        socket + &fifo
    };
    let text = refused(&folder.join("missing/s"));
    assert!(text.contains("missing cannot be used"), "{text}");
    let open = folder.join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
    let text = refused(&open.join("s"));
    assert!(text.contains("run chmod 700"), "{text}");
    assert_eq!(fs::metadata(&open).unwrap().mode() & 0o777, 0o755, "it is not changed");

    let long = folder.join("x".repeat(110));
    let text = refusal(&[&format!("--local-socket={}", long.display())]);
    assert!(text.contains("103 bytes"), "{text}");
    let file = folder.join("file");
    fs::write(&file, "mine").unwrap();
    let text = refusal(&[&format!("--local-socket={}", file.display())]);
    assert!(text.contains("no socket"), "{text}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    let text = refusal(&[
        &format!("--local-fifo={}", folder.join("f").display()),
        "--local-auth",
        "--enable-auth",
        "--admin-key=0123456789abcdef",
    ]);
    assert!(text.contains("local_fifo"), "{text}");
}

#[test]
fn the_socket_of_a_living_program_is_not_taken() {
    let folder = Folder::of_broker().unwrap();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let text = refusal(&[&format!("--local-socket={}", folder.socket().display())]);
    assert!(text.contains("another program listens there"), "{text}");
    drop(UnixStream::connect(folder.socket()).unwrap());
    // Also when it accepts nothing, and no further connection can wait.
    rustix::net::listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    loop {
        let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket2::SockAddr::unix(folder.socket()).unwrap();
        if socket.connect(&address).is_err() {
            break;
        }
        waiting.push(socket);
    }
    let text = refusal(&[&format!("--local-socket={}", folder.socket().display())]);
    assert!(text.contains("another program may listen there"), "{text}");
}

#[test]
fn the_name_is_never_of_another_mode_while_brokers_replace_dead_ones() {
    let folder = Folder::of_broker().unwrap();
    let mut broker = start_in(&folder, &[]);
    let path = folder.socket();
    let (is_over, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let watcher = std::thread::spawn({
        let (is_over, looks) = (Arc::clone(&is_over), Arc::clone(&looks));
        move || {
            while !is_over.load(Ordering::Relaxed) {
                let mode = fs::symlink_metadata(&path).map(|file| file.mode() & 0o7777);
                assert_eq!(mode.map_err(|error| error.kind()), Ok(0o600));
                looks.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    for _ in 0..5 {
        broker.kill();
        assert_eq!(
            UnixStream::connect(folder.socket()).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        broker = start_in(&folder, &[]);
        Wire::open_local(&folder.socket()).syncs();
    }
    is_over.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
    assert!(looks.load(Ordering::Relaxed) > 5);
    broker.terminate();
    assert!(broker.wait_for_exit().success());
    assert_eq!(folder.names(), [""; 0], "nothing is left");
}

#[test]
fn another_user_is_closed_without_a_byte_and_counted() {
    use std::io::Read;
    if !is_root("a client of another user") {
        return;
    }
    let local = LocalBroker::start();
    // The file modes keep other users away; here the check of the peer is looked at alone.
    fs::set_permissions(&*local.folder, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(local.folder.socket(), Permissions::from_mode(0o666)).unwrap();
    let path = local.folder.socket();
    let received = std::thread::spawn(move || {
        let other = rustix::process::Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(other, other, other).unwrap();
        let mut stream = UnixStream::connect(path).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).map(|_| received)
    });
    assert_eq!(received.join().unwrap().unwrap(), b"");
    let counter = "mcp_broker_authentication_failures_total{reason=\"foreign_user\"} 1";
    eventually("it is counted", || {
        local.broker.get("/metrics").body.contains(counter).then_some(())
    });
    local.wire().syncs();
}
