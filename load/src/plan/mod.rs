//! `plan`: how many replicas and Redis servers a number of agents wants, what they use of each, and the first wall. It adds up
//! measured costs and replays them in a simulation; nothing runs.

mod costs;
mod demand;
mod simulation;

use std::path::PathBuf;

use crate::{
    error::{LoadError, Result},
    report::{Figure, Report, float},
};
use costs::Costs;
use demand::{Agents, Demand, FULL, Servers};
use simulation::Arrival;

/// Messages of a simulated run.
const SIMULATED: usize = 50_000;
/// Messages in flight in the simulation of one project: many clients that wait for nothing.
const IN_FLIGHT: usize = 2000;

#[derive(clap::Args)]
pub struct Options {
    /// Agents, each with a session on a connection of its own
    #[arg(long, default_value_t = 1000, value_parser = crate::at_least_one)]
    agents: usize,
    /// Messages that an agent sends in an hour
    #[arg(long, default_value_t = 60.0, value_parser = positive)]
    per_hour: f64,
    /// Recipients of a message
    #[arg(long, default_value_t = 1, value_parser = crate::at_least_one)]
    fan_out: usize,
    /// Projects among which the agents are divided; one for each 1,000 agents by default
    #[arg(long, value_parser = crate::at_least_one)]
    projects: Option<usize>,
    /// Replicas; the fewest that carry the agents by default
    #[arg(long, value_parser = crate::at_least_one)]
    replicas: Option<usize>,
    /// Redis servers; 0 keeps everything in the memory of one replica. The fewest that carry the agents by default
    #[arg(long)]
    redis: Option<usize>,
    /// Workers of a replica, each with a core of its own
    #[arg(long, default_value_t = 2, value_parser = crate::at_least_one)]
    cores: usize,
    /// The load balancer sends the agents of a project to one replica
    #[arg(long)]
    by_project: bool,
    /// Workers among which the recipients of one project are divided, in the simulation of one project. The broker has one
    #[arg(long, default_value_t = 1, value_parser = crate::at_least_one)]
    shards: usize,
    /// Memory of a replica in GiB
    #[arg(long, default_value_t = 4.0, value_parser = positive)]
    memory: f64,
    /// Memory of a Redis in GiB
    #[arg(long, default_value_t = 16.0, value_parser = positive)]
    redis_memory: f64,
    /// Network of a machine in Gbit/s
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    network: f64,
    /// Connections that a replica accepts: its setting `connections_max`
    #[arg(long, default_value_t = 25_000, value_parser = crate::at_least_one)]
    connections: usize,
    /// A file of costs instead of those of this build, as `scripts/scale-costs` writes it
    #[arg(long)]
    costs: Option<PathBuf>,
}

fn positive(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number <= 1e9 => Ok(number),
        _ => Err("a number above 0, at most 1000000000".into()),
    }
}

/// Makes the plan. `size` is that of a message in bytes.
pub fn run(options: &Options, size: usize) -> Result<Report> {
    let (costs, machine) = Costs::read(options.costs.as_deref())?;
    let number = |count: usize| float(count as u64);
    let projects = options.projects.unwrap_or_else(|| options.agents.div_ceil(1000));
    if projects > options.agents {
        return Err(LoadError::Arguments(
            "--projects is larger than --agents: each project needs an agent".into(),
        ));
    }
    if options.redis == Some(0) && options.replicas.is_some_and(|replicas| replicas > 1) {
        return Err(LoadError::Arguments(
            "--redis 0 allows one replica: leave --replicas out, or give --redis 1".into(),
        ));
    }
    let agents = Agents {
        count: number(options.agents),
        per_hour: options.per_hour,
        fan_out: number(options.fan_out),
        size: number(size),
        projects: number(projects),
    };
    let template = Servers {
        replicas: 1.0,
        workers: number(options.cores),
        stores: 1.0,
        by_project: options.by_project,
        gib: options.memory,
        store_gib: options.redis_memory,
        gbit: options.network,
        connections: number(options.connections),
    };
    let given = (options.replicas.map(number), options.redis.map(number));
    let servers = demand::fewest(&agents, &template, given, &costs);
    let demand = demand::of(&agents, &servers, &costs);

    let mut report = Report::new("plan");
    report.add("costs_of", machine);
    report.add("agents", options.agents);
    report.add("projects", projects);
    report.add("replicas", whole(servers.replicas));
    report.add("redis_servers", whole(servers.stores));
    report.add("replicas_of_a_project", demand.replicas_of_project);
    report.add("messages_per_second", demand.messages);
    simulate(&agents, &servers, &costs, &demand, &mut report);
    report.add("presence_cores_of_a_redis", demand.presence);
    report.add("reconnect_storm_seconds", demand.storm_seconds);
    for (key, bursts) in [
        ("one_project_per_second", false),
        ("one_project_in_bursts_per_second", true),
    ] {
        let project = demand::one_project(options.cores, options.shards, bursts, &costs);
        let outcome = simulation::run(&project, Arrival::InFlight(IN_FLIGHT), SIMULATED);
        report.add(key, outcome.per_second);
    }
    let wall = demand.wall();
    report.add("first_wall", wall.resource);
    report.add("fits", wall.share() <= FULL);
    for used in &demand.uses {
        report.row(vec![
            ("resource", used.resource.into()),
            ("used", used.used.into()),
            ("of", used.of.into()),
            ("unit", used.unit.into()),
            ("percent", (100.0 * used.share()).into()),
        ]);
    }
    Ok(report)
}

