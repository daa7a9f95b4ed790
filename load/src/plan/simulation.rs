//! Messages on their way through workers and Redis, one event at a time. Deterministic: a run depends on its arguments alone.
//!
//! A *station* is what does one thing at a time: a worker of a replica, or a Redis. A step costs less at a station that is
//! busy, because what has gathered is done together, and more at one that has slept; all three costs are measured. Time on the
//! network is not part of it.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

/// How long a station has nothing to do until it sleeps, in nanoseconds.
const AWAKE: f64 = 1e6;

/// The processor time of a step in nanoseconds: at a station that sleeps, at an idle one, and at a busy one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step {
    pub cold: f64,
    pub alone: f64,
    pub busy: f64,
}

impl Step {
    pub fn micros(cold: f64, alone: f64, busy: f64) -> Self {
        Self {
            cold: cold * 1000.0,
            alone: alone * 1000.0,
            busy: busy * 1000.0,
        }
    }
}

/// The deployment, and what the steps of a message cost in it.
#[derive(Clone, Copy, Debug)]
pub struct Deployment {
    pub replicas: usize,
    pub workers: usize,
    /// Redis servers; none for one replica that keeps everything in memory.
    pub stores: usize,
    pub projects: usize,
    /// Workers among which the recipients of a project are divided. Today the broker has one.
    pub shards: usize,
    /// Agents of a project connect to one replica.
    pub by_project: bool,
    /// Recipients of a message.
    pub fan_out: usize,
    /// Reading and checking a message, at the worker of the sender's connection.
    pub take: Step,
    /// Routing it, at the worker of the project.
    pub route: Step,
    /// Storing it, in Redis. The acknowledgement takes as much again.
    pub store: Step,
    /// Writing it, at the worker of the recipient's connection.
    pub write: Step,
    /// What a message costs more whose recipient is at another replica.
    pub cross: Step,
    /// What a step to another worker costs more.
    pub hop: Step,
}

/// How messages begin.
#[derive(Clone, Copy, Debug)]
pub enum Arrival {
    /// At random, so many a second.
    PerSecond(f64),
    /// Always so many in flight: each begins when one has arrived.
    InFlight(usize),
}

/// What a run has shown.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// The share of the time for which the busiest worker, and the busiest Redis, had work.
    pub worker: f64,
    pub store: f64,
}

/// The random numbers of a run (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// A number above 0 and at most 1.
    #[expect(clippy::cast_precision_loss)]
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Take,
    Route,
    Store,
    Write { station: usize, recipients: usize },
    Acknowledge,
}

struct Message {
    began: f64,
    project: usize,
    /// The replica and the worker of the sender's connection.
    replica: usize,
    worker: usize,
    /// The worker that routes it.
    router: usize,
    /// Writes that are not done.
    open: usize,
}

struct Event {
    at: f64,
    /// Events of one time keep their order.
    number: u64,
    message: usize,
    stage: Stage,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

#[derive(Clone, Copy, Default)]
struct Station {
    free_at: f64,
    worked: f64,
}

struct Run<'a> {
    deployment: &'a Deployment,
    random: Random,
    /// The workers of all replicas, then the Redis servers.
    stations: Vec<Station>,
    events: BinaryHeap<Reverse<Event>>,
    number: u64,
    messages: Vec<Message>,
    latencies: Vec<f64>,
}

/// Runs so many messages.
pub fn run(deployment: &Deployment, arrival: Arrival, count: usize) -> Outcome {
    let workers = deployment.replicas * deployment.workers;
    let mut run = Run {
        deployment,
        random: Random(1),
        stations: vec![Station::default(); workers + deployment.stores],
        events: BinaryHeap::new(),
        number: 0,
        messages: Vec::with_capacity(count),
        latencies: Vec::with_capacity(count),
    };
    let mut at = 0.0;
    match arrival {
        Arrival::PerSecond(rate) => {
            for _ in 0..count {
                at -= run.random.share().ln() * 1e9 / rate;
                run.begin(at);
            }
        }
        Arrival::InFlight(window) => (0..window.min(count)).for_each(|_| run.begin(0.0)),
    }
    let mut end = 0.0;
    while let Some(Reverse(event)) = run.events.pop() {
        if let Some(done_at) = run.step(&event) {
            end = f64::max(end, done_at);
            if matches!(arrival, Arrival::InFlight(_)) && run.messages.len() < count {
                run.begin(done_at);
            }
        }
    }
    run.outcome(end, workers)
}

