//! What a number of agents asks of a deployment: sums of measured costs. Pure.

use super::{
    costs::Costs,
    simulation::{Deployment, Step},
};

/// The share of a resource that a plan uses at most. Above it, waiting grows faster than the load.
pub const FULL: f64 = 0.7;

/// Seconds for which Redis keeps the receipt of a message.
const RECEIPTS_KEPT: f64 = 24.0 * 3600.0;

const KIB_OF_GIB: f64 = 1024.0 * 1024.0;

/// Bytes of the frames for which bytes on the network were measured.
const MEASURED_FRAME: f64 = 400.0;

/// What the agents do.
#[derive(Clone, Copy, Debug)]
pub struct Agents {
    pub count: f64,
    /// Messages of an agent.
    pub per_hour: f64,
    /// Recipients of a message.
    pub fan_out: f64,
    /// Bytes of a message on the network.
    pub size: f64,
    pub projects: f64,
}

/// What the agents are served by.
#[derive(Clone, Copy, Debug)]
pub struct Servers {
    pub replicas: f64,
    /// Workers of a replica, each with a core of its own.
    pub workers: f64,
    /// Redis servers. None: one replica that keeps everything in memory.
    pub stores: f64,
    /// Agents of a project connect to one replica.
    pub by_project: bool,
    pub gib: f64,
    pub store_gib: f64,
    pub gbit: f64,
    /// Connections that a replica accepts.
    pub connections: f64,
}

/// A resource, and how much of it is used.
#[derive(Clone, Copy, Debug)]
pub struct Use {
    pub resource: &'static str,
    pub unit: &'static str,
    pub used: f64,
    pub of: f64,
    /// Other replicas make it smaller; the others want other Redis servers.
    pub is_of_replica: bool,
}

impl Use {
    pub fn share(&self) -> f64 {
        self.used / self.of
    }
}

/// The sums of a plan.
#[derive(Clone, Debug)]
pub struct Demand {
    pub messages: f64,
    /// Replicas that have a project open.
    pub replicas_of_project: f64,
    pub uses: Vec<Use>,
    /// The share of Redis that presence takes.
    pub presence: f64,
    /// Seconds until all agents are back after all connections were lost.
    pub storm_seconds: f64,
}

/// What a message costs a station that sleeps, is idle, or is busy, in microseconds.
#[derive(Clone, Copy)]
struct Price {
    cold: f64,
    alone: f64,
    busy: f64,
}

/// The part of the time for which a station works.
///
/// A share `u` of the messages finds it busy: `u = background + rate * (alone - u * (alone - busy))`. Messages come at random,
/// so a share of `exp(-rate * 1 ms)` finds it asleep.
fn utilization(per_second: f64, price: Price, background: f64) -> f64 {
    let asleep = (-per_second / 1000.0).exp();
    let alone = (asleep * price.cold + (1.0 - asleep) * price.alone) / 1e6;
    let busy = price.busy / 1e6;
    let gathered = (background + per_second * alone) / (1.0 + per_second * (alone - busy));
    // Above full load all messages find it busy.
    if gathered < 1.0 {
        gathered
    } else {
        background + per_second * busy
    }
}

/// What a broker costs on its storage.
struct BrokerCosts {
    price: Price,
    delivery_us: f64,
    idle_us: f64,
    project_idle_us: f64,
    login_us: f64,
    session_kib: f64,
}

impl BrokerCosts {
    /// `crossing` is the share of the messages whose recipient is at another replica.
    fn on_redis(costs: &Costs, crossing: f64) -> Self {
        let cross = costs.shared_cross_us * crossing;
        Self {
            price: Price {
                cold: costs.shared_cold_us + cross,
                alone: costs.shared_alone_us + cross,
                busy: costs.shared_busy_us + cross,
            },
            delivery_us: costs.shared_delivery_us,
            idle_us: costs.shared_idle_us,
            project_idle_us: costs.project_idle_us,
            login_us: costs.shared_login_us,
            session_kib: costs.shared_session_kib,
        }
    }

    fn in_memory(costs: &Costs) -> Self {
        Self {
            price: Price {
                cold: costs.direct_cold_us,
                alone: costs.direct_alone_us,
                busy: costs.direct_busy_us,
            },
            delivery_us: costs.delivery_us,
            idle_us: costs.idle_us,
            project_idle_us: 0.0,
            login_us: costs.login_us,
            session_kib: costs.session_kib,
        }
    }
}

