//! The throughput of the same messages with a growing number of protocols and sessions. The cost of a message must not
//! grow.

use super::{
    RunContext, calls,
    direct::{Direct, Pace, Pairs, PushOptions},
    measure,
};
use crate::{
    error::{LoadError, Result},
    fleet::{Fleet, LOGINS_IN_FLIGHT_MAX, NoWorkload},
    messages,
    report::{Figure, Report},
    tracker::Faults,
};

#[derive(clap::Args)]
pub struct Options {
    /// The numbers of protocols, and then of idle sessions, at the measurements; growing
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 10_000], value_parser = crate::at_least_one)]
    steps: Vec<usize>,
    /// Measurements at each step; the median counts
    #[arg(long, default_value_t = 3, value_parser = crate::at_least_one)]
    rounds: usize,
    /// Senders, each with a recipient of its own
    #[arg(long, default_value_t = 4, value_parser = crate::at_least_one)]
    pairs: usize,
    /// Messages of a pair in flight; 1 sends one at a time
    #[arg(long, default_value_t = 16, value_parser = crate::at_least_one)]
    window: usize,
    #[command(flatten)]
    push: PushOptions,
}

pub fn run(bench: &RunContext, options: &Options) -> Result<Report> {
    if !options.steps.is_sorted() {
        return Err(LoadError::Arguments(
            "--steps must grow: protocols cannot be taken back".into(),
        ));
    }
    let most = options.steps.last().copied().unwrap_or(0);
    let mut fleet = bench.fleet(most + 2 * options.pairs + 1)?;
    let pairs = Pairs::open(bench, &mut fleet, options.pairs, options.push.push())?;
    let admin = bench.log_in(&mut fleet, "admin", 1, |role| role)?[0];

    let mut report = Report::new("growth");
    report.add("pairs", options.pairs);
    report.add("window", options.window);
    report.add("ack", options.push.ack_name());
    let known = bench.server.cpu()?.is_some();
    report.add(
        "cost_is",
        if known {
            "server cpu per message"
        } else {
            "time per message"
        },
    );
    let mut growth = Growth {
        bench,
        options,
        pairs,
        report,
        faults: Faults::default(),
    };
    growth.dimension(&mut fleet, "protocols", "cost_ratio_protocols", |fleet, from, to| {
        let protocol = |index| messages::protocol(&format!("load-many-{}", from + index), "1.0.0");
        calls::run(fleet, admin, "register_protocol", to - from, 64, protocol).map(drop)
    })?;
    growth.dimension(&mut fleet, "sessions", "cost_ratio_sessions", |fleet, from, to| {
        let mut roles = bench.roles("many", to, |role| role.pushed(options.push.push()));
        fleet
            .open(roles.split_off(from), LOGINS_IN_FLIGHT_MAX, &mut NoWorkload)
            .map(drop)
    })?;
    growth.faults.describe(&mut growth.report);
    Ok(growth.report)
}

struct Growth<'a> {
    bench: &'a RunContext,
    options: &'a Options,
    pairs: Pairs,
    report: Report,
    faults: Faults,
}

/// One measurement.
struct Round {
    per_second: f64,
    p50_us: f64,
    p99_us: f64,
    server_cpu_us: Option<f64>,
}

impl Growth<'_> {
    /// Measures at every step. `grow` creates the protocols or sessions from one number to the next.
    fn dimension(
        &mut self,
        fleet: &mut Fleet,
        name: &'static str,
        ratio: &'static str,
        grow: impl Fn(&mut Fleet, usize, usize) -> Result<()>,
    ) -> Result<()> {
        let mut have = 0;
        let mut costs = vec![];
        for &step in &self.options.steps {
            grow(fleet, have, step)?;
            have = step;
            let round = self.median(fleet)?;
            costs.push(round.cost());
            self.report.row(round.row(name, step));
        }
        if let (Some(first), Some(last)) = (costs.first(), costs.last()) {
            // 1: a message costs the same at the last step as at the first; 2: it costs twice as much.
            self.report.add(ratio, last / first.max(f64::MIN_POSITIVE));
        }
        Ok(())
    }

    fn median(&mut self, fleet: &mut Fleet) -> Result<Round> {
        let mut rounds = (0..self.options.rounds)
            .map(|_| self.round(fleet))
            .collect::<Result<Vec<_>>>()?;
        rounds.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        Ok(rounds.swap_remove(self.options.rounds / 2))
    }

    fn round(&mut self, fleet: &mut Fleet) -> Result<Round> {
        let mut direct = Direct::new(self.bench, &self.pairs, Pace::Window(self.options.window));
        let span = measure(fleet, self.bench, &mut direct)?;
        self.faults.add(direct.faults());
        Ok(Round {
            per_second: span.per_second(direct.delivered),
            p50_us: direct.delivery.micros(0.5),
            p99_us: direct.delivery.micros(0.99),
            server_cpu_us: span.server_cpu_us_per(direct.delivered),
        })
    }
}

impl Round {
    /// The cost of a message: processor time of the server if it is known, else time. Only the first is steady on a
    /// machine that has other work.
    fn cost(&self) -> f64 {
        self.server_cpu_us
            .unwrap_or(1e6 / self.per_second.max(f64::MIN_POSITIVE))
    }

    fn row(&self, name: &str, step: usize) -> Vec<(&'static str, Figure)> {
        let mut row = vec![
            ("with", name.into()),
            ("count", step.into()),
            ("messages_per_second", self.per_second.into()),
            ("p50_us", Figure::Micro(self.p50_us)),
            ("p99_us", Figure::Micro(self.p99_us)),
        ];
        row.extend(self.server_cpu_us.map(|cpu| ("server_cpu_us_per_message", cpu.into())));
        row
    }
}
