//! Tool calls on one connection, with a fixed number of them in flight.

use serde_json::Value;

use crate::{
    error::{LoadError, Result},
    event_loop::{Nanos, Outbox},
    fleet::{Fleet, Workload},
    messages,
    report::Latencies,
};

/// Above the request ids of the login.
const FIRST_ID: u64 = 100;

struct Calls<F> {
    link: usize,
    tool: &'static str,
    arguments: F,
    sent_at: Vec<Nanos>,
    answered: u64,
    total: usize,
    latencies: Latencies,
}

/// Makes `total` calls with `window` of them in flight, and returns how long each took. `protocol_exists` counts as a
/// success.
pub fn run(
    fleet: &mut Fleet,
    link: usize,
    tool: &'static str,
    total: usize,
    window: usize,
    arguments: impl Fn(usize) -> Value,
) -> Result<Latencies> {
    let latencies = Latencies::default();
    let mut calls = Calls {
        link,
        tool,
        arguments,
        sent_at: Vec::with_capacity(total),
        answered: 0,
        total,
        latencies,
    };
    let now = fleet.now();
    for _ in 0..window.min(total) {
        calls.send(now, fleet.outbox());
    }
    fleet.run_until("waiting for tool calls", &mut calls, |calls| {
        calls.answered == calls.total as u64
    })?;
    Ok(calls.latencies)
}

impl<F: Fn(usize) -> Value> Calls<F> {
    fn send(&mut self, now: Nanos, out: &mut Outbox) {
        let index = self.sent_at.len();
        let text = messages::call(FIRST_ID + index as u64, self.tool, &(self.arguments)(index));
        out.text(self.link, text.as_bytes());
        self.sent_at.push(now);
    }
}

impl<F: Fn(usize) -> Value> Workload for Calls<F> {
    fn frame(&mut self, link: usize, frame: &[u8], now: Nanos, out: &mut Outbox) -> Result<()> {
        let Some(reply) = messages::read_reply(frame).filter(|_| link == self.link) else {
            return Ok(());
        };
        let index = reply
            .id
            .checked_sub(FIRST_ID)
            .and_then(|index| usize::try_from(index).ok());
        let Some(sent_at) = index.and_then(|index| self.sent_at.get(index)) else {
            return Ok(());
        };
        if reply.failed && messages::error_code(frame).as_deref() != Some("protocol_exists") {
            return Err(LoadError::refused(self.tool, frame));
        }
        self.latencies.record(now - sent_at);
        self.answered += 1;
        if self.sent_at.len() < self.total {
            self.send(now, out);
        }
        Ok(())
    }

    fn progress(&self) -> u64 {
        self.answered
    }
}
