//! Compares the broker with authentication to the broker without.

use std::{fmt, io, path::Path};

use serde_json::{Value, json};
use test_client::{http::Request, process::RunningServer};

use super::{
    report::{era_name, median, ratio},
    rounds::{Bench, Era},
};

const ADMIN_KEY: &str = "only-for-what-is-measured-on-this-machine";
/// Limits that this comparison never reaches.
const PER_MINUTE: u32 = 4_000_000_000;

#[derive(Default)]
pub struct Comparison {
    /// Processor time of the server per call in µs, by era and mode.
    loads: Vec<(Era, &'static str, f64)>,
}

const MODES: [&str; 3] = ["off", "on", "limits"];

/// Measures all modes in turn, so that a busy period of the machine affects all of them.
///
/// # Errors
/// When a server does not start or a call fails.
pub fn compare(ours: &Path, bench: &Bench, rounds: usize) -> io::Result<Comparison> {
    let admin_key = format!("--admin-key={ADMIN_KEY}");
    let usual = ["--workers=1", "--log-level=warn"];
    let on = ["--enable-auth", &admin_key];
    let start = |more: &[&str]| RunningServer::broker_of(ours, &[&usual, more].concat());
    let servers = [
        start(&[])?,
        start(&on)?,
        start(&[&on[..], &["--rate-limit=10000000"]].concat())?,
    ];
    let keys = [
        None,
        Some(make_key(&servers[1], 0)?),
        Some(make_key(&servers[2], PER_MINUTE)?),
    ];
    let mut comparison = Comparison::default();
    for round in 0..rounds {
        for era in [Era::Modern, Era::Legacy] {
            for at in 0..MODES.len() {
                let at = (at + round) % MODES.len();
                let headers: Vec<_> = keys[at].iter().map(|key| ("X-API-Key", key.as_str())).collect();
                let load = bench.load(&servers[at], "ours", era, &headers)?;
                comparison.loads.push((era, MODES[at], load.micros_per_call));
            }
        }
    }
    Ok(comparison)
}

/// Creates a project with this rate limit and returns its key.
fn make_key(server: &RunningServer, rate_limit: u32) -> io::Result<String> {
    let project = json!({"project_id": "measured", "name": "measured", "config": {"rate_limit": rate_limit}});
    let mut request = Request::with_json("POST", "/api/v1/projects", &project);
    request.add("X-API-Key", ADMIN_KEY);
    let made = request.ask(server.address)?.json();
    let key = made["api_keys"][0]["api_key"].as_str();
    key.map(str::to_owned)
        .ok_or_else(|| io::Error::other("no key was made"))
}

impl Comparison {
    fn of(&self, era: Era, way: &str) -> Vec<f64> {
        let wanted = self.loads.iter().filter(|(e, w, _)| *e == era && *w == way);
        wanted.map(|(_, _, micros)| *micros).collect()
    }

    pub fn json(&self) -> Value {
        let mut all = json!({});
        for era in [Era::Modern, Era::Legacy] {
            for way in MODES {
                let micros = self.of(era, way);
                all[era_name(era)][way] = json!({
                    "ratio_to_off": ratio(&micros, &self.of(era, "off")), "cpu_micros_per_call": micros,
                });
            }
        }
        all
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "medians of the rounds; a ratio is the median of the ratios of each round\n\n\
             authentication    CPU µs/call   to off"
        )?;
        for era in [Era::Modern, Era::Legacy] {
            for way in MODES {
                let micros = self.of(era, way);
                let ratio = ratio(&micros, &self.of(era, "off"));
                writeln!(f, "{:<8} {way:<8} {:>11.2} {ratio:>8.3}", era_name(era), median(micros))?;
            }
        }
        Ok(())
    }
}
