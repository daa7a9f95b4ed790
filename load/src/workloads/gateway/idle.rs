//! Many backends while nothing happens: what they cost the broker.

use std::thread;

use super::{
    Bench, Findings, Row,
    comparison::{Comparison, Goal},
    setup::Backends,
};
use crate::{
    error::Result,
    process::{ServerProcess, children},
    report::float,
    workloads::median,
};

pub fn run(bench: &Bench<'_>) -> Result<Findings> {
    let count = usize::from(bench.options.backends);
    let mut backends = Backends::default();
    for at in 0..count {
        backends = backends.echo(&format!("b{at}"), 0)?;
    }
    let without = Backends::default().behind(bench, "idle-0")?;
    let with = backends.behind(bench, "idle")?;
    let seconds = bench.context.seconds;
    // Periodic work ends once nothing has happened for a while.
    thread::sleep(2 * seconds);
    let of_both = |figure: fn(ServerProcess) -> Result<f64>| -> Result<[f64; 2]> {
        Ok([figure(without.process()?)?, figure(with.process()?)?])
    };
    let run_time = |process: ServerProcess| Ok(process.run_time()?.as_secs_f64());
    let wakeups = |process: ServerProcess| Ok(float(process.wakeups()?));
    let (time_before, wakeups_before) = (of_both(run_time)?, of_both(wakeups)?);
    thread::sleep(seconds);
    let (time, wakeups) = (of_both(run_time)?, of_both(wakeups)?);
    let per_second = |of: [f64; 2], before: [f64; 2], at: usize| vec![(of[at] - before[at]) / seconds.as_secs_f64()];
    let percent = |at| {
        per_second(time, time_before, at)
            .into_iter()
            .map(|share| share * 100.0)
            .collect()
    };
    let woken = |at| per_second(wakeups, wakeups_before, at);

    let [alone, all] = of_both(|process| Ok(float(process.resident_kib()?.unwrap_or(0))))?;
    let mut resident = vec![];
    let mut private = vec![];
    for keeper in children(with.process()?)? {
        if let Some(memory) = keeper.memory()? {
            resident.push(float(memory.resident));
            private.push(float(memory.private));
        }
    }
    let of_keeper = |figure, kib: Vec<f64>| Comparison::new(Row::Idle, figure, vec![], vec![median(kib)]);
    let of_backend = vec![(all - alone) / float(count as u64)];
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