/// What all servers share of the work.
struct Work {
    messages: f64,
    /// Deliveries of messages to their further recipients.
    further: f64,
    replicas_of_project: f64,
    /// Bytes of a message over those for which bytes on the network were measured.
    growth: f64,
}

/// Adds up what the agents ask for.
pub fn of(agents: &Agents, servers: &Servers, costs: &Costs) -> Demand {
    let replicas_of_project = if servers.by_project {
        1.0
    } else {
        servers.replicas.min((agents.count / agents.projects).max(1.0))
    };
    let messages = agents.count * agents.per_hour / 3600.0;
    let work = Work {
        messages,
        further: messages * (agents.fan_out - 1.0),
        replicas_of_project,
        growth: agents.size / MEASURED_FRAME,
    };
    let (mut uses, replica_storm) = of_replica(agents, servers, costs, &work);
    let (mut presence, mut store_storm) = (0.0, 0.0);
    if servers.stores > 0.0 {
        presence = presence_of(agents, servers, costs, replicas_of_project);
        uses.extend(of_store(agents, servers, costs, &work, presence));
        store_storm = agents.count / servers.stores * costs.store_login_us / 1e6;
    }
    Demand {
        messages,
        replicas_of_project,
        uses,
        presence,
        storm_seconds: replica_storm.max(store_storm),
    }
}

/// What is used of a replica, and the seconds until all its agents have logged in.
fn of_replica(agents: &Agents, servers: &Servers, costs: &Costs, work: &Work) -> (Vec<Use>, f64) {
    let (is_shared, replicas) = (servers.stores > 0.0, servers.replicas);
    let here = agents.count / replicas;
    let open = agents.projects * work.replicas_of_project / replicas;
    let elsewhere = agents.count / agents.projects * open - here;
    let broker = if is_shared {
        BrokerCosts::on_redis(costs, 1.0 - 1.0 / work.replicas_of_project)
    } else {
        BrokerCosts::in_memory(costs)
    };
    let idle = here * broker.idle_us + elsewhere * costs.other_idle_us + open * broker.project_idle_us;
    let background = (idle + work.further / replicas * broker.delivery_us) / 1e6 / servers.workers;
    let worker = utilization(work.messages / replicas / servers.workers, broker.price, background);
    let kib =
        costs.base_kib + here * broker.session_kib + elsewhere * costs.other_session_kib + open * costs.project_kib;
    let message_bytes = costs.direct_bytes + f64::from(is_shared) * costs.store_bytes;
    let bytes = (work.messages * message_bytes + work.further * costs.delivery_bytes) / replicas * work.growth;
    let row = |resource, unit, used, of| Use {
        resource,
        unit,
        used,
        of,
        is_of_replica: true,
    };
    let uses = vec![
        row(
            "workers of a replica",
            "cores",
            worker * servers.workers,
            servers.workers,
        ),
        row("memory of a replica", "GiB", kib / KIB_OF_GIB, servers.gib),
        row("connections of a replica", "", here, servers.connections),
        row("network of a replica", "Gbit/s", bytes * 8.0 / 1e9, servers.gbit),
    ];
    let logins = (here * broker.login_us + elsewhere * costs.other_login_us) / 1e6 / servers.workers;
    (uses, logins)
}

/// The share of a Redis that idle sessions and projects take.
fn presence_of(agents: &Agents, servers: &Servers, costs: &Costs, replicas_of_project: f64) -> f64 {
    let session = costs.store_idle_us + (replicas_of_project - 1.0) * costs.store_other_idle_us;
    let project = replicas_of_project * costs.store_project_idle_us;
    (agents.count * session + agents.projects * project) / servers.stores / 1e6
}

