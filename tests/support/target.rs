//! A server that gets what the broker tells it, and the secret that signs it.

use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::mpsc,
    thread,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use test_client::http::MessageReader;
pub use test_client::http::Request as Got;

use super::WAIT_TIMEOUT;

/// The secret of the file.
pub const SECRET: [u8; 24] = *b"a secret of twenty-four.";

/// A file with the secret, removed on drop.
pub struct SecretFile(PathBuf);

/// A new file with the secret.
pub fn secret_file() -> SecretFile {
    let name = format!("mcp-broker-secret-{}", uuid::Uuid::new_v4());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, format!("whsec_{}\n", STANDARD.encode(SECRET))).unwrap();
    SecretFile(path)
}

impl SecretFile {
    /// The flag that names it.
    pub fn flag(&self) -> String {
        format!("--desk-secret-file={}", self.0.display())
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A server that hands on what it gets, and answers with the next of these answers, then always with 204.
pub struct Target {
    pub address: SocketAddr,
    got: mpsc::Receiver<Got>,
}

impl Target {
    pub fn start(answers: &[&'static str]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, got) = mpsc::channel();
        let answers = answers.to_vec();
        thread::spawn(move || {
            let mut answers = answers.into_iter();
            while let Ok((socket, _)) = listener.accept() {
                let answer = answers.next().unwrap_or("204 No Content");
                let mut reader = MessageReader::new(&socket);
                let Ok(Some(request)) = Got::read(&mut reader) else {
                    continue;
                };
                let text = format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                (&socket).write_all(text.as_bytes()).unwrap();
                if tell.send(request).is_err() {
                    return;
                }
            }
        });
        Self { address, got }
    }

    /// The flag that makes a path of it a webhook.
    pub fn flag(&self, path: &str) -> String {
        format!("--desk-webhooks=http://{}{path}", self.address)
    }

    /// The next request.
    pub fn next(&self) -> Got {
        self.next_within(WAIT_TIMEOUT)
    }

    /// The next request, which may take this long.
    pub fn next_within(&self, time: Duration) -> Got {
        self.got.recv_timeout(time).expect("the target gets a request")
    }

    /// Whether no request has come that was not read.
    pub fn has_nothing(&self) -> bool {
        self.got.try_recv().is_err()
    }
}