impl Run<'_> {
    fn begin(&mut self, at: f64) {
        let Deployment {
            replicas,
            workers,
            projects,
            shards,
            by_project,
            ..
        } = *self.deployment;
        let project = self.random.below(projects);
        let replica = if by_project {
            project % replicas
        } else {
            self.random.below(replicas)
        };
        let shard = self.random.below(shards);
        self.messages.push(Message {
            began: at,
            project,
            replica,
            worker: self.random.below(workers),
            router: (project + shard) % workers,
            open: 0,
        });
        self.push(at, self.messages.len() - 1, Stage::Take);
    }

    fn push(&mut self, at: f64, message: usize, stage: Stage) {
        self.number += 1;
        self.events.push(Reverse(Event {
            at,
            number: self.number,
            message,
            stage,
        }));
    }

    /// Takes a step at its station, and lets the next one follow. Returns when the message has arrived, if it has.
    fn step(&mut self, event: &Event) -> Option<f64> {
        let deployment = self.deployment;
        let message = &self.messages[event.message];
        let base = message.replica * deployment.workers;
        let store = deployment.replicas * deployment.workers + message.project % deployment.stores.max(1);
        match event.stage {
            Stage::Take => {
                let station = base + message.worker;
                let end = self.work(station, event.at, &[deployment.take], 1);
                self.push(end, event.message, Stage::Route);
            }
            Stage::Route => {
                let hops = usize::from(message.router != message.worker);
                let station = base + message.router;
                let end = self.work(station, event.at, &[deployment.route, deployment.hop][..=hops], 1);
                if deployment.stores > 0 {
                    self.push(end, event.message, Stage::Store);
                } else {
                    self.write_to_all(end, event.message);
                }
            }
            Stage::Store => {
                let end = self.work(store, event.at, &[deployment.store], 1);
                self.write_to_all(end, event.message);
            }
            Stage::Write { station, recipients } => {
                let (replica, worker) = (station / deployment.workers, station % deployment.workers);
                let mut steps = vec![deployment.write];
                if replica != message.replica {
                    steps.push(deployment.cross);
                } else if worker != message.router {
                    steps.push(deployment.hop);
                }
                let end = self.work(station, event.at, &steps, recipients);
                let message = &mut self.messages[event.message];
                message.open -= 1;
                if message.open > 0 {
                    return None;
                }
                self.latencies.push(end - message.began);
                if deployment.stores > 0 {
                    self.push(end, event.message, Stage::Acknowledge);
                }
                return Some(end);
            }
            Stage::Acknowledge => {
                self.work(store, event.at, &[deployment.store], 1);
            }
        }
        None
    }

    /// Spreads the recipients over the workers, and lets each of those write.
    fn write_to_all(&mut self, at: f64, message: usize) {
        let Deployment {
            replicas,
            workers,
            by_project,
            fan_out,
            ..
        } = *self.deployment;
        let home = self.messages[message].replica;
        let mut recipients = BTreeMap::new();
        for _ in 0..fan_out.max(1) {
            let replica = if by_project { home } else { self.random.below(replicas) };
            let station = replica * workers + self.random.below(workers);
            *recipients.entry(station).or_insert(0) += 1;
        }
        self.messages[message].open = recipients.len();
        for (station, recipients) in recipients {
            self.push(at, message, Stage::Write { station, recipients });
        }
    }

    /// Works at a station, after what has come before. Returns the end.
    fn work(&mut self, station: usize, at: f64, steps: &[Step], times: usize) -> f64 {
        let station = &mut self.stations[station];
        let cost = |step: &Step| match at - station.free_at {
            idle if idle < 0.0 => step.busy,
            idle if idle < AWAKE => step.alone,
            _ => step.cold,
        };
        let times = f64::from(u32::try_from(times).unwrap_or(u32::MAX));
        let time: f64 = steps.iter().map(cost).sum();
        station.free_at = station.free_at.max(at) + time * times;
        station.worked += time * times;
        station.free_at
    }

    fn outcome(mut self, end: f64, workers: usize) -> Outcome {
        self.latencies.sort_unstable_by(f64::total_cmp);
        let quantile = |share: f64| {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss
            )]
            let at = (self.latencies.len() as f64 * share) as usize;
            self.latencies.get(at).copied().unwrap_or(0.0) / 1000.0
        };
        let busiest = |stations: &[Station]| stations.iter().map(|station| station.worked / end).fold(0.0, f64::max);
        #[expect(clippy::cast_precision_loss)]
        let per_second = self.latencies.len() as f64 * 1e9 / end.max(1.0);
        Outcome {
            per_second,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            worker: busiest(&self.stations[..workers]),
            store: busiest(&self.stations[workers..]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn step(alone: f64, busy: f64) -> Step {
        Step {
            cold: alone,
            alone,
            busy,
        }
    }

    /// One worker that takes 10 µs for a message, and no Redis.
    const ONE: Deployment = Deployment {
        replicas: 1,
        workers: 1,
        stores: 0,
        projects: 1,
        shards: 1,
        by_project: false,
        fan_out: 1,
        take: step(4e3, 4e3),
        route: step(2e3, 2e3),
        store: step(0.0, 0.0),
        write: step(4e3, 4e3),
        cross: step(0.0, 0.0),
        hop: step(0.0, 0.0),
    };

    fn is_near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 0.05
    }

    #[test]
    fn a_message_alone_takes_the_sum_of_its_steps() {
        let outcome = run(&ONE, Arrival::InFlight(1), 1000);
        assert!(
            is_near(outcome.p50_us, 10.0) && is_near(outcome.per_second, 1e5),
            "{outcome:?}"
        );
        assert!(is_near(outcome.worker, 1.0) && outcome.store == 0.0, "{outcome:?}");
    }

    #[test]
    fn an_open_loop_uses_the_share_that_the_sum_says_and_waits_longer_when_it_is_full() {
        let quiet = run(&ONE, Arrival::PerSecond(1e4), 20_000);
        let full = run(&ONE, Arrival::PerSecond(9e4), 20_000);
        assert!(
            is_near(quiet.worker, 0.1) && is_near(full.worker, 0.9),
            "{quiet:?} {full:?}"
        );
        assert!(full.p99_us > 5.0 * quiet.p99_us, "{quiet:?} {full:?}");
    }

    #[test]
    fn a_station_that_slept_takes_longer() {
        let sleepy = Deployment {
            take: Step { cold: 50e3, ..ONE.take },
            ..ONE
        };
        let outcome = run(&sleepy, Arrival::PerSecond(100.0), 5000);
        assert!(is_near(outcome.p50_us, 56.0), "{outcome:?}");
    }

    #[test]
    fn gathered_work_is_cheaper() {
        let gathers = Deployment {
            take: step(4e3, 1e3),
            ..ONE
        };
        let full = run(&gathers, Arrival::InFlight(100), 20_000);
        assert!(is_near(full.per_second, 1e9 / 7e3), "{full:?}");
    }

    #[test]
    fn one_project_is_bound_by_its_router_until_its_recipients_are_divided() {
        let sixteen = Deployment { workers: 16, ..ONE };
        let router = run(&sixteen, Arrival::InFlight(500), 50_000);
        // The worker of the project routes all messages, and takes and writes a sixteenth of them.
        assert!(is_near(router.per_second, 1e9 / (2e3 + 8e3 / 16.0)), "{router:?}");
        let divided = run(&Deployment { shards: 16, ..sixteen }, Arrival::InFlight(500), 50_000);
        assert!(divided.per_second > 3.0 * router.per_second, "{router:?} {divided:?}");
    }

    #[test]
    fn redis_is_the_wall_of_many_replicas() {
        let shared = Deployment {
            replicas: 8,
            stores: 1,
            projects: 100,
            store: step(2e3, 2e3),
            ..ONE
        };
        let outcome = run(&shared, Arrival::InFlight(1000), 50_000);
        assert!(
            is_near(outcome.per_second, 1e9 / 4e3) && is_near(outcome.store, 1.0),
            "{outcome:?}"
        );
        let two = run(&Deployment { stores: 2, ..shared }, Arrival::InFlight(1000), 50_000);
        assert!(is_near(two.per_second, 2.0 * outcome.per_second), "{two:?}");
    }

    #[test]
    fn a_run_can_be_repeated() {
        let twice = [0; 2].map(|_| run(&ONE, Arrival::PerSecond(5e4), 5000).p99_us);
        assert!((twice[0] - twice[1]).abs() < f64::EPSILON);
    }
}