/// Replays the messages. Where they are more than the servers carry, there is no latency to show.
fn simulate(agents: &Agents, servers: &Servers, costs: &Costs, demand: &Demand, report: &mut Report) {
    let deployment = demand::deployment(agents, servers, costs, demand);
    let count = SIMULATED / deployment.fan_out.clamp(1, 100);
    let outcome = simulation::run(&deployment, Arrival::PerSecond(demand.messages), count);
    let is_carried = outcome.worker < 1.0 && outcome.store < 1.0;
    let latency = |micros: f64| {
        if is_carried {
            Figure::Micro(micros)
        } else {
            Figure::Absent
        }
    };
    report.add("simulated_p50_us", latency(outcome.p50_us));
    report.add("simulated_p99_us", latency(outcome.p99_us));
    report.add("simulated_busiest_worker", outcome.worker);
    report.add("simulated_busiest_redis", outcome.store);
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::Value;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn plan(line: &str) -> Result<Value> {
        let options = Line::parse_from(std::iter::once("plan").chain(line.split_whitespace())).options;
        run(&options, 400).map(|report| report.json())
    }

    #[test]
    fn a_plan_names_its_servers_and_its_first_wall() {
        let plan = plan("--agents 100000").unwrap();
        assert_eq!(
            (&plan["projects"], &plan["fits"]),
            (&100.into(), &true.into()),
            "{plan}"
        );
        assert!(plan["replicas"].as_u64() > Some(3), "{plan}");
        assert!(
            plan["simulated_p99_us"].as_f64() >= plan["simulated_p50_us"].as_f64(),
            "{plan}"
        );
        let wall = plan["first_wall"].as_str().unwrap();
        assert!(
            plan["rows"]
                .as_array()
                .unwrap()
                .iter()
                .any(|row| row["resource"] == wall),
            "{plan}"
        );
    }

    #[test]
    fn one_replica_in_memory_has_no_redis() {
        let plan = plan("--agents 1000 --redis 0").unwrap();
        assert_eq!((&plan["replicas"], &plan["redis_servers"]), (&1.into(), &0.into()));
        assert_eq!(plan["rows"].as_array().unwrap().len(), 4);
    }

    #[test]
    fn what_does_not_fit_has_no_latency() {
        let plan = plan("--agents 1000000 --per-hour 36000 --replicas 1 --redis 1").unwrap();
        assert_eq!(
            (&plan["fits"], &plan["simulated_p50_us"]),
            (&false.into(), &Value::Null)
        );
    }

    #[test]
    fn divided_recipients_raise_what_one_project_carries() {
        let rate = |shards| {
            let plan = plan(&format!("--cores 16 --shards {shards}")).unwrap();
            plan["one_project_per_second"].as_f64().unwrap()
        };
        assert!(rate(16) > 1.5 * rate(1), "{} {}", rate(16), rate(1));
    }

    #[test]
    fn impossible_plans_are_refused() {
        assert!(plan("--agents 10 --projects 11").is_err());
        assert!(plan("--redis 0 --replicas 2").is_err());
    }
}
