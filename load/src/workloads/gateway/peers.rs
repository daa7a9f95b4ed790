//! Other gateways, measured beside this one.

use std::process::Command;

use clap::ValueEnum;
use serde_json::json;

use super::{Bench, Row, http_way::HttpWay, lanes::Lane, setup::echo_calls};
use crate::{
    error::{LoadError, Result},
    workloads::{
        own_broker::{CLIENT, Program},
        way::Exchange,
    },
};

/// Another gateway, with an echo behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    row: Row,
    name: String,
    target: String,
}

impl Peer {
    /// Parses `ROW:NAME=TARGET`.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let parts = text.split_once(':');
        let parts = parts.and_then(|(row, rest)| Some((row, rest.split_once('=')?)));
        let (row, (name, target)) = parts.ok_or("it is not of the form ROW:NAME=TARGET")?;
        let row = Row::from_str(row, false)?;
        if !matches!(row, Row::Run | Row::Stdio | Row::HttpStdio | Row::HttpHttp) {
            return Err("a peer is measured in the row run, stdio, http-stdio or http-http".to_owned());
        }
        Ok(Self {
            row,
            name: name.to_owned(),
            target: target.to_owned(),
        })
    }

    fn connect(&self) -> Result<Box<dyn Exchange>> {
        if self.target.starts_with("http://") {
            return Ok(Box::new(HttpWay::legacy(&self.target)?));
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("exec {}", self.target));
        Ok(Box::new(Program::start(&mut command, CLIENT)?))
    }
}

/// The lanes of the peers of a row, with their names.
pub fn lanes<'a>(bench: &'a Bench<'_>, row: Row) -> Result<Vec<(&'a str, Lane<'static>)>> {
    let peers = bench.options.peers.iter().filter(|peer| peer.row == row);
    peers
        .map(|peer| {
            let mut way = peer.connect()?;
            let tool = find_echo(&mut *way)?;
            let calls = echo_calls(way, &tool, bench.context.size);
            Ok((&*peer.name, Lane::new(calls)))
        })
        .collect()
}

/// The name under which a gateway offers the echo.
fn find_echo(way: &mut dyn Exchange) -> Result<String> {
    let list = way.request(2, "tools/list", &json!({}))?;
    let tools = list["tools"].as_array().map_or(&[][..], Vec::as_slice);
    let names = tools.iter().filter_map(|tool| tool["name"].as_str());
    let echo = names.into_iter().find(|name| name.ends_with("echo"));
    echo.map(str::to_owned)
        .ok_or_else(|| LoadError::refused("a tool whose name ends with echo", list.to_string().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_a_row_a_name_and_a_target() {
        let peer = Peer::parse("http-stdio:other=http://127.0.0.1:9/mcp?a=b").unwrap();
        assert_eq!(
            (peer.row, &*peer.name, &*peer.target),
            (Row::HttpStdio, "other", "http://127.0.0.1:9/mcp?a=b")
        );
        for wrong in ["other=x", "stdio:other", "idle:other=x", "nothing:other=x"] {
            assert!(Peer::parse(wrong).is_err(), "{wrong}");
        }
    }
}
