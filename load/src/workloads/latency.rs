//! One operation at a time on an idle broker, compared with the latencies that the product promises.

use serde_json::json;

use super::{
    RunContext,
    broadcast::Broadcast,
    calls,
    direct::{Direct, Pace, Pairs},
    measure,
};
use crate::{
    error::Result,
    fleet::{ClientSpec, Fleet, NoWorkload, Push},
    messages,
    report::{Figure, Latencies, Report},
};

#[derive(clap::Args)]
pub struct Options {
    /// Samples of the calls that register and negotiate; the messages are measured for --seconds each
    #[arg(long, default_value_t = 500, value_parser = crate::at_least_one)]
    count: usize,
    /// Subscribers of the broadcast
    #[arg(long, default_value_t = 50, value_parser = crate::at_least_one)]
    subscribers: usize,
}

const PUSH: Push = Push {
    window: 64,
    manual: false,
};

pub fn run(bench: &RunContext, options: &Options) -> Result<Report> {
    let mut fleet = bench.fleet(options.subscribers + options.count + 4)?;
    let mut report = Report::new("latency");
    report.add("subscribers", options.subscribers);

    let pairs = Pairs::open(bench, &mut fleet, 1, PUSH)?;
    let mut direct = Direct::new(bench, &pairs, Pace::Window(1));
    measure(&mut fleet, bench, &mut direct)?;
    report.row(row("direct message", 100.0, &direct.delivery));

    let mut broadcast = Broadcast::open(bench, &mut fleet, options.subscribers, 1, PUSH)?;
    measure(&mut fleet, bench, &mut broadcast)?;
    report.row(row("broadcast, last subscriber", 500.0, &broadcast.last_delivery));

    let client = bench.log_in(&mut fleet, "client", 1, |role| role)?[0];
    let name = format!("{}-{}", messages::PROTOCOL, messages::fresh_tag());
    let new_protocol = |index| messages::protocol(&name, &format!("1.{index}.0"));
    let registered = calls::run(&mut fleet, client, "register_protocol", options.count, 1, new_protocol)?;
    report.row(row("register_protocol", 50.0, &registered));

    report.row(row("register_session", 20.0, &new_sessions(&mut fleet, options.count)?));

    let target = json!({"target_session_id": bench.name("to", 0)});
    let ask = |_| target.clone();
    let negotiated = calls::run(&mut fleet, client, "negotiate_capabilities", options.count, 1, ask)?;
    report.row(row("negotiate_capabilities", 30.0, &negotiated));

    let mut faults = direct.faults();
    faults.add(broadcast.faults());
    faults.describe(&mut report);
    Ok(report)
}

/// Registers new sessions, each on a connection of its own.
fn new_sessions(fleet: &mut Fleet, count: usize) -> Result<Latencies> {
    let tag = messages::fresh_tag();
    let mut all = Latencies::default();
    for index in 0..count {
        let link = fleet.open(vec![ClientSpec::anonymous()], 1, &mut NoWorkload)?;
        let session = |_| {
            let capabilities =
                json!({"supported_protocols": {messages::PROTOCOL: ["1.0.0"]}, "supported_features": []});
            json!({"name": format!("load-new-{tag}-{index}"), "capabilities": capabilities})
        };
        all.merge(&calls::run(fleet, link[0], "register_session", 1, 1, session)?);
        fleet.close(&link, &mut NoWorkload)?;
    }
    Ok(all)
}

fn row(operation: &str, target_ms: f64, latencies: &Latencies) -> Vec<(&'static str, Figure)> {
    let p99 = latencies.micros(0.99);
    vec![
        ("operation", operation.into()),
        ("samples", latencies.count().into()),
        ("p50_us", Figure::Micro(latencies.micros(0.5))),
        ("p99_us", Figure::Micro(p99)),
        ("max_us", Figure::Micro(latencies.micros(1.0))),
        ("p99_target_us", Figure::Micro(target_ms * 1000.0)),
        ("within", (latencies.count() > 0 && p99 <= target_ms * 1000.0).into()),
    ]
}
