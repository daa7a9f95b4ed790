//! Good backends beside one that does not read.

use std::cell::RefCell;

use serde_json::json;

use super::{
    Bench, Findings, Row,
    comparison::{Comparison, Goal},
    lanes::{Lane, take_turns},
    setup::{Backends, Template, echo_calls},
};
use crate::{
    error::Result,
    workloads::own_broker::{OwnBroker, SocketWay},
};

/// Backends that answer.
const GOOD: usize = 9;
/// Calls of the hung backend that are open, twice as many as it runs at once.
const OPEN: u64 = 128;

pub fn run(bench: &Bench<'_>) -> Result<Findings> {
    let mut backends = Backends::default().echo("hung", 0)?;
    for at in 0..GOOD {
        backends = backends.echo(&format!("good{at}"), 0)?;
    }
    let broker = backends.behind(bench)?;
    // From here on it reads nothing.
    let mut first = broker.client()?;
    first.send(&lines(&Template::call("hung__hang", &json!({}), false), 1))?;

    // The client whose calls of the hung backend are open. They end with it.
    let waiting: RefCell<Option<SocketWay>> = RefCell::default();
    let calls_of_good = || -> Result<_> {
        let mut calls = vec![];
        for at in 0..GOOD {
            let tool = format!("good{at}__echo");
            calls.push(echo_calls(broker.client()?, &tool, bench.context.size));
        }
        Ok(calls)
    };
    let (mut alone, mut beside) = (calls_of_good()?, calls_of_good()?);
    let mut alone = Lane::new(|id| {
        waiting.take();
        alone[at(id)](id)
    });
    let mut beside = Lane::new(|id| {
        if waiting.borrow().is_none() {
            waiting.replace(Some(hanging(bench, &broker)?));
        }
        beside[at(id)](id)
    });
    let wrong_answers = take_turns(bench, bench.options.calls, &mut [&mut alone, &mut beside])?;
    let p50 = |lane: &Lane<'_>| lane.all(|round| round.p50);
    let p99 = |lane: &Lane<'_>| lane.all(|round| round.p99);
    Ok(Findings {
        comparisons: vec![
            Comparison::new(Row::Hung, "p50_us", p50(&alone), p50(&beside)),
            Comparison::new(Row::Hung, "p99_us", p99(&alone), p99(&beside)).aims_at(Goal::RatioAtMost(1.1)),
        ],
        wrong_answers,
        ..Findings::default()
    })
}

/// The good backends take turns.
fn at(id: u64) -> usize {
    (id % GOOD as u64) as usize
}

/// A client with many calls of the hung backend.
fn hanging(bench: &Bench<'_>, broker: &OwnBroker) -> Result<SocketWay> {
    let mut client = broker.client()?;
    let text = "x".repeat(bench.context.size);
    client.send(&lines(
        &Template::call("hung__echo", &json!({"text": text}), false),
        OPEN,
    ))?;
    Ok(client)
}

fn lines(request: &Template, count: u64) -> Vec<u8> {
    let mut out = vec![];
    for id in 1..=count {
        request.append(id + 1_000, &mut out);
        out.push(b'\n');
    }
    out
}
