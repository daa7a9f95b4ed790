//! Commands that reach a broker over TLS, whose certificate an authority of the user has signed.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    process::{Command, Stdio},
};

use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::json;
use test_client::{folder::Folder, process::Running};

use super::program::{Run, RunningServer, broker_with, eventually_or, program};

/// A balancer that speaks TLS as `localhost` in front of a broker.
struct TlsProxy {
    _process: Running,
    folder: Folder,
    url: String,
}

impl TlsProxy {
    fn before(broker: &RunningServer) -> Self {
        // HAProxy inherits the socket: no other process can take the port meanwhile.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        fcntl_setfd(&listener, FdFlags::empty()).unwrap();
        let folder = Folder::new();
        let config = format!(
            "defaults\n  mode http\n  timeout connect 5s\n  timeout client 1h\n  timeout server 1h\n  timeout tunnel 1h\n\
             frontend tls\n  bind fd@{} ssl crt {}\n  default_backend broker\n\
             backend broker\n  server broker {}\n",
            listener.as_raw_fd(),
            fixture("localhost.pem"),
            broker.address,
        );
        let file = folder.join("haproxy.cfg");
        std::fs::write(&file, config).unwrap();
        let process = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        Self {
            _process: Running(process),
            folder,
            url: format!("https://localhost:{}", address.port()),
        }
    }
}

fn fixture(name: &str) -> String {
    format!("{}/tests/cli_live/authorities/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn commands_and_fronts_trust_the_authorities_that_the_user_names() {
    let broker = broker_with(&["bob"]);
    let proxy = TlsProxy::before(&broker);
    eventually_or(
        || "HAProxy serves".to_owned(),
        || {
            let address = proxy.url.replace("https://localhost", "127.0.0.1");
            TcpStream::connect(address).ok().map(drop)
        },
    );
    let folder = proxy.folder.join("certificates");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(fixture("authority.pem"), folder.join("authority.pem")).unwrap();
    let command = |words: &[&str], trusts: Option<(&str, &str)>| {
        let mut command = program(broker.address, words);
        command.env("MCP_BROKER_URL", &proxy.url).envs(trusts);
        command
    };
    let refused = Run::of(&mut command(&["sessions"], None));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let (authority, folder) = (fixture("authority.pem"), folder.display().to_string());
    for trusts in [("SSL_CERT_FILE", authority.as_str()), ("SSL_CERT_DIR", folder.as_str())] {
        let listed = Run::of(&mut command(&["sessions"], Some(trusts))).succeeds();
        assert!(listed.contains("bob"), "{trusts:?}: {listed}");
        let words = ["connect", "--url", proxy.url.as_str(), "--name", "alice"];
        let mut front = command(&words, Some(trusts));
        let home = proxy.folder.join("home");
        std::fs::create_dir_all(&home).unwrap();
        front.env("HOME", &home).env("XDG_RUNTIME_DIR", &home);
        let mut front = front.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdin = front.stdin.take().unwrap();
        let hello =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
        for frame in [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_sessions", "arguments": {}}}),
        ] {
            writeln!(stdin, "{frame}").unwrap();
        }
        drop(stdin);
        let mut answers = String::new();
        front.stdout.take().unwrap().read_to_string(&mut answers).unwrap();
        assert!(answers.contains("bob"), "{trusts:?}: {answers}");
        front.wait().unwrap();
    }
}