/// What is used of a Redis.
fn of_store(agents: &Agents, servers: &Servers, costs: &Costs, work: &Work, presence: f64) -> [Use; 3] {
    let stores = servers.stores;
    let price = Price {
        cold: costs.store_cold_us,
        alone: costs.store_alone_us,
        busy: costs.store_busy_us,
    };
    let background = presence + work.further / stores * costs.store_delivery_us / 1e6;
    let thread = utilization(work.messages / stores, price, background);
    let receipts = (work.messages + work.further) * RECEIPTS_KEPT * costs.store_receipt_bytes / 1024.0;
    let kib = (agents.count * costs.store_session_kib + receipts) / stores;
    let bytes = work.messages / stores * costs.store_bytes * work.growth;
    let row = |resource, unit, used, of| Use {
        resource,
        unit,
        used,
        of,
        is_of_replica: false,
    };
    [
        row("thread of a Redis", "cores", thread, 1.0),
        row("memory of a Redis", "GiB", kib / KIB_OF_GIB, servers.store_gib),
        row("network of a Redis", "Gbit/s", bytes * 8.0 / 1e9, servers.gbit),
    ]
}

impl Demand {
    /// The resource of which the largest share is used.
    pub fn wall(&self) -> &Use {
        let largest = self.uses.iter().max_by(|a, b| a.share().total_cmp(&b.share()));
        largest.unwrap_or_else(|| unreachable!("a plan has resources"))
    }

    /// The largest share of a resource of the replicas, or of the Redis servers.
    fn fullest(&self, of_replica: bool) -> f64 {
        let asked = self.uses.iter().filter(|used| used.is_of_replica == of_replica);
        asked.map(Use::share).fold(0.0, f64::max)
    }
}

/// As many replicas, and Redis servers, as are given; else the fewest that carry the agents, the replicas to within a
/// hundredth. Gives up at as many Redis servers as projects, because a project is on one of them, and where twice the replicas
/// would hardly help: each knows all sessions of a project.
pub fn fewest(agents: &Agents, template: &Servers, given: (Option<f64>, Option<f64>), costs: &Costs) -> Servers {
    let mut servers = Servers {
        replicas: given.0.unwrap_or(1.0),
        stores: given.1.unwrap_or(1.0),
        ..*template
    };
    let may_grow = given.0.is_none() && servers.stores > 0.0;
    let fullest_of = |servers: &Servers| of(agents, servers, costs).fullest(true);
    let helps = |servers: &Servers| {
        let twice = Servers {
            replicas: 2.0 * servers.replicas,
            ..*servers
        };
        fullest_of(&twice) < 0.95 * fullest_of(servers)
    };
    let stores_max = given.1.unwrap_or(agents.projects);
    while may_grow && fullest_of(&servers) > FULL && helps(&servers) {
        // A hundredth more, so that ten millions of agents need few steps.
        servers.replicas = (servers.replicas * 1.01).ceil();
    }
    while servers.stores < stores_max && of(agents, &servers, costs).fullest(false) > FULL {
        servers.stores += 1.0;
    }
    servers
}

/// The deployment for the simulation, in which background work makes each step longer.
pub fn deployment(agents: &Agents, servers: &Servers, costs: &Costs, demand: &Demand) -> Deployment {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let count = |of: f64| of.max(0.0) as usize;
    let (cold, alone, busy) = if servers.stores > 0.0 {
        (costs.shared_cold_us, costs.shared_alone_us, costs.shared_busy_us)
    } else {
        (costs.direct_cold_us, costs.direct_alone_us, costs.direct_busy_us)
    };
    // What is not routing is half reading and half writing. Waking up is part of the first step.
    let half = |of: f64| (of - costs.router_us).max(0.0) / 2.0;
    let write = Step::micros(half(alone), half(alone), half(busy));
    let waking = |cold: f64, alone: f64| (cold - alone).max(0.0);
    let slower = 1.0 / (1.0 - demand.presence.min(0.99));
    Deployment {
        replicas: count(servers.replicas),
        workers: count(servers.workers),
        stores: count(servers.stores),
        projects: count(agents.projects),
        shards: 1,
        by_project: servers.by_project,
        fan_out: count(agents.fan_out),
        take: Step::micros(half(alone) + waking(cold, alone), half(alone), half(busy)),
        route: always(costs.router_us),
        store: Step::micros(
            (costs.store_alone_us / 2.0 + waking(costs.store_cold_us, costs.store_alone_us)) * slower,
            costs.store_alone_us / 2.0 * slower,
            costs.store_busy_us / 2.0 * slower,
        ),
        write,
        cross: always(costs.shared_cross_us),
        hop: always(costs.crossing_us),
    }
}

