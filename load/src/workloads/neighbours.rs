//! The effect of a project that exceeds its limits on another project.

use std::time::Duration;

use super::{
    RunContext,
    direct::{Direct, Pace, Pairs},
    measure, median,
};
use crate::{
    admin_api::{AdminClient, TemporaryProject},
    error::{LoadError, Result},
    event_loop::nanos,
    fleet::{Fleet, Push},
    flood::{Flood, FloodCounts, FloodKind, FloodSize},
    messages,
    report::{Figure, Report, float},
    tracker::Faults,
};

/// The largest allowed ratio between the p99 latencies of the quiet project with and without a flood.
const P99_RATIO_MAX: f64 = 2.0;

/// How long the run waits for the broker to refuse a request of the flood.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after a flood of a project whose key was given, before the next flood.
const RECOVERY_TIME: Duration = Duration::from_secs(10);

const PUSH: Push = Push {
    window: 64,
    manual: false,
};

#[derive(clap::Args)]
pub struct Options {
    /// Admin key, to create the two projects and to delete them at the end. Prefer the environment
    #[arg(long, env = "MCP_BROKER_ADMIN_KEY", hide_env_values = true)]
    admin_key: Option<String>,
    /// Key of a project with a rate limit, in place of a created one. Prefer the environment
    #[arg(long, env = "MCP_LOAD_NOISY_KEY", hide_env_values = true, requires = "quiet_key")]
    noisy_key: Option<String>,
    /// Key of a project without a rate limit. Prefer the environment
    #[arg(long, env = "MCP_LOAD_QUIET_KEY", hide_env_values = true, requires = "noisy_key")]
    quiet_key: Option<String>,
    /// Requests per minute of the noisy project, if it is created
    #[arg(long, default_value_t = 6000, value_parser = clap::value_parser!(u32).range(1..))]
    rate_limit: u32,
    /// What the noisy project floods the broker with, one kind after the other; all by default
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        FloodKind::Nothing, FloodKind::Messages, FloodKind::Large, FloodKind::Garbage, FloodKind::Notifications, FloodKind::Http, FloodKind::Schemas,
        FloodKind::Answers, FloodKind::Largest, FloodKind::Unfinished,
    ])]
    flood: Vec<FloodKind>,
    /// Connections of the noisy project
    #[arg(long, default_value_t = 50, value_parser = crate::at_least_one)]
    connections: usize,
    /// Requests in flight on each of them
    #[arg(long, default_value_t = 64, value_parser = crate::at_least_one)]
    window: usize,
    /// Bytes of a frame of the flood of large messages
    #[arg(long, default_value_t = 1 << 20, value_parser = crate::at_least_one)]
    large: usize,
    /// Bytes of a frame of the floods of the largest messages
    #[arg(long, default_value_t = 10_000_000, value_parser = crate::at_least_one)]
    largest: usize,
    /// Senders of the quiet project, each with a recipient of its own
    #[arg(long, default_value_t = 10, value_parser = crate::at_least_one)]
    pairs: usize,
    /// Messages per second of all of them together, sent on time even if the broker falls behind
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    rate: u64,
    /// Measurements without and with each flood, in turn
    #[arg(long, default_value_t = 5, value_parser = crate::at_least_one)]
    rounds: usize,
}

pub fn run(bench: &RunContext, options: &Options) -> Result<Report> {
    let source = ProjectSource::new(bench, options)?;
    let (quiet_key, _quiet) = source.quiet()?;
    let of_key = |key: &str| -> Result<RunContext> {
        Ok(RunContext {
            targets: vec![bench.target().with(&[("X-API-Key", key)])?],
            ..bench.clone()
        })
    };
    let quiet_bench = of_key(&quiet_key)?;
    let size = FloodSize {
        connections: options.connections,
        window: options.window,
        large: options.large,
        largest: options.largest,
    };
    // Connections of both projects are open at once.
    crate::process::allow_connections(2 * options.pairs + options.connections + 2)?;
    let mut fleet = quiet_bench.fleet(2 * options.pairs)?;
    let mut beside = QuietProject {
        pairs: Pairs::open(&quiet_bench, &mut fleet, options.pairs, PUSH)?,
        bench: &quiet_bench,
        rate: options.rate,
        faults: Faults::default(),
    };

    let mut report = Report::new("neighbours");
    report.add("quiet_pairs", options.pairs);
    report.add("quiet_messages_per_second", options.rate);
    report.add("noisy_connections", options.connections);
    report.add("noisy_window", options.window);
    if options.noisy_key.is_none() {
        report.add("noisy_rate_limit_per_minute", u64::from(options.rate_limit));
    }
    report.add("rounds", options.rounds);
    report.add("p99_ratio_max", P99_RATIO_MAX);
    for &kind in &options.flood {
        let (noisy_key, _noisy) = source.noisy(&mut fleet, kind)?;
        let mut flood = Flood::open(kind, size, &of_key(&noisy_key)?)?;
        let rounds = (0..options.rounds)
            .map(|_| beside.round(&mut fleet, &mut flood))
            .collect::<Result<Vec<_>>>()?;
        report.row(row(kind, &rounds));
    }
    beside.faults.describe(&mut report);
    Ok(report)
}

/// Where the two projects come from.
enum ProjectSource {
    Made {
        admin: AdminClient,
        tag: String,
        rate_limit: u32,
    },
    Given {
        noisy: String,
        quiet: String,
    },
}

/// The API key of a project, and the project if the run created it (and deletes it at the end).
type KeyedProject = (String, Option<TemporaryProject>);

