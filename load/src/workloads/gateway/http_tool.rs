//! A tool that is called over HTTP: on one connection, or on many at once.

use std::net::SocketAddr;

use memchr::memmem;
use serde_json::json;

use super::{
    http_way::HttpWay,
    lanes::Call,
    setup::{Template, payload},
};
use crate::{
    error::Result,
    messages::modern_meta,
    workloads::{own_broker::OwnBroker, way::Exchange},
};

/// A tool of a server, with its arguments.
pub struct HttpTool {
    address: SocketAddr,
    path: &'static str,
    name: &'static str,
    request: Template,
    /// What each answer has to hold.
    expected: String,
}

impl HttpTool {
    /// The tool of an echo, with a payload of this many bytes.
    pub fn echo(address: SocketAddr, path: &'static str, len: usize) -> Self {
        let expected = payload(len);
        Self {
            address,
            path,
            name: "echo",
            request: Template::call("echo", &json!({"text": expected}), true),
            expected,
        }
    }

    /// A tool of the broker: the heartbeat of a session.
    pub fn heartbeat(broker: &OwnBroker) -> Result<Self> {
        let (address, path) = (broker.address, "/mcp/broker");
        let register = json!({"name": "register_session", "arguments": {"name": "load"}, "_meta": modern_meta()});
        let mut way = HttpWay::modern(address, path, "tools/call", Some("register_session"))?;
        let registered = way.request(1, "tools/call", &register)?;
        let session = &registered["structuredContent"]["session_id"];
        Ok(Self {
            address,
            path,
            name: "heartbeat",
            request: Template::call("heartbeat", &json!({"session_id": session}), true),
            expected: "\"result\"".to_owned(),
        })
    }

    fn connect(&self) -> Result<HttpWay> {
        HttpWay::modern(self.address, self.path, "tools/call", Some(self.name))
    }

    /// Calls on one connection.
    pub fn calls(self) -> Result<Call<'static>> {
        let mut way = self.connect()?;
        let Self {
            mut request, expected, ..
        } = self;
        Ok(Box::new(move |id| {
            let answer = request.exchange(id, &mut way)?;
            Ok(memmem::find(answer, expected.as_bytes()).is_some())
        }))
    }

    /// Calls on this many connections, all of them at once: one of these calls is one on each.
    pub fn calls_at_once(self, connections: usize) -> Result<Call<'static>> {
        let ways = (0..connections).map(|_| self.connect());
        let mut ways: Vec<HttpWay> = ways.collect::<Result<_>>()?;
        let Self { request, expected, .. } = self;
        let mut out = Vec::new();
        Ok(Box::new(move |id| {
            out.clear();
            request.append(id, &mut out);
            for way in &mut ways {
                way.send(&out)?;
            }
            let mut are_right = true;
            for way in &mut ways {
                are_right &= memmem::find(way.receive(id)?, expected.as_bytes()).is_some();
            }
            Ok(are_right)
        }))
    }
}
