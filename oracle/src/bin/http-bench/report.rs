//! The results of all rounds, as a table and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::rounds::{Era, Latency, Load};

#[derive(Default)]
pub struct Report {
    pub loads: Vec<(Era, &'static str, Load)>,
    pub latencies: Vec<(Era, &'static str, Latency)>,
}

impl Report {
    fn loads(&self, era: Era, server: &str, what: fn(&Load) -> f64) -> Vec<f64> {
        of(&self.loads, era, server, what)
    }

    fn latencies(&self, era: Era, server: &str, what: fn(&Latency) -> f64) -> Vec<f64> {
        of(&self.latencies, era, server, what)
    }

    pub fn json(&self) -> Value {
        let loads: Vec<_> = self
            .loads
            .iter()
            .map(|(era, server, load)| {
                json!({
                    "era": era_name(*era), "server": server,
                    "cpu_micros_per_call": load.micros_per_call, "calls_per_second": load.calls_per_second,
                })
            })
            .collect();
        let latencies: Vec<_> = self
            .latencies
            .iter()
            .map(|(era, server, it)| json!({"era": era_name(*era), "server": server, "p50": it.p50, "p99": it.p99}))
            .collect();
        let mut ratios = json!({});
        for era in [Era::Modern, Era::Legacy] {
            let cpu = |server| self.loads(era, server, |it| it.micros_per_call);
            let p50 = |server| self.latencies(era, server, |it| it.p50);
            let p99 = |server| self.latencies(era, server, |it| it.p99);
            ratios[era_name(era)] = json!({
                "cpu_ours_to_sdk": ratio(&cpu("ours"), &cpu("sdk")),
                "cpu_ours_to_bare": ratio(&cpu("ours"), &cpu("bare")),
                "p50_ours_to_bare": ratio(&p50("ours"), &p50("bare")),
                "p99_ours_to_bare": ratio(&p99("ours"), &p99("bare")),
            });
        }
        json!({"loads": loads, "latencies": latencies, "ratios": ratios})
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "medians of the rounds; a ratio is the median of the ratios of each round\n"
        )?;
        writeln!(f, "many connections   CPU µs/call   calls/s   CPU, ours to this")?;
        for era in [Era::Modern, Era::Legacy] {
            let cpu = |server| self.loads(era, server, |it| it.micros_per_call);
            for server in ["ours", "sdk", "bare"] {
                writeln!(
                    f,
                    "{:<8} {server:<8} {:>11.2} {:>11.0} {:>17.3}",
                    era_name(era),
                    median(cpu(server)),
                    median(self.loads(era, server, |it| it.calls_per_second)),
                    ratio(&cpu("ours"), &cpu(server)),
                )?;
            }
        }
        writeln!(
            f,
            "\none call at a time      p50 µs    p99 µs   ours to this: p50    p99"
        )?;
        for era in [Era::Modern, Era::Legacy] {
            let p50 = |server| self.latencies(era, server, |it| it.p50);
            let p99 = |server| self.latencies(era, server, |it| it.p99);
            for server in ["ours", "bare"] {
                writeln!(
                    f,
                    "{:<8} {server:<8} {:>11.1} {:>9.1} {:>19.3} {:>6.3}",
                    era_name(era),
                    median(p50(server)),
                    median(p99(server)),
                    ratio(&p50("ours"), &p50(server)),
                    ratio(&p99("ours"), &p99(server)),
                )?;
            }
        }
        Ok(())
    }
}

pub fn era_name(era: Era) -> &'static str {
    match era {
        Era::Modern => "modern",
        Era::Legacy => "legacy",
    }
}

fn of<T>(all: &[(Era, &str, T)], era: Era, server: &str, what: fn(&T) -> f64) -> Vec<f64> {
    let wanted = all.iter().filter(|(e, s, _)| *e == era && *s == server);
    wanted.map(|(_, _, it)| what(it)).collect()
}

pub fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
}

/// The median; NaN of an empty list.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    match values.as_slice() {
        [] => f64::NAN,
        values => {
            let half = values.len() / 2;
            let upper = values[half];
            if values.len() % 2 == 1 {
                upper
            } else {
                f64::midpoint(values[half - 1], upper)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        assert!((median(vec![3.0, 1.0, 9.0]) - 3.0).abs() < 1e-9);
        assert!((median(vec![3.0, 1.0]) - 2.0).abs() < 1e-9);
        assert!(median(Vec::new()).is_nan());
        assert!((ratio(&[2.0, 6.0, 1.0], &[1.0, 2.0, 1.0]) - 2.0).abs() < 1e-9);
    }
}
