//! Serves the official SDK's server over Streamable HTTP at `/mcp`, for comparison with the broker.

use std::net::TcpListener;

use mcp_broker_oracle::{
    args::Args,
    sdk::{self, SessionMode},
};

// The broker uses the same allocator, so the comparison is about the servers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
The official SDK's MCP server over Streamable HTTP, at /mcp of 127.0.0.1. The first line on stdout is its address.

mcp-broker-oracle [--port N] [--workers N] [--stateless]

  --port N       0, the default, takes any
  --workers N    threads that serve (1)
  --stateless    legacy clients get no sessions, and JSON where it will do";

fn main() -> std::io::Result<()> {
    let mut args = Args::new(USAGE);
    let port = args.value("--port").unwrap_or(0);
    let workers = args.value("--workers").unwrap_or(1);
    let sessions = if args.has("--stateless") {
        SessionMode::None
    } else {
        SessionMode::Legacy
    };
    args.finish();
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("{}", listener.local_addr()?);
    let runtime = sdk::runtime(workers)?;
    let serving = runtime.spawn(sdk::serve(listener, sessions));
    runtime.block_on(serving)?
}
