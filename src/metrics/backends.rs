//! What a scrape has of the backends of the gateway: about 50 series of each. The configuration file bounds the number of its
//! backends; those that administrators have added are shown for the projects that are shown by name, of which there are few.

use std::sync::{Arc, atomic::Ordering};

use actors::{
    gateway::{BackendShared, CallStatus, Direction, ListKind, StartReason},
    metrics::{Labelled, open_project},
    model::BackendOrigin,
    project::ProjectHandle,
};

use super::{
    catalog::{self, Metric},
    family::{Families, Value},
};

/// A family of metrics with a sample for each backend.
type Read = fn(&BackendShared) -> Value;

/// Adds the backends of these projects.
pub fn put_backends(families: &mut Families, projects: &[ProjectHandle]) {
    let mut projects: Vec<_> = projects
        .iter()
        .filter_map(|project| Some((project, project.gateway()?)))
        .collect();
    projects.sort_unstable_by(|(one, _), (other, _)| one.id().cmp(other.id()));
    let (mut tools, mut backends) = (Vec::new(), Vec::<Arc<BackendShared>>::new());
    for (project, gateway) in projects {
        let has_name = open_project(project.id()).is_some_and(|counters| counters.is_labelled());
        let is_shown = |backend: &&Arc<BackendShared>| has_name || backend.view().config.origin == BackendOrigin::File;
        let (offered, before) = (gateway.shared().offered(), backends.len());
        backends.extend(offered.backends.iter().filter(is_shown).cloned());
        if backends.len() > before {
            let len = offered.routes.listing(None, ListKind::Tools).len();
            tools.push(([project.id().to_string()], len.into()));
        }
    }
    families.put_labelled(catalog::GATEWAY_TOOLS, tools);
    let states = backends
        .iter()
        .map(|backend| (with(backend, backend.view().state.as_str()), Value::Integer(1)));
    families.put_labelled(catalog::BACKENDS, states);
    put_for_each(
        families,
        catalog::BACKEND_CALLS,
        &backends,
        CallStatus::ALL,
        |backend, outcome| backend.counters.calls.get(outcome),
    );
    let figures: [(Metric, Read); 6] = [
        (catalog::BACKEND_CALL_SECONDS, |backend| {
            backend.counters.call_time.snapshot().into()
        }),
        (catalog::BACKEND_CALLS_OPEN, |backend| {
            backend.counters.open.load(Ordering::Relaxed).into()
        }),
        (catalog::BACKEND_CALLS_WAITING, |backend| backend.waiting_len().into()),
        (catalog::BACKEND_CALLS_PARKED, |backend| backend.parked.count().into()),
        (catalog::BACKEND_PROCESSES, |backend| {
            backend.counters.processes.load(Ordering::Relaxed).into()
        }),
        (catalog::BACKEND_LIST_CHANGES, |backend| {
            backend.counters.list_changes.load(Ordering::Relaxed).into()
        }),
    ];
    for (metric, read) in figures {
        families.put_labelled(metric, backends.iter().map(|backend| (names(backend), read(backend))));
    }
    put_for_each(
        families,
        catalog::BACKEND_STARTS,
        &backends,
        StartReason::ALL,
        |backend, reason| backend.counters.starts.get(reason),
    );
    put_for_each(
        families,
        catalog::BACKEND_BYTES,
        &backends,
        Direction::ALL,
        |backend, direction| backend.counters.bytes.get(direction),
    );
    let dropped = backends.iter().flat_map(|backend| {
        let counts = backend.counters.dropped().into_iter();
        counts.map(|(why, count)| (with(backend, why), Value::Integer(count)))
    });
    families.put_labelled(catalog::BACKEND_DROPPED, dropped);
}

/// Adds a sample for each backend and each value of a label.
fn put_for_each<L: Labelled>(
    families: &mut Families,
    metric: Metric,
    backends: &[Arc<BackendShared>],
    values: &'static [L],
    count: fn(&BackendShared, L) -> u64,
) {
    let samples = backends.iter().flat_map(|backend| {
        let of = |value: &L| (with(backend, value.as_str()), Value::Integer(count(backend, *value)));
        values.iter().map(of)
    });
    families.put_labelled(metric, samples);
}

fn names(backend: &BackendShared) -> [String; 2] {
    [backend.project.to_string(), backend.name.to_string()]
}

/// The names with a third label.
fn with(backend: &BackendShared, third: &str) -> [String; 3] {
    let [project, name] = names(backend);
    [project, name, third.to_owned()]
}
