//! All connections lost at once, as when a proxy restarts, and all clients reconnecting together.

use super::{
    RunContext,
    direct::PushOptions,
    offline::{self, AbsencePlan},
};
use crate::{
    error::Result,
    report::{Report, rate},
};

#[derive(clap::Args)]
pub struct Options {
    /// Connections that are lost
    #[arg(long, default_value_t = 500, value_parser = crate::at_least_one)]
    connections: usize,
    /// Logins in flight at once; all by default
    #[arg(long, value_parser = crate::at_least_one)]
    at_once: Option<usize>,
    #[command(flatten)]
    push: PushOptions,
}

pub fn run(bench: &RunContext, options: &Options) -> Result<Report> {
    const SENDERS: usize = 4;
    let at_once = options.at_once.unwrap_or(options.connections);
    // One message waits for each client: a client counts as returned when it has received its message.
    let plan = AbsencePlan {
        recipients: options.connections,
        each: 1,
        senders: SENDERS,
        window: 64,
        push: options.push.push(),
        crash: true,
        at_once,
    };
    let absence = offline::measure_absence(bench, &plan)?;

    let mut report = Report::new("storm");
    report.add("connections", options.connections);
    report.add("logins_at_once", at_once);
    report.add("ack", options.push.ack_name());
    report.add("messages", absence.total);
    report.add("seconds_until_all_are_back", absence.drain.time.as_secs_f64());
    report.add("logins_per_second", rate(absence.logins.count(), absence.drain.time));
    report.add("login_us", &absence.logins);
    report.add_if_known(
        "server_cpu_us_per_login",
        absence.drain.server_cpu_us_per(absence.total),
    );
    report.add_if_known("store_cpu_us_per_login", absence.drain.store_cpu_us_per(absence.total));
    report.add_if_known("server_resident_kib", absence.drain.resident_kib);
    absence.offline.verdict(&mut report);
    Ok(report)
}
