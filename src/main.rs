use std::process::ExitCode;

/// Many small messages, made on one thread and dropped on another: see docs/performance.md for what it is worth.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    mcp_broker::cli::run(std::env::args_os(), std::env::vars_os())
}
