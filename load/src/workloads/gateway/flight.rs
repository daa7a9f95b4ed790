//! Many calls in flight on one connection to one backend.

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};

use memchr::memmem;
use serde_json::json;

use super::{
    Bench, Findings, Row,
    comparison::{Comparison, Goal},
    setup::{Backends, Template, echo, payload},
};
use crate::{
    error::Result,
    messages::read_reply,
    report::rate,
    workloads::{micros_per, way::Way},
};

/// Calls in flight.
const IN_FLIGHT: u64 = 64;
/// Calls of a round for each one of the other rows.
const TIMES: u64 = 20;

/// A way on which many calls are in flight.
struct Flight<'a, W, R> {
    way: &'a mut Way<W, R>,
    request: Template,
    text: String,
    last_id: u64,
    wrong: u64,
}

impl<'a, W: Write, R: Read> Flight<'a, W, R> {
    fn new(way: &'a mut Way<W, R>, tool: &str, len: usize) -> Self {
        let text = payload(len);
        Self {
            way,
            request: Template::call(tool, &json!({"text": text}), false),
            text,
            last_id: 1_000,
            wrong: 0,
        }
    }

    /// Makes this many calls, and returns the time until the last one was answered. A new one follows each answer, those of
    /// one read in one write.
    fn round(&mut self, calls: u64) -> Result<Duration> {
        let begun = Instant::now();
        let first = self.last_id + 1;
        let (mut sent, mut answered, mut due) = (0, 0, IN_FLIGHT.min(calls));
        let (mut sum, mut out) = (0, Vec::new());
        while answered < calls {
            if due > 0 && !self.way.has_line() {
                out.clear();
                for _ in 0..due {
                    self.last_id += 1;
                    self.request.append(self.last_id, &mut out);
                    out.push(b'\n');
                }
                sent += due;
                due = 0;
                self.way.send(&out)?;
            }
            let line = self.way.next_line()?;
            let Some(reply) = read_reply(line) else { continue };
            let is_right = !reply.failed && memmem::find(line, self.text.as_bytes()).is_some();
            self.wrong += u64::from(!is_right);
            sum += reply.id;
            answered += 1;
            due += u64::from(sent + due < calls);
        }
        // Each call was answered once.
        self.wrong += u64::from(sum != (first..=self.last_id).sum::<u64>());
        Ok(begun.elapsed())
    }
}

pub fn run(bench: &Bench<'_>) -> Result<Findings> {
    let broker = Backends::default().echo("echo", 0)?.behind(bench)?;
    let (mut echo, mut client) = (echo()?, broker.client()?);
    let size = bench.context.size;
    let mut direct = Flight::new(&mut echo.way, "echo", size);
    let mut through = Flight::new(&mut client, "echo__echo", size);
    let process = broker.process()?;
    let calls = bench.options.calls as u64 * TIMES;
    let (mut alone, mut shared, mut cpu) = (vec![], vec![], vec![]);
    for round in 0..=bench.options.rounds {
        let direct = direct.round(calls)?;
        let before = process.run_time()?;
        let through = through.round(calls)?;
        let spent = process.run_time()?.saturating_sub(before);
        if round > 0 {
            alone.push(rate(calls, direct));
            shared.push(rate(calls, through));
            cpu.push(micros_per(spent, calls));
        }
    }
    Ok(Findings {
        comparisons: vec![
            Comparison::new(Row::Flight, "calls_per_second", alone, shared).aims_at(Goal::RatioAtLeast(0.7)),
            Comparison::new(Row::Flight, "broker_cpu_us", vec![], cpu).aims_at(Goal::AtMost(10.0)),
        ],
        wrong_answers: direct.wrong + through.wrong,
        ..Findings::default()
    })
}