impl ProjectSource {
    fn new(bench: &RunContext, options: &Options) -> Result<Self> {
        if let (Some(noisy), Some(quiet)) = (&options.noisy_key, &options.quiet_key) {
            return Ok(Self::Given {
                noisy: noisy.clone(),
                quiet: quiet.clone(),
            });
        }
        let key = options.admin_key.as_deref().ok_or_else(|| {
            LoadError::Arguments("an admin key is needed, or the keys of two projects: see --help".into())
        })?;
        Ok(Self::Made {
            admin: AdminClient::new(bench.target().address, key),
            tag: messages::fresh_tag(),
            rate_limit: options.rate_limit,
        })
    }

    fn quiet(&self) -> Result<KeyedProject> {
        match self {
            Self::Made { admin, tag, .. } => Ok(made(admin.create(&format!("load-quiet-{tag}"), 0)?)),
            Self::Given { quiet, .. } => Ok((quiet.clone(), None)),
        }
    }

    /// A created project per flood, each with an unused rate limit (it can log in); or the given project.
    fn noisy(&self, fleet: &mut Fleet, kind: FloodKind) -> Result<KeyedProject> {
        match self {
            Self::Made { admin, tag, rate_limit } => {
                Ok(made(admin.create(&format!("load-{}-{tag}", kind.name()), *rate_limit)?))
            }
            Self::Given { noisy, .. } => {
                fleet.idle_for(RECOVERY_TIME)?;
                Ok((noisy.clone(), None))
            }
        }
    }
}

fn made(project: TemporaryProject) -> KeyedProject {
    (project.key.clone(), Some(project))
}

/// The quiet project and its load.
struct QuietProject<'a> {
    bench: &'a RunContext,
    pairs: Pairs,
    rate: u64,
    faults: Faults,
}

/// The quiet project once without and once with the flood.
struct Round {
    quiet: QuietFigures,
    flooded: QuietFigures,
    /// Requests of the flood per second.
    accepted: f64,
    refused: f64,
    failed: f64,
    /// Since the flood began.
    refused_in_all: u64,
    lost: u64,
}

struct QuietFigures {
    p50_us: f64,
    p99_us: f64,
    server_cores: Option<f64>,
}

impl QuietProject<'_> {
    fn round(&mut self, fleet: &mut Fleet, flood: &mut Flood) -> Result<Round> {
        let quiet = self.load(fleet)?;
        flood.set_on(true);
        self.wait_for_refusals(fleet, flood)?;
        let (began, before) = (fleet.now(), flood.counts());
        let flooded = self.load(fleet)?;
        let (ended, after) = (fleet.now(), flood.counts());
        flood.set_on(false);
        fleet.idle_for(self.bench.warm_up)?;
        flood.check()?;
        let seconds = float(ended - began) / 1e9;
        let per_second = |of: fn(&FloodCounts) -> u64| float(of(&after) - of(&before)) / seconds;
        Ok(Round {
            quiet,
            flooded,
            accepted: per_second(|tally| tally.accepted),
            refused: per_second(|tally| tally.refused),
            failed: per_second(|tally| tally.failed),
            refused_in_all: after.refused,
            lost: after.lost,
        })
    }

    /// The requests of a whole minute may be accepted at once; the measurement starts after that.
    fn wait_for_refusals(&self, fleet: &mut Fleet, flood: &Flood) -> Result<()> {
        let refused = flood.counts().refused;
        let until = fleet.now() + nanos(REFUSAL_TIMEOUT);
        fleet.idle_for(self.bench.warm_up)?;
        while flood.makes_requests() && flood.counts().refused == refused && fleet.now() < until {
            fleet.idle_for(self.bench.warm_up.max(Duration::from_millis(100)))?;
        }
        Ok(())
    }

    fn load(&mut self, fleet: &mut Fleet) -> Result<QuietFigures> {
        let mut direct = Direct::new(self.bench, &self.pairs, Pace::Rate(self.rate));
        let span = measure(fleet, self.bench, &mut direct)?;
        self.faults.add(direct.faults());
        Ok(QuietFigures {
            p50_us: direct.delivery.micros(0.5),
            p99_us: direct.delivery.micros(0.99),
            server_cores: span.server_cores(),
        })
    }
}

/// The medians of the rounds. The ratio is the median of the ratios of each round.
fn row(kind: FloodKind, rounds: &[Round]) -> Vec<(&'static str, Figure)> {
    let of = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
    let p99_ratio = of(&|round| round.flooded.p99_us / round.quiet.p99_us.max(f64::MIN_POSITIVE));
    let cores = |of: fn(&Round) -> &QuietFigures| {
        let known: Option<Vec<_>> = rounds.iter().map(|round| of(round).server_cores).collect();
        known.map(median)
    };
    let mut row = vec![
        ("flood", kind.name().into()),
        ("quiet_p50_us", Figure::Micro(of(&|round| round.quiet.p50_us))),
        ("flooded_p50_us", Figure::Micro(of(&|round| round.flooded.p50_us))),
        ("quiet_p99_us", Figure::Micro(of(&|round| round.quiet.p99_us))),
        ("flooded_p99_us", Figure::Micro(of(&|round| round.flooded.p99_us))),
        ("p99_ratio", p99_ratio.into()),
        ("within", (p99_ratio <= P99_RATIO_MAX).into()),
        ("accepted_per_second", of(&|round| round.accepted).into()),
        ("refused_per_second", of(&|round| round.refused).into()),
        ("failed_per_second", of(&|round| round.failed).into()),
        (
            "refused_in_all",
            rounds.last().map_or(0, |round| round.refused_in_all).into(),
        ),
        ("connections_lost", rounds.last().map_or(0, |round| round.lost).into()),
    ];
    row.extend(cores(|round| &round.quiet).map(|cores| ("quiet_server_cores", cores.into())));
    row.extend(cores(|round| &round.flooded).map(|cores| ("flooded_server_cores", cores.into())));
    row
}
