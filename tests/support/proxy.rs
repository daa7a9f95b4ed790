//! A way to a server that can be cut, held up, and led somewhere else.

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

/// Forwards connections, as long as it is there.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    over: AtomicBool,
}

struct State {
    target: SocketAddr,
    way: Way,
    /// Both ends of each connection.
    open: Vec<TcpStream>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// What is sent arrives so much later.
    Slow(Duration),
    /// Connections end, and new ones come to nothing.
    Cut,
    /// Nothing arrives, and nobody is told: what a firewall does.
    Silent,
}

impl Proxy {
    pub fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                target,
                way: Way::Open,
                open: Vec::new(),
            }),
            changed: Condvar::new(),
            over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.over.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(client) = client {
                    accepting.forward(client);
                }
            }
        });
        Self { address, shared }
    }

    pub fn open(&self) {
        self.turn(Way::Open);
    }

    pub fn slow(&self, delay: Duration) {
        self.turn(Way::Slow(delay));
    }

    /// Ends all connections, and those to come as soon as they are made.
    pub fn cut(&self) {
        self.turn(Way::Cut);
        self.break_open();
    }

    /// Swallows everything.
    pub fn silence(&self) {
        self.turn(Way::Silent);
    }

    /// Ends all connections; those to come go to another server.
    pub fn lead_to(&self, target: SocketAddr) {
        self.shared.state().target = target;
        self.break_open();
    }

    fn turn(&self, way: Way) {
        self.shared.state().way = way;
        self.shared.changed.notify_all();
    }

    fn break_open(&self) {
        for stream in self.shared.state().open.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes whoever accepts.
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
            (state.target, state.way)
        };
        if way == Way::Cut {
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
                shared.wait_for_a_way();
                if to.write_all(&buffer[..len]).is_err() {
                    break;
                }
            }
            let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
        });
    }

    fn wait_for_a_way(&self) {
        let is_silent = |state: &mut State| state.way == Way::Silent && !self.over.load(Ordering::SeqCst);
        let way = {
            let waited = self.changed.wait_while(self.state(), is_silent);
            waited.unwrap_or_else(PoisonError::into_inner).way
        };
        if let Way::Slow(delay) = way {
            thread::sleep(delay);
        }
    }
}