/// A step whose cost does not depend on its station.
fn always(us: f64) -> Step {
    Step::micros(us, us, us)
}

/// One project in memory at one replica, whose clients send bursts or one message at a time.
pub fn one_project(workers: usize, shards: usize, bursts: bool, costs: &Costs) -> Deployment {
    let (message, router, hop) = if bursts {
        (costs.direct_burst_us, costs.router_burst_us, costs.crossing_burst_us)
    } else {
        (costs.direct_busy_us, costs.router_us, costs.crossing_us)
    };
    let half = (message - router).max(0.0) / 2.0;
    Deployment {
        replicas: 1,
        workers,
        stores: 0,
        projects: 1,
        shards,
        by_project: false,
        fan_out: 1,
        take: always(half),
        route: always(router),
        store: Step::default(),
        write: always(half),
        cross: Step::default(),
        hop: always(hop),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGENTS: Agents = Agents {
        count: 1000.0,
        per_hour: 60.0,
        fan_out: 1.0,
        size: 400.0,
        projects: 1.0,
    };
    const SERVERS: Servers = Servers {
        replicas: 1.0,
        workers: 2.0,
        stores: 1.0,
        by_project: false,
        gib: 8.0,
        store_gib: 16.0,
        gbit: 1.0,
        connections: 25_000.0,
    };

    fn costs() -> Costs {
        Costs::read(None).unwrap().0
    }

    #[test]
    fn a_station_works_less_for_a_message_the_more_there_are() {
        let price = Price {
            cold: 60.0,
            alone: 20.0,
            busy: 5.0,
        };
        let half = utilization(60_000.0, price, 0.0);
        assert!(half > 0.6 && half < 0.7, "{half}");
        assert!((utilization(400_000.0, price, 0.0) - 2.0).abs() < 1e-9);
        assert!((utilization(10.0, price, 0.0) / 0.0006 - 1.0).abs() < 0.01);
    }

    #[test]
    fn the_simulation_and_the_sums_agree() {
        let costs = costs();
        let agents = Agents {
            count: 20_000.0,
            per_hour: 3600.0,
            projects: 50.0,
            ..AGENTS
        };
        let servers = Servers {
            replicas: 2.0,
            ..SERVERS
        };
        let demand = of(&agents, &servers, &costs);
        let deployment = deployment(&agents, &servers, &costs, &demand);
        let outcome = super::super::simulation::run(
            &deployment,
            super::super::simulation::Arrival::PerSecond(demand.messages),
            50_000,
        );
        let worker = demand.uses[0].share();
        assert!(
            (outcome.worker / worker - 1.0).abs() < 0.3,
            "{} and {worker}",
            outcome.worker
        );
    }

    #[test]
    fn more_agents_want_more_servers() {
        let costs = costs();
        let together = Servers {
            by_project: true,
            ..SERVERS
        };
        let planned = |count, projects| {
            let agents = Agents {
                count,
                projects,
                ..AGENTS
            };
            let servers = fewest(&agents, &together, (None, None), &costs);
            (servers, of(&agents, &servers, &costs).wall().share())
        };
        let ((small, _), (large, wall)) = (planned(1000.0, 1.0), planned(1e6, 1000.0));
        assert!(
            small.replicas < large.replicas && small.stores < large.stores,
            "{small:?} {large:?}"
        );
        assert!(wall <= FULL);
    }

    #[test]
    fn replicas_are_not_added_where_they_do_not_help() {
        let agents = Agents { count: 1e7, ..AGENTS };
        let costs = costs();
        let servers = fewest(&agents, &SERVERS, (None, None), &costs);
        assert!(servers.replicas < 10_000.0, "{servers:?}");
        assert!(of(&agents, &servers, &costs).wall().share() > FULL);
    }

    #[test]
    fn a_project_that_stays_at_one_replica_saves_presence() {
        let costs = costs();
        let agents = Agents {
            count: 1e5,
            projects: 100.0,
            ..AGENTS
        };
        let spread = Servers {
            replicas: 8.0,
            ..SERVERS
        };
        let together = Servers {
            by_project: true,
            ..spread
        };
        assert!(of(&agents, &together, &costs).presence < of(&agents, &spread, &costs).presence);
    }
}
