//! A server that gets what the broker tells it, and the secret that signs it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::mpsc,
    thread,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value;

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

/// A request that a target got.
#[derive(Debug)]
pub struct Got {
    pub method: String,
    pub path: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Got {
    pub fn header(&self, name: &str) -> &str {
        self.header_if_any(name)
            .unwrap_or_else(|| panic!("no header {name}: {self:?}"))
    }

    pub fn header_if_any(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The type of the event.
    pub fn kind(&self) -> String {
        self.json()["type"].as_str().unwrap().to_owned()
    }

    /// Reads one request of a connection; `None` at its end.
    pub fn read(socket: &TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(socket);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let len = headers.iter().find(|(name, _)| name == "content-length");
        let mut body = vec![0; len.map_or(Some(0), |(_, len)| len.parse().ok())?];
        reader.read_exact(&mut body).ok()?;
        Some(Self {
            method,
            path,
            headers,
            body,
        })
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
                let Some(request) = Got::read(&socket) else { continue };
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
