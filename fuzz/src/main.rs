//! A small fuzzer for the parsers of untrusted bytes. Runs on stable Rust with the dependencies of the product.
//!
//! `fuzz TARGET [SECONDS [SEED]]` mutates the corpus of a target for that long; `fuzz TARGET --replay FILE` runs one
//! input. An input that makes the target panic or run too long is written to `artifacts/`.

// The included files name each other by their crates.
extern crate self as api;
extern crate self as common;

mod config;
#[allow(dead_code)]
#[path = "../../api/src/mcp/event_stream.rs"]
mod event_decoder;
mod event_stream;
mod forwarding;
mod frame_decoder;
mod heap;
#[allow(dead_code)]
#[path = "../../common/src/json/mod.rs"]
mod json;
mod lens;
mod line_decoder;
mod mcp;
mod mutate;
#[allow(dead_code)]
#[path = "../../common/src/refusal.rs"]
mod refusal;
mod rpc_frame;
mod schema_intake;
#[allow(dead_code)]
#[path = "../../cli/src/operate/gateway/imported.rs"]
mod server_files;
mod server_import;
mod transport;

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{ExitCode, exit},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use mutate::{Dice, mutate};

/// A parser and what is needed to fuzz it.
struct Target {
    name: &'static str,
    /// Panics when a check fails.
    run: fn(&[u8]),
    /// Words that random bytes seldom contain.
    dictionary: &'static [&'static str],
    /// The time limit of one input, in a debug build on a busy machine.
    limit: Duration,
}

const TARGETS: &[Target] = &[
    Target {
        name: "event_stream",
        run: event_stream::run,
        dictionary: event_stream::DICTIONARY,
        limit: Duration::from_secs(2),
    },
    Target {
        name: "forwarding",
        run: forwarding::run,
        dictionary: forwarding::DICTIONARY,
        limit: Duration::from_secs(2),
    },
    Target {
        name: "frame_decoder",
        run: frame_decoder::run,
        dictionary: frame_decoder::DICTIONARY,
        limit: Duration::from_secs(2),
    },
    Target {
        name: "lens",
        run: lens::run,
        dictionary: lens::DICTIONARY,
        limit: Duration::from_secs(10),
    },
    Target {
        name: "line_decoder",
        run: line_decoder::run,
        dictionary: line_decoder::DICTIONARY,
        limit: Duration::from_secs(2),
    },
    Target {
        name: "rpc_frame",
        run: rpc_frame::run,
        dictionary: rpc_frame::DICTIONARY,
        limit: Duration::from_secs(2),
    },
    Target {
        name: "schema_intake",
        run: schema_intake::run,
        dictionary: schema_intake::DICTIONARY,
        limit: Duration::from_secs(10),
    },
    Target {
        name: "server_import",
        run: server_import::run,
        dictionary: server_import::DICTIONARY,
        limit: Duration::from_secs(2),
    },
];

/// The stack size of a thread of the broker: an overflow shows here as it does there.
const STACK_LEN: usize = 2 * 1024 * 1024;
const INPUT_LEN_MAX: usize = 4096;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let target = arguments
        .first()
        .and_then(|name| TARGETS.iter().find(|target| target.name == name));
    let Some(target) = target else {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!(
            "usage: fuzz TARGET [SECONDS [SEED]] | fuzz TARGET --replay FILE; targets: {}",
            names.join(", ")
        );
        return ExitCode::from(2);
    };
    if let [_, option, file] = &arguments[..]
        && option == "--replay"
    {
        let input = fs::read(file).expect("the file to replay");
        on_small_stack(move || (target.run)(&input));
        println!("{}: nothing wrong", target.name);
        return ExitCode::SUCCESS;
    }
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<u64>().ok());
    let seconds = number(1).unwrap_or(20);
    let seed = number(2).unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(1, |since| since.as_nanos() as u64)
    });
    println!("{}: {seconds} s with seed {seed}", target.name);
    let found = on_small_stack(move || fuzz(target, Duration::from_secs(seconds), seed));
    if found { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn on_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::Builder::new().stack_size(STACK_LEN).spawn(work);
    match thread.expect("a thread").join() {
        Ok(done) => done,
        Err(_) => exit(1),
    }
}

/// The input being run, and its start time.
type Current = Arc<Mutex<Option<(Vec<u8>, Instant)>>>;

/// Returns true when a failure was found.
fn fuzz(target: &'static Target, time: Duration, seed: u64) -> bool {
    let current = Current::default();
    watch(target, Arc::clone(&current));
    // With `FUZZ_TRACE`, writes each input before it is run, so that it survives a crash of the process. Slow.
    let trace = std::env::var_os("FUZZ_TRACE").map(|_| artifact(target, "last"));
    let corpus = corpus(target);
    let (mut dice, begin, mut runs) = (Dice::new(seed), Instant::now(), 0_u64);
    let mut seeds = corpus.iter().cloned();
    while runs < corpus.len() as u64 || begin.elapsed() < time {
        let input = seeds
            .next()
            .unwrap_or_else(|| mutate(&corpus, target.dictionary, INPUT_LEN_MAX, &mut dice));
        if let Some(trace) = &trace {
            fs::write(trace, &input).expect("a place for the last input");
        }
        *lock(&current) = Some((input.clone(), Instant::now()));
        let survived = catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_ok();
        *lock(&current) = None;
        runs += 1;
        if !survived {
            report(target, "panic", &input);
            return true;
        }
    }
    println!("{}: {runs} inputs, nothing wrong", target.name);
    false
}

/// Ends the process when one input takes too long.
fn watch(target: &'static Target, current: Current) {
    thread::spawn(move || {
        loop {
            thread::sleep(Duration::from_millis(200));
            if let Some((input, since)) = &*lock(&current)
                && since.elapsed() > target.limit
            {
                report(target, "slow", input);
                exit(1);
            }
        }
    });
}

fn report(target: &Target, kind: &str, input: &[u8]) {
    let sum = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let file = artifact(target, &format!("{kind}-{sum:016x}"));
    fs::write(&file, input).expect("a place for what was found");
    eprintln!("{}: {kind}: {}", target.name, file.display());
    eprintln!("{}", String::from_utf8_lossy(input));
}

fn artifact(target: &Target, name: &str) -> PathBuf {
    let folder = home().join("artifacts").join(target.name);
    fs::create_dir_all(&folder).expect("a place for what is found");
    folder.join(name)
}

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = home().join("corpus").join(target.name);
    let entries = fs::read_dir(&folder).expect("the corpus");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files.iter().map(|file| fs::read(file).expect("a file")).collect()
}

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
