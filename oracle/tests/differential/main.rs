//! Sends the broker and the official SDK's server the same requests over HTTP. Their answers are the same, or
//! `known_differences` has an entry with the reason; an entry that is not true fails too.

mod known_differences;
mod mutations;
mod peer;
mod random;
mod requests;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use known_differences::matches_pattern;
use mcp_broker_oracle::sdk::{SdkServer, SessionMode};
use mutations::Mutation;
use peer::Peer;
use random::Random;
use requests::Draft;
use test_client::process::RunningServer;

const COMBINED_CASES: usize = 1000;
const EDITED_CASES: usize = 1000;
/// Pairs of mutations that together make another fault or another kind of request.
const TOGETHER: &[(&str, &str)] = &[
    ("its own Origin", "a Host *"),
    ("version header *", "version * in _meta"),
    ("by *", "*"),
    ("in the words of 2026-07-28", "*"),
];

/// The answers of the broker and of the SDK's server.
type Answers = (String, String);

/// The two servers under comparison.
struct Pair {
    ours: Peer,
    sdk: Peer,
    broker: Option<RunningServer>,
    _running: SdkServer,
}

impl Pair {
    fn start() -> Self {
        // `ORACLE_OURS` is the address of a broker that already runs.
        let given = std::env::var("ORACLE_OURS").ok();
        let broker = given.is_none().then(|| RunningServer::broker(&["--log-level=warn"]));
        let address = match (&given, &broker) {
            (Some(address), _) => address.parse().expect("ORACLE_OURS is an address"),
            (None, broker) => broker.as_ref().expect("started unless ORACLE_OURS is set").address,
        };
        let running = SdkServer::start(SessionMode::Legacy).unwrap();
        let peer = |name, address: SocketAddr| Peer { name, address };
        Self {
            ours: peer("the broker", address),
            sdk: peer("the SDK", running.address),
            broker,
            _running: running,
        }
    }

    /// The answers of both servers to each request, by the name of the request.
    fn answers(&self, cases: &[Case]) -> BTreeMap<String, Answers> {
        let next = AtomicUsize::new(0);
        let ask = || {
            let mut answers = Vec::new();
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Some(draft) = case.draft() {
                    answers.push((case.name.clone(), (self.ours.answer(&draft), self.sdk.answer(&draft))));
                }
            }
            answers
        };
        let answers: BTreeMap<_, Answers> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().flat_map(|it| it.join().unwrap()).collect()
        });
        for (name, (ours, _)) in &answers {
            assert!(
                ours.starts_with(['2', '4']),
                "the broker gave no valid answer to {name}: {ours}"
            );
        }
        answers
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let Some(broker) = &self.broker else { return };
        let log = broker.log();
        if std::thread::panicking() {
            eprintln!("--- the log of the broker:\n{log}---");
        } else {
            assert!(!log.contains("panicked"), "the broker panicked:\n{log}");
        }
    }
}

/// A request and the mutations that are applied to it.
struct Case {
    name: String,
    base_name: String,
    base: Draft,
    mutations: Vec<&'static Mutation>,
}

impl Case {
    fn new(base_name: &str, base: &Draft, mutations: Vec<&'static Mutation>) -> Self {
        let mut name = base_name.to_owned();
        for mutation in &mutations {
            name.push_str(" | ");
            name.push_str(mutation.name);
        }
        Self {
            name,
            base_name: base_name.to_owned(),
            base: base.clone(),
            mutations,
        }
    }

    /// The mutated request; None when a mutation does not apply. Built on demand, because some mutations make a body
    /// long.
    fn draft(&self) -> Option<Draft> {
        let mut draft = self.base.clone();
        let applied = self.mutations.iter().all(|it| it.apply(&mut draft));
        applied.then_some(draft)
    }
}

/// Every valid request, alone and with each mutation.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mutations = mutations::all();
    for (base, draft) in requests::all() {
        cases.push(Case::new(&base, &draft, Vec::new()));
        cases.extend(mutations.iter().map(|it| Case::new(&base, &draft, vec![*it])));
    }
    cases
}

/// Whether two answers are the same. A refusal with an HTTP status may carry a JSON-RPC error without an id, or not
/// (2026-07-28 and 2025-11-25, Streamable HTTP, Sending Messages).
fn is_same_answer(ours: &str, sdk: &str) -> bool {
    ours == sdk
        || ours.split_once(' ').is_some_and(|(status, said)| {
            let is_silent = sdk.strip_prefix(status).is_some_and(|rest| rest.starts_with(" -"));
            status.starts_with('4') && is_silent && said.starts_with("error")
        })
}

#[test]
fn the_broker_and_the_sdk_give_the_same_answers_except_for_known_differences() {
    let pair = Pair::start();
    let answers = pair.answers(&cases());
    if let Ok(pattern) = std::env::var("ORACLE_SHOW") {
        for (name, (ours, sdk)) in answers.iter().filter(|(name, _)| matches_pattern(&pattern, name)) {
            eprintln!("{name}\n    ours: {ours}\n    sdk:  {sdk}");
        }
    }
    let mut unexplained = BTreeMap::<_, Vec<_>>::new();
    let known: Vec<_> = known_differences::all().collect();
    let all = known.iter().enumerate();
    let mut unused: BTreeSet<_> = all
        .flat_map(|(at, it)| it.requests.iter().map(move |pattern| (at, pattern)))
        .collect();
    for (name, (ours, sdk)) in &answers {
        if is_same_answer(ours, sdk) {
            continue;
        }
        let base = name.split(" | ").next().map(|base| &answers[base]);
        let (base_ours, base_sdk) = base.map_or(("", ""), |(ours, sdk)| (ours, sdk));
        let mut is_explained = false;
        for (at, it) in known.iter().enumerate() {
            if it.covers((ours, base_ours), (sdk, base_sdk)) {
                for pattern in it.requests.iter().filter(|pattern| matches_pattern(pattern, name)) {
                    is_explained = true;
                    unused.remove(&(at, pattern));
                }
            }
        }
        if !is_explained {
            unexplained.entry((ours.clone(), sdk.clone())).or_default().push(name);
        }
    }
    for ((ours, sdk), names) in &unexplained {
        eprintln!("\nours: {ours}\nsdk:  {sdk}");
        for name in names {
            eprintln!("    {name}");
        }
    }
    let len = unexplained.values().map(Vec::len).sum::<usize>();
    assert_eq!(len, 0, "of {} differ without an explanation: see above", answers.len());
    assert!(unused.is_empty(), "known differences that do not occur: {unused:#?}");
}

