use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::Value;

/// An HTTP response, read until the peer closed or nothing came any more.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    head: String,
    pub body: String,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Sends a request as it is and reads one response to it.
pub fn exchange(mut socket: &TcpStream, request: &[u8]) -> Response {
    socket.write_all(request).unwrap();
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(response) = parse(&bytes) {
            return response;
        }
        let len = socket.read(&mut chunk).unwrap();
        assert!(len > 0, "no whole response: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&chunk[..len]);
    }
}

fn parse(bytes: &[u8]) -> Option<Response> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut response = Response {
        status: head.split(' ').nth(1)?.parse().ok()?,
        head: head.to_owned(),
        body: String::new(),
    };
    let len = response.header("content-length").map_or(0, |len| len.parse().unwrap());
    body.get(..len)?.clone_into(&mut response.body);
    Some(response)
}
