//! One measurement of one server.

use std::{
    cell::Cell,
    io,
    rc::Rc,
    time::{Duration, Instant},
};

use test_client::process::{RunningServer, cpu_time};
use tokio::{runtime, task::LocalSet};

use super::client::Client;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Era {
    /// 2026-07-28: every request carries the version and the capabilities.
    Modern,
    /// 2025-11-25, in a session.
    Legacy,
}

pub struct Bench {
    pub warm_up: Duration,
    pub time: Duration,
    pub connections: usize,
    pub calls: usize,
}

/// The throughput of a server.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub calls_per_second: f64,
    /// Processor time of the server for one call.
    pub micros_per_call: f64,
}

/// Latencies of single calls, in µs.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    pub p50: f64,
    pub p99: f64,
}

impl Bench {
    /// Measures the throughput: every connection calls again as soon as it has its answer. `headers` are sent with
    /// each request.
    ///
    /// # Errors
    /// When a connection fails or a call is refused.
    pub fn load(&self, server: &RunningServer, name: &str, era: Era, headers: &[(&str, &str)]) -> io::Result<Load> {
        let local = LocalSet::new();
        local.block_on(&runtime()?, async {
            let mut clients = Vec::with_capacity(self.connections);
            for _ in 0..self.connections {
                let mut client = Client::connect(server.address, headers).await?;
                let request = client.prepare(name, era).await?;
                clients.push((client, request));
            }
            let calls = Rc::new(Cell::new(0_u32));
            let tasks: Vec<_> = clients
                .into_iter()
                .map(|(mut client, request)| {
                    let calls = Rc::clone(&calls);
                    tokio::task::spawn_local(async move {
                        loop {
                            if let Err(error) = client.call(&request).await {
                                break error;
                            }
                            calls.set(calls.get() + 1);
                        }
                    })
                })
                .collect();
            tokio::time::sleep(self.warm_up).await;
            let before = (Instant::now(), calls.get(), cpu_time(server.id())?);
            tokio::time::sleep(self.time).await;
            let after = (Instant::now(), calls.get(), cpu_time(server.id())?);
            for task in tasks {
                if task.is_finished() {
                    return Err(task.await.unwrap_or_else(io::Error::other));
                }
                task.abort();
            }
            let calls = f64::from(after.1 - before.1);
            Ok(Load {
                calls_per_second: calls / (after.0 - before.0).as_secs_f64(),
                micros_per_call: after.2.saturating_sub(before.2).as_secs_f64() * 1e6 / calls,
            })
        })
    }

    /// Measures the latency: one connection, one call at a time.
    ///
    /// # Errors
    /// When the connection fails or a call is refused.
    pub fn latency(&self, server: &RunningServer, name: &str, era: Era) -> io::Result<Latency> {
        runtime()?.block_on(async {
            let mut client = Client::connect(server.address, &[]).await?;
            let request = client.prepare(name, era).await?;
            for _ in 0..self.calls / 10 {
                client.call(&request).await?;
            }
            let mut times = Vec::with_capacity(self.calls);
            for _ in 0..self.calls {
                let start = Instant::now();
                client.call(&request).await?;
                times.push(start.elapsed());
            }
            times.sort_unstable();
            let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e6;
            Ok(Latency {
                p50: at(50),
                p99: at(99),
            })
        })
    }
}

fn runtime() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}