/// A request with several faults is answered for one of them, and no revision says which one. So each server may give
/// its answer to any of the faults alone (which has been compared already), and any two refusals count as the same.
#[test]
fn a_request_with_several_faults_is_answered_for_one_of_them() {
    let pair = Pair::start();
    let random = &mut Random::seeded();
    let (bases, mutations) = (requests::all(), mutations::all());
    let mut combined = BTreeMap::new();
    while combined.len() < COMBINED_CASES {
        let (base, draft) = random.one_of(&bases);
        let chosen = (0..2 + random.below(2)).map(|_| *random.one_of(&mutations)).collect();
        let case = Case::new(base, draft, chosen);
        let names: BTreeSet<_> = case.mutations.iter().map(|it| it.name).collect();
        let have = |one, other| {
            let mut ones = names.iter().filter(|name| matches_pattern(one, name));
            ones.any(|one| names.iter().any(|name| name != one && matches_pattern(other, name)))
        };
        let is_more = names.len() < case.mutations.len() || TOGETHER.iter().any(|(one, other)| have(one, other));
        if case.draft().is_some() && !is_more {
            combined.insert(case.name.clone(), case);
        }
    }
    let singles = |case: &Case| {
        let alone = case.mutations.iter().map(|it| vec![*it]);
        let all = alone.chain([Vec::new()]);
        all.map(|mutations| Case::new(&case.base_name, &case.base, mutations))
            .collect::<Vec<_>>()
    };
    let alone: BTreeMap<_, _> = combined
        .values()
        .flat_map(singles)
        .map(|single| (single.name.clone(), single))
        .collect();
    let alone = pair.answers(&alone.into_values().collect::<Vec<_>>());
    let combined: Vec<_> = combined.into_values().collect();
    let answers = pair.answers(&combined);
    let wrong = combined.iter().filter_map(|case| {
        let (ours, sdk) = &answers[&case.name];
        let singles = singles(case);
        let singles = || {
            singles
                .iter()
                .filter_map(|single| Some((&single.name, alone.get(&single.name)?)))
        };
        let is_like_one = singles().any(|(_, it)| it.0 == *ours) && singles().any(|(_, it)| it.1 == *sdk);
        let is_of = |pattern: &str| singles().any(|(name, _)| matches_pattern(pattern, name));
        let is_fine = is_like_one || is_same_difference(&answers[&case.name], &alone[&case.base_name], is_of);
        (!is_fine).then(|| format!("{}\n    ours: {ours}\n    sdk:  {sdk}\n", case.name))
    });
    let wrong: String = wrong.collect();
    assert!(
        wrong.is_empty(),
        "neither the answer to one fault alone nor the same answer:\n{wrong}"
    );
}

/// A body with bytes changed at random equals the result of a mutation, or is refused.
#[test]
fn randomly_edited_bodies_get_the_same_answers() {
    let pair = Pair::start();
    let random = &mut Random::seeded();
    let bases = requests::all();
    let bases: Vec<_> = bases.iter().filter(|(_, it)| !it.request.body.is_empty()).collect();
    let edited = (0..EDITED_CASES).map(|at| {
        let (base, draft) = random.one_of(&bases);
        let mut draft = draft.clone();
        draft.request.body = random::edited(random, &draft.request.body);
        Case::new(&format!("{base} | edit {at}"), &draft, Vec::new())
    });
    let whole = bases.iter().map(|(base, draft)| Case::new(base, draft, Vec::new()));
    let cases: Vec<_> = edited.chain(whole).collect();
    let answers = pair.answers(&cases);
    let wrong = cases.iter().filter_map(|case| {
        let (ours, sdk) = &answers[&case.name];
        let era = case.name.split(' ').next().unwrap_or_default();
        let is_of = |pattern: &str| matches_pattern(pattern.split(' ').next().unwrap_or_default(), era);
        let body = String::from_utf8_lossy(&case.base.request.body);
        let base = case.name.split(" | ").next().unwrap_or_default();
        let is_fine = is_same_difference(&answers[&case.name], &answers[base], is_of);
        (!is_fine).then(|| format!("{}\n    {body}\n    ours: {ours}\n    sdk:  {sdk}\n", case.name))
    });
    let wrong: String = wrong.collect();
    assert!(wrong.is_empty(), "{wrong}");
}

/// Whether two answers are the same, are both refusals, or have a known difference for these patterns. `base` are the
/// answers to the valid request.
fn is_same_difference((ours, sdk): &Answers, base: &Answers, is_of: impl Fn(&str) -> bool) -> bool {
    let is_refusal = |it: &str| it.starts_with('4') || it.starts_with("200 error") || it.starts_with("200 [error");
    is_same_answer(ours, sdk)
        || (is_refusal(ours) && is_refusal(sdk))
        || known_differences::is_known(is_of, (ours, &base.0), (sdk, &base.1))
}
