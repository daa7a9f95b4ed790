//! An actix-web server with one handler that echoes the body.

use std::net::TcpListener;

use actix_web::{App, HttpResponse, HttpServer, web};
use mcp_broker_oracle::args::Args;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
Gives back every body that is sent to /mcp of 127.0.0.1. The first line on stdout is its address.

bare-actix [--port N] [--workers N]

  --port N       0, the default, takes any
  --workers N    threads that serve (1)";

fn main() -> std::io::Result<()> {
    let mut args = Args::new(USAGE);
    let port = args.value("--port").unwrap_or(0);
    let workers = args.value("--workers").unwrap_or(1);
    args.finish();
    let listener = TcpListener::bind(("127.0.0.1", port))?;
    println!("{}", listener.local_addr()?);
    let server = HttpServer::new(|| App::new().route("/mcp", web::post().to(echo)))
        .workers(workers)
        .tcp_nodelay(true)
        .listen(listener)?
        .run();
    actix_web::rt::System::new().block_on(server)
}

async fn echo(body: web::Bytes) -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(body)
}
