//! The ports that the broker listens on: whether they are free, and which program has them otherwise.

use std::{fs, io, net::SocketAddr, path::Path, time::Duration};

use serde_json::Value;

use super::{findings::Finding, setup::Setup};
use crate::{
    access::{BrokerAccess, BrokerUrl},
    client::{ApiRequest, Client},
};
use common::listen;

/// Longest wait for the answer of a program that has a port.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of that answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Tries to listen on each port, and closes it again.
pub fn check(setup: &Setup) -> Vec<Finding> {
    let Some(config) = setup.config() else {
        return vec![Finding::note("not checked: the configuration is refused")];
    };
    let metrics = config.metrics_port.map(|port| (port, "--metrics-port"));
    let ports = [(config.port, "--port")].into_iter().chain(metrics);
    ports
        .map(|(port, flag)| check_port(SocketAddr::new(config.host, port), flag))
        .collect()
}

fn check_port(address: SocketAddr, flag: &str) -> Finding {
    if address.port() == 0 {
        return Finding::ok(format!("{flag} 0: a start takes a free port"));
    }
    let Err(error) = listen::bind(address, flag) else {
        return Finding::ok(format!("{address} is free"));
    };
    if error.kind() != io::ErrorKind::AddrInUse {
        let cure = "choose another --host or port: below 1024 a port needs privileges";
        return Finding::error(error.to_string()).cure(cure);
    }
    if let Some(version) = broker_version(address) {
        return Finding::ok(format!("{address} belongs to a running broker (version {version})"));
    }
    let owner = owner_of_port(address.port()).unwrap_or_else(|| "another program".to_owned());
    let other = address.port().checked_add(1).unwrap_or(8000);
    Finding::error(format!("{address} is taken by {owner}")).cure(format!(
        "stop that program, or choose another port: mcp-broker serve {flag} {other}"
    ))
}

/// The version of the broker that answers at an address.
fn broker_version(address: SocketAddr) -> Option<String> {
    let host = if address.ip().is_unspecified() {
        SocketAddr::new([127, 0, 0, 1].into(), address.port())
    } else {
        address
    };
    let health = health(&BrokerUrl::parse(&format!("http://{host}"), "default").ok()?).ok()?;
    Some(health["version"].as_str()?.to_owned())
}

/// What a broker says of its health.
///
/// # Errors
/// One line: nothing answers there, or not a broker.
pub fn health(url: &BrokerUrl) -> Result<Value, String> {
    let url = url.clone();
    let ask = ApiRequest {
        timeout: ANSWER_TIMEOUT,
        bytes_max: ANSWER_BYTES_MAX,
        ..ApiRequest::get("/health")
    };
    let response = Client::new(BrokerAccess::without_key(url)).exchange(&ask);
    let response = response.map_err(|error| error.to_string())?;
    let health: Value = serde_json::from_str(response.body()).unwrap_or_default();
    // `storage_backend` is null while a broker starts.
    if health["version"].is_string() && health.get("storage_backend").is_some() {
        return Ok(health);
    }
    Err(format!(
        "another program answers there (GET /health: {})",
        response.status()
    ))
}

/// The program that listens on a TCP port: `python3 (pid 4711)`. `None` where the system does not tell this user.
fn owner_of_port(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let sockets: Vec<String> = tables.iter().flat_map(|table| listening_sockets(table, port)).collect();
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let has_socket = |process: &Path| {
        let files = fs::read_dir(process.join("fd"))
            .into_iter()
            .flatten()
            .filter_map(Result::ok);
        let mut links = files.filter_map(|file| fs::read_link(file.path()).ok());
        links.any(|link| sockets.iter().any(|socket| link.as_os_str() == socket.as_str()))
    };
    let is_process = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    let mut processes = processes
        .filter(|entry| is_process(&entry.file_name()))
        .map(|entry| entry.path());
    let process = processes.find(|process| has_socket(process))?;
    let name = fs::read_to_string(process.join("comm")).ok()?;
    Some(format!("{} (pid {})", name.trim(), process.file_name()?.to_str()?))
}

/// The sockets that listen on a port, in a table of the kernel, as the links of open files name them.
fn listening_sockets(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let listening = rows.filter(|row| row.len() > 9 && row[1].ends_with(&suffix) && row[3] == LISTEN);
    listening.map(|row| format!("socket:[{}]", row[9])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_found_by_their_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     \x20  0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0\n\
                     \x20  1: 0100007F:1F40 0100007F:9999 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0\n";
        assert_eq!(listening_sockets(table, 8000), ["socket:[4711]"]);
        assert_eq!(listening_sockets(table, 8001), [""; 0]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_owner_of_a_port_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = owner_of_port(listener.local_addr().unwrap().port()).unwrap();
        assert!(owner.ends_with(&format!("(pid {})", std::process::id())), "{owner}");
    }
}
