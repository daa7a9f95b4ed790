//! `tools/list` with many tools, beside a plain answer of the same size.

use serde_json::{Value, json};

use super::{
    Bench, Findings, Row,
    comparison::{Comparison, Goal},
    http_way::{HttpWay, PlainWay},
    lanes::{Lane, Round, take_turns},
    setup::{Backends, Template},
};
use crate::{
    error::{LoadError, Result},
    messages::modern_meta,
    report::float,
};

/// Tools of all backends together.
const TOOLS: usize = 1_000;
/// Tools that an echo has beside those that are asked for.
const TOOLS_OF_ECHO: usize = 3;
/// Of the calls of a round, one in this many is a list.
const PART: usize = 20;
/// The id of all requests, so that equal lists have equal bytes.
const ID: u64 = 7;

pub fn run(bench: &Bench<'_>) -> Result<Findings> {
    let mut all = Findings::default();
    for (part, backends) in [("10 x 100", 10), ("2 x 500", 2)] {
        let mut found = list(bench, part, backends)?;
        all.comparisons.append(&mut found.comparisons);
        all.changed_lists += found.changed_lists;
    }
    Ok(all)
}

/// The time of a plain answer is that of a short one (`/livez`), and for its bytes the part of what a long one
/// (`/openapi.json`) takes longer than that.
fn list(bench: &Bench<'_>, part: &str, count: usize) -> Result<Findings> {
    let mut backends = Backends::default();
    for at in 0..count {
        backends = backends.echo(&format!("b{at}"), TOOLS / count - TOOLS_OF_ECHO)?;
    }
    let broker = backends.behind(bench)?;
    let address = broker.address;
    let mut way = HttpWay::modern(address, "/mcp", "tools/list", None)?;
    let mut request = Template::new("tools/list", &json!({"_meta": modern_meta()}));
    let first = request.exchange(ID, &mut way)?.to_vec();
    check(&first)?;
    let (mut short, mut long) = (
        PlainWay::open(address, "/livez")?,
        PlainWay::open(address, "/openapi.json")?,
    );
    let (short_len, long_len) = (short.get()?.len(), long.get()?.len());
    let mut short = Lane::new(|_| Ok(!short.get()?.is_empty()));
    let mut long = Lane::new(|_| Ok(long.get()?.len() == long_len));
    let mut lists = Lane::new(|_| Ok(request.exchange(ID, &mut way)? == first));
    let calls = (bench.options.calls / PART).max(2);
    let changed_lists = take_turns(bench, calls, &mut [&mut short, &mut long, &mut lists])?;
    let share = float((first.len() - short_len) as u64) / float((long_len - short_len) as u64);
    let p50 = |lane: &Lane<'_>| lane.all(|round: &Round| round.p50);
    let plain = p50(&short).into_iter().zip(p50(&long));
    let plain = plain.map(|(short, long)| short + (long - short) * share).collect();
    let time = Comparison::new(Row::List, "p50_us", plain, p50(&lists)).of(part);
    let bytes = Comparison::new(
        Row::List,
        "bytes",
        vec![float(long_len as u64)],
        vec![float(first.len() as u64)],
    );
    Ok(Findings {
        comparisons: vec![time.aims_at(Goal::AddedAtMost(300.0)), bytes.of(part)],
        changed_lists,
        ..Findings::default()
    })
}

/// Checks that all tools are on one page.
fn check(answer: &[u8]) -> Result<()> {
    let list: Value = serde_json::from_slice(answer).unwrap_or_default();
    let tools = list["result"]["tools"].as_array().map_or(0, Vec::len);
    if tools >= TOOLS && list["result"]["nextCursor"].is_null() {
        return Ok(());
    }
    Err(LoadError::refused(
        format!("a list of {TOOLS} tools on one page, and not of {tools}"),
        answer,
    ))
}
