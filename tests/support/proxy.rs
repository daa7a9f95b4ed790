//! A TCP proxy in front of a server, whose connections can be cut, delayed, blocked and redirected.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// Forwards connections until it is dropped.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    is_stopped: AtomicBool,
}

struct State {
    target: SocketAddr,
    mode: ProxyMode,
    /// Both ends of each connection.
    open: Vec<TcpStream>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProxyMode {
    Open,
    /// Data arrives this much later.
    Slow(Duration),
    /// Connections are closed, and new ones are closed immediately.
    Cut,
    /// Data is held back without an error, as by a firewall.
    Silent,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                target,
                mode: ProxyMode::Open,
                open: Vec::new(),
            }),
            changed: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.is_stopped.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(client) = client {
                    accepting.forward(client);
                }
            }
        });
        Self { address, shared }
    }

    pub fn restore(&self) {
        self.set_mode(ProxyMode::Open);
    }

    pub fn delay(&self, delay: Duration) {
        self.set_mode(ProxyMode::Slow(delay));
    }

    /// Closes all connections, and new ones immediately.
    pub fn cut(&self) {
        self.set_mode(ProxyMode::Cut);
        self.close_connections();
    }

    /// Holds back all data.
    pub fn silence(&self) {
        self.set_mode(ProxyMode::Silent);
    }

    /// Closes all connections; new ones go to another server.
    pub fn redirect_to(&self, target: SocketAddr) {
        self.shared.state().target = target;
        self.close_connections();
    }

    fn set_mode(&self, way: ProxyMode) {
        self.shared.state().mode = way;
        self.shared.changed.notify_all();
    }

    fn close_connections(&self) {
        for stream in self.shared.state().open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the accepting thread.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forward(self: &Arc<Self>, client: TcpStream) {
        let (target, way) = {
            let state = self.state();
            (state.target, state.mode)
        };
        if way == ProxyMode::Cut {
            return;
        }
        let Ok(server) = TcpStream::connect(target) else { return };
        for stream in [&client, &server] {
            stream.set_nodelay(true).unwrap();
        }
        let streams = || [&client, &server].map(|stream| stream.try_clone().unwrap());
        self.state().open.extend(streams());
        let [client_again, server_again] = streams();
        self.pump(client, server_again);
        self.pump(server, client_again);
    }

    fn pump(self: &Arc<Self>, mut from: TcpStream, mut to: TcpStream) {
        let shared = Arc::clone(self);
        thread::spawn(move || {
            let mut buffer = vec![0; 64 * 1024];
            while let Ok(len @ 1..) = from.read(&mut buffer) {
                shared.wait_until_open();
                if to.write_all(&buffer[..len]).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }

    fn wait_until_open(&self) {
        let is_silent = |state: &mut State| state.mode == ProxyMode::Silent && !self.is_stopped.load(Ordering::SeqCst);
        let way = {
            let waited = self.changed.wait_while(self.state(), is_silent);
            waited.unwrap_or_else(PoisonError::into_inner).mode
        };
        if let ProxyMode::Slow(delay) = way {
            thread::sleep(delay);
        }
    }
}
