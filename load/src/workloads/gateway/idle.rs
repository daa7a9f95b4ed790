//! Many backends while nothing happens: what they cost the broker.

use std::thread;

use super::{
    Bench, Findings, Row,
    comparison::{Comparison, Goal},
    setup::Backends,
};
use crate::{
    error::{LoadError, Result},
    process::{ServerProcess, children},
    report::float,
    workloads::median,
};

/// What a process has cost so far.
struct Reading {
    /// In seconds.
    run_time: f64,
    wakeups: f64,
    resident_kib: f64,
}

impl Reading {
    fn of(process: ServerProcess) -> Result<Self> {
        Ok(Self {
            run_time: process.run_time()?.as_secs_f64(),
            wakeups: float(process.wakeups()?),
            resident_kib: float(process.resident_kib()?.unwrap_or(0)),
        })
    }
}

pub fn run(bench: &Bench<'_>) -> Result<Findings> {
    let count = usize::from(bench.options.backends);
    let mut backends = Backends::default();
    for at in 0..count {
        backends = backends.echo(&format!("b{at}"), 0)?;
    }
    let without = Backends::default().behind(bench)?;
    let with = backends.behind(bench)?;
    let seconds = bench.context.seconds;
    // Periodic work ends once nothing has happened for a while.
    thread::sleep(2 * seconds);
    let (without_process, with_process) = (without.process()?, with.process()?);
    let read = || Ok::<_, LoadError>([Reading::of(without_process)?, Reading::of(with_process)?]);
    let before = read()?;
    thread::sleep(seconds);
    let after = read()?;
    let per_second = |of: fn(&Reading) -> f64, at: usize| {
        let change = of(&after[at]) - of(&before[at]);
        vec![change / seconds.as_secs_f64()]
    };
    let percent = |at| per_second(|reading| reading.run_time * 100.0, at);
    let woken = |at| per_second(|reading| reading.wakeups, at);

    let mut resident = vec![];
    let mut private = vec![];
    for keeper in children(with_process)? {
        if let Some(memory) = keeper.memory()? {
            resident.push(float(memory.resident));
            private.push(float(memory.private));
        }
    }
    let of_keeper = |figure, kib: Vec<f64>| Comparison::new(Row::Idle, figure, vec![], vec![median(kib)]);
    let of_backend = vec![(after[1].resident_kib - after[0].resident_kib) / float(count as u64)];
    Ok(Findings {
        comparisons: vec![
            Comparison::new(Row::Idle, "cpu_percent", percent(0), percent(1)).aims_at(Goal::AtMost(0.1)),
            Comparison::new(Row::Idle, "wakeups_per_second", woken(0), woken(1)),
            Comparison::new(Row::Idle, "kib_per_backend", vec![], of_backend).aims_at(Goal::AtMost(256.0)),
            of_keeper("keeper_private_kib", private).aims_at(Goal::AtMost(1_536.0)),
            // With pages of the binary, which the broker has in memory anyway.
            of_keeper("keeper_resident_kib", resident),
        ],
        ..Findings::default()
    })
}
