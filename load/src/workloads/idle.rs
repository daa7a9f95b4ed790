//! Connections without traffic.

use super::{MeasurementStart, RunContext};
use crate::{
    error::Result,
    fleet::{LOGINS_IN_FLIGHT_MAX, NoWorkload},
    report::{Report, float},
};

#[derive(clap::Args)]
pub struct Options {
    /// Connections, each with a named session
    #[arg(long, default_value_t = 1000, value_parser = crate::at_least_one)]
    connections: usize,
    /// Logins in flight at once
    #[arg(long, default_value_t = LOGINS_IN_FLIGHT_MAX, value_parser = crate::at_least_one)]
    at_once: usize,
}

pub fn run(bench: &RunContext, options: &Options) -> Result<Report> {
    let count = options.connections as u64;
    let mut fleet = bench.fleet(options.connections)?;
    fleet.take_login_latencies();
    // One connection has been opened and closed before: what the server allocates once is not part of the cost of a
    // connection.
    let before = bench.server.resident_kib()?;
    let login = MeasurementStart::start(&fleet, bench)?;
    let links = fleet.open(
        bench.roles("idle", options.connections, |role| role),
        options.at_once,
        &mut NoWorkload,
    )?;
    let login = login.stop(&fleet)?;
    let latencies = fleet.take_login_latencies();
    let rest = MeasurementStart::start(&fleet, bench)?;
    fleet.idle_for(bench.seconds)?;
    let rest = rest.stop(&fleet)?;

    let mut report = Report::new("idle");
    report.add("connections", count);
    report.add("logins_at_once", options.at_once);
    report.add("connections_per_second", login.per_second(count));
    report.add("login_us", &latencies);
    report.add_if_known("server_cpu_us_per_login", login.server_cpu_us_per(count));
    report.add_if_known("store_cpu_us_per_login", login.store_cpu_us_per(count));
    let kib = rest
        .resident_kib
        .zip(before)
        .map(|(after, before)| float(after.saturating_sub(before)) / float(count));
    report.add_if_known("server_resident_kib", rest.resident_kib);
    report.add_if_known("server_kib_per_connection", kib);
    report.add_if_known(
        "server_cores_idle",
        rest.server_cpu.map(|cpu| cpu.as_secs_f64() / rest.time.as_secs_f64()),
    );
    report.add_if_known(
        "store_cores_idle",
        rest.store_cpu.map(|cpu| cpu.as_secs_f64() / rest.time.as_secs_f64()),
    );
    report.add("generator_cpu_us_per_login", super::micros_per(login.own_cpu, count));
    report.add(
        "generator_cores_idle",
        rest.own_cpu.as_secs_f64() / rest.time.as_secs_f64(),
    );
    // A connection that broke would have ended the run, and one that hangs does not close.
    fleet.close(&links, &mut NoWorkload)?;
    Ok(report)
}
