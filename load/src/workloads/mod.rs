//! The workloads, one per file, and the measurement that they share.

pub mod broadcast;
pub mod calls;
pub mod desk;
pub mod direct;
pub mod front;
pub mod gateway;
pub mod growth;
pub mod idle;
pub mod latency;
pub mod neighbours;
pub mod offline;
mod own_broker;
pub mod storm;
#[cfg(test)]
mod tests;
mod way;

use std::time::Duration;

use serde_json::Value;

use crate::{
    error::{LoadError, Result},
    event_loop::{Nanos, Outbox},
    fleet::{ClientSpec, Fleet, LOGINS_IN_FLIGHT_MAX, NoWorkload, Workload},
    messages::{self, ExpectedContent, Template},
    process::{self, Servers},
    report::{Report, float, rate},
    target::Target,
};

/// What lenses have to do with the messages of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Lenses {
    /// The protocol has none.
    None,
    /// The protocol has one, and recipients speak the version of the sender.
    Same,
    /// Recipients speak an older version: each message is transformed by three operations.
    Older,
}

/// The settings that all workloads of a run share.
#[derive(Clone)]
pub struct RunContext {
    /// The replicas of the broker: at least one.
    pub targets: Vec<Target>,
    pub server: Servers,
    pub store: Servers,
    pub seconds: Duration,
    pub warm_up: Duration,
    pub size: usize,
    pub names: String,
    pub lenses: Lenses,
    pub stall: Duration,
}

impl RunContext {
    /// The replica that serves what is no connection of a fleet.
    pub fn target(&self) -> &Target {
        &self.targets[0]
    }

    /// A fleet for up to `connections`, with the protocol of the messages registered.
    pub fn fleet(&self, connections: usize) -> Result<Fleet> {
        process::allow_connections(connections + 1)?;
        let mut fleet = Fleet::new(self.targets.clone(), self.stall)?;
        let admin = fleet.open(vec![ClientSpec::named(self.name("admin", 0))], 1, &mut NoWorkload)?;
        let protocol = |_| messages::protocol(messages::PROTOCOL, "1.0.0");
        calls::run(&mut fleet, admin[0], "register_protocol", 1, 1, protocol)?;
        if self.lenses != Lenses::None {
            let newer = |_| messages::newer_protocol(messages::PROTOCOL);
            calls::run(&mut fleet, admin[0], "register_protocol", 1, 1, newer)?;
        }
        fleet.close(&admin, &mut NoWorkload)?;
        Ok(fleet)
    }

    /// The messages of a stream, in the version that this run sends.
    fn template(&self, tool: &str, arguments: Value, run: &str, stream: usize) -> (Template, ExpectedContent) {
        let (template, content) = Template::new(tool, arguments, run, stream, self.size);
        match self.lenses {
            Lenses::Older => (template.in_newer_version(), content),
            Lenses::None | Lenses::Same => (template, content),
        }
    }

    /// The names are the same in each run, so that a run resumes the sessions of the previous one.
    pub fn name(&self, part: &str, index: usize) -> String {
        format!("{}-{part}-{index}", self.names)
    }

    fn roles(&self, part: &str, count: usize, adapt: impl Fn(ClientSpec) -> ClientSpec) -> Vec<ClientSpec> {
        (0..count)
            .map(|index| adapt(ClientSpec::named(self.name(part, index))))
            .collect()
    }

    pub fn log_in(
        &self,
        fleet: &mut Fleet,
        part: &str,
        count: usize,
        adapt: impl Fn(ClientSpec) -> ClientSpec,
    ) -> Result<Vec<usize>> {
        fleet.open(self.roles(part, count, adapt), LOGINS_IN_FLIGHT_MAX, &mut NoWorkload)
    }
}

/// A workload that runs until it is stopped.
trait MeasuredWorkload: Workload {
    fn start(&mut self, now: Nanos, out: &mut Outbox) -> Result<()>;
    /// Starts counting.
    fn begin(&mut self);
    /// Stops counting and sending.
    fn stop(&mut self);
    /// Whether no message is in flight.
    fn is_drained(&self) -> bool;
}

/// Warms up, measures, and waits for the messages in flight. The workload reports missing messages as lost.
fn measure<W: MeasuredWorkload>(fleet: &mut Fleet, bench: &RunContext, workload: &mut W) -> Result<Measurement> {
    let now = fleet.now();
    workload.start(now, fleet.outbox())?;
    fleet.run_for(bench.warm_up, "warming up", workload)?;
    workload.begin();
    let meter = MeasurementStart::start(fleet, bench)?;
    fleet.run_for(bench.seconds, "measuring", workload)?;
    let span = meter.stop(fleet)?;
    workload.stop();
    match fleet.run_until("waiting for the messages in flight", workload, W::is_drained) {
        Err(LoadError::Stalled { .. }) => Ok(span),
        other => other.map(|()| span),
    }
}

/// The readings at the start of a measurement.
struct MeasurementStart<'a> {
    bench: &'a RunContext,
    at: Nanos,
    server_cpu: Option<Duration>,
    store_cpu: Option<Duration>,
    own_cpu: Duration,
}

impl<'a> MeasurementStart<'a> {
    fn start(fleet: &Fleet, bench: &'a RunContext) -> Result<Self> {
        Ok(Self {
            bench,
            at: fleet.now(),
            server_cpu: bench.server.cpu()?,
            store_cpu: bench.store.cpu()?,
            own_cpu: process::own_cpu(),
        })
    }

    fn stop(&self, fleet: &Fleet) -> Result<Measurement> {
        let since = |end: Option<Duration>, start| end.zip(start).map(|(end, start)| end.saturating_sub(start));
        Ok(Measurement {
            time: Duration::from_nanos(fleet.now() - self.at),
            server_cpu: since(self.bench.server.cpu()?, self.server_cpu),
            store_cpu: since(self.bench.store.cpu()?, self.store_cpu),
            own_cpu: process::own_cpu().saturating_sub(self.own_cpu),
            resident_kib: self.bench.server.resident_kib()?,
        })
    }
}

/// The resources that a measurement used.
pub struct Measurement {
    time: Duration,
    server_cpu: Option<Duration>,
    store_cpu: Option<Duration>,
    own_cpu: Duration,
    resident_kib: Option<u64>,
}

impl Measurement {
    fn per_second(&self, count: u64) -> f64 {
        rate(count, self.time)
    }

    fn server_cores(&self) -> Option<f64> {
        self.server_cpu.map(|cpu| cpu.as_secs_f64() / self.time.as_secs_f64())
    }

    fn server_cpu_us_per(&self, count: u64) -> Option<f64> {
        self.server_cpu.map(|cpu| micros_per(cpu, count))
    }

    fn store_cpu_us_per(&self, count: u64) -> Option<f64> {
        self.store_cpu.map(|cpu| micros_per(cpu, count))
    }

    /// Adds the cost of a message on both sides. A generator near one core limits the result itself.
    fn costs(&self, report: &mut Report, count: u64) {
        report.add_if_known("server_cpu_us_per_message", self.server_cpu_us_per(count));
        report.add_if_known("server_cores", self.server_cores());
        report.add_if_known("server_resident_kib", self.resident_kib);
        report.add_if_known("store_cpu_us_per_message", self.store_cpu_us_per(count));
        report.add("generator_cpu_us_per_message", micros_per(self.own_cpu, count));
        report.add("generator_cores", self.own_cpu.as_secs_f64() / self.time.as_secs_f64());
    }
}

fn micros_per(cpu: Duration, count: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / float(count.max(1))
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or(0.0)
}
