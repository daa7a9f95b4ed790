use std::process::ExitCode;

/// Many small messages, made on one thread and dropped on another: see docs/performance.md for what it is worth.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A queue that grows touches fresh memory, and 2 MiB at once are slow to clear: docs/performance.md. Refused by
    // kernels without huge pages, which need no telling.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    mcp_broker::cli::run(std::env::args_os(), std::env::vars_os())
}
