//! The executable: sets the allocator and runs the command line.

use std::process::ExitCode;

use mcp_broker::startup::ThisBroker;

/// Many small messages are allocated on one thread and freed on another; docs/performance.md has the figures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = mcp_broker::instances::keeper::run_if_asked(std::env::args_os()) {
        return code;
    }
    // A growing queue touches fresh memory, and clearing 2 MiB at once is slow (docs/performance.md). The allocator asks
    // for no huge pages (its feature `no_thp`); this refuses them where the kernel gives them to every process. Kernels
    // without huge pages refuse the call, which is harmless.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    cli::run(std::env::args_os(), std::env::vars_os(), &ThisBroker)
}
