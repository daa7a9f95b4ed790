//! A rolling update as Kubernetes does it with the numbers of the chart, behind a load balancer and under load.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    balancer::Balancer,
    cluster::ReplicaAddresses,
    roaming_client::{LOAD, Load},
    support::{Broker, Redis, eventually},
};

/// The longest time that a client may take to be connected again.
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// How a pod ends, as the chart renders it for several replicas.
struct PodEnd {
    /// The time between the removal of its endpoint and SIGTERM.
    pre_stop: Duration,
    /// The time between the removal of its endpoint and SIGKILL.
    grace: Duration,
}

impl PodEnd {
    fn of_chart() -> Self {
        let rendered = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/helm/golden/ha.yaml");
        let rendered = fs::read_to_string(rendered).unwrap();
        let number = |before: &str| {
            let (_, rest) = rendered.split_once(before).unwrap_or_else(|| panic!("{before}"));
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            Duration::from_secs(digits.parse().unwrap())
        };
        Self {
            pre_stop: number("sleep: {seconds: "),
            grace: number("terminationGracePeriodSeconds: "),
        }
    }
}

/// Three pods and a place for the one that replaces another (`maxSurge: 1`).
struct Pods<'a> {
    balancer: &'a Balancer,
    redis_url: String,
    places: [Option<Broker>; 4],
}

impl Pods<'_> {
    fn launch(&mut self, place: usize) {
        // Broadcasts wait for the senders too, which read nothing.
        let pod = Broker::replica(&self.redis_url, &["--queue-capacity=100000"]);
        eventually("the new pod is ready", || {
            (pod.get("/readyz").status == 200).then_some(())
        });
        self.balancer.add_endpoint(place, pod.address);
        self.places[place] = Some(pod);
    }

    /// Replaces the pod at `old` by a new one at `new`.
    fn replace(&mut self, old: usize, new: usize, end: &PodEnd) {
        self.launch(new);
        let mut pod = self.places[old].take().unwrap();
        let removed_at = Instant::now();
        self.balancer.remove_endpoint(old);
        thread::sleep(end.pre_stop);
        assert_eq!(pod.get("/readyz").status, 200, "a pod serves until SIGTERM");
        pod.terminate();
        let status = pod.wait_for_exit();
        assert!(status.success(), "{status:?}: {}", pod.log());
        let took = removed_at.elapsed();
        assert!(took < end.grace, "the pod took {took:?} and would have been killed");
    }
}

#[test]
fn a_rolling_update_with_the_numbers_of_the_chart_loses_nothing_and_clients_return_at_once() {
    let end = PodEnd::of_chart();
    let redis = Redis::start();
    let balancer = Balancer::start(4);
    let mut pods = Pods {
        balancer: &balancer,
        redis_url: redis.url(),
        places: [const { None }; 4],
    };
    (0..3).for_each(|place| pods.launch(place));
    Broker::register_note_protocol(&pods.places[0].as_ref().unwrap().client());
    let load = Load {
        pause: Duration::from_millis(10),
        ..LOAD
    };
    let balance = load.run(ReplicaAddresses::of(balancer.address), |ledger| {
        for (old, new) in [(0, 3), (1, 0), (2, 1)] {
            ledger.await_more_accepted(100);
            pods.replace(old, new, &end);
        }
        ledger.await_more_accepted(100);
    });
    assert!(balance.accepted >= 400, "{balance:?}");
    assert!(balance.reconnect_max <= RECONNECT_MAX, "{:?}", balance.reconnect_max);
    assert!(balance.reconnects > 0, "no connection was at a pod that ended");
    assert_eq!(
        balance.lost_http_calls, 0,
        "a call over HTTP reached a pod that had ended"
    );
}
