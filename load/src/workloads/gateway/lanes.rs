//! Lanes: ways that make the same calls in turn, one call at a time.

use std::time::{Duration, Instant};

use super::Bench;
use crate::{
    error::Result,
    process::ServerProcess,
    report::{Latencies, float},
    workloads::micros_per,
};

/// A call with this id; whether its answer was right.
pub type Call<'a> = Box<dyn FnMut(u64) -> Result<bool> + 'a>;

/// A way whose calls are measured.
pub struct Lane<'a> {
    call: Call<'a>,
    /// The process whose processor time counts.
    process: Option<ServerProcess>,
    last_id: u64,
    pub rounds: Vec<Round>,
    pub wrong: u64,
}

/// One round of a lane, in µs.
pub struct Round {
    pub p50: f64,
    pub p99: f64,
    pub mean: f64,
    /// Processor time of the process for a call.
    pub cpu: f64,
}

impl<'a> Lane<'a> {
    pub fn new(call: impl FnMut(u64) -> Result<bool> + 'a) -> Self {
        Self {
            call: Box::new(call),
            process: None,
            last_id: 1_000,
            rounds: Vec::new(),
            wrong: 0,
        }
    }

    /// Counts the processor time of this process.
    pub fn on(mut self, process: ServerProcess) -> Self {
        self.process = Some(process);
        self
    }

    /// The processor time for a call, of each round; empty if no process counts.
    pub fn cpu(&self) -> Vec<f64> {
        if self.process.is_some() {
            self.all(|round| round.cpu)
        } else {
            vec![]
        }
    }

    /// A figure of each round.
    pub fn all(&self, figure: fn(&Round) -> f64) -> Vec<f64> {
        self.rounds.iter().map(figure).collect()
    }

    fn run_time(&self) -> Result<Duration> {
        self.process.map_or(Ok(Duration::ZERO), ServerProcess::run_time)
    }

    fn round(&mut self, calls: usize) -> Result<Round> {
        let mut latencies = Latencies::default();
        let before = self.run_time()?;
        let begun = Instant::now();
        let mut last = begun;
        for _ in 0..calls {
            self.last_id += 1;
            self.wrong += u64::from(!(self.call)(self.last_id)?);
            let answered = Instant::now();
            latencies.record(u64::try_from((answered - last).as_nanos()).unwrap_or(u64::MAX));
            last = answered;
        }
        let took = last - begun;
        let cpu = self.run_time()?.saturating_sub(before);
        Ok(Round {
            p50: latencies.micros(0.5),
            p99: latencies.micros(0.99),
            mean: took.as_secs_f64() * 1e6 / float(calls as u64),
            cpu: micros_per(cpu, calls as u64),
        })
    }
}

/// Has all lanes take turns, with a round before that does not count. Returns the number of wrong answers.
pub fn take_turns(bench: &Bench<'_>, calls: usize, lanes: &mut [&mut Lane<'_>]) -> Result<u64> {
    for round in 0..=bench.options.rounds {
        for lane in &mut *lanes {
            let found = lane.round(calls)?;
            if round > 0 {
                lane.rounds.push(found);
            }
        }
    }
    Ok(lanes.iter().map(|lane| lane.wrong).sum())
}
