//! The answered HTTP requests by route, method and status. The patterns of routes come from the code, so that their number
//! is bounded.

use std::{
    collections::HashMap,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use actors::locked::RwLocked;

use super::{
    catalog::HTTP_REQUESTS,
    family::{Families, Value},
};

/// Routes that are counted separately. More than the code has: the rest would count as [`OTHER`].
const ROUTES_MAX: usize = 128;
/// A path without a route.
const NO_ROUTE: &str = "_none";
const OTHER: &str = "_other";

const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", OTHER];
/// The statuses that the broker answers with.
const STATUSES: &[u16] = &[
    200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 412, 413, 415, 422, 426, 428, 429, 500, 501,
    502, 503, 504,
];
/// The statuses and one for all others.
const STATUSES_LEN: usize = STATUSES.len() + 1;
const COUNTS_LEN: usize = METHODS.len() * STATUSES_LEN;

struct Route {
    counts: [AtomicU64; COUNTS_LEN],
}

/// The counts of each route. A route is leaked once and lives as long as the process.
static ROUTES: LazyLock<RwLocked<HashMap<String, &'static Route>>> = LazyLock::new(RwLocked::default);

fn route(pattern: Option<&str>) -> &'static Route {
    let pattern = pattern.unwrap_or(NO_ROUTE);
    if let Some(known) = ROUTES.read().get(pattern) {
        return known;
    }
    let mut routes = ROUTES.write();
    let pattern = if routes.len() < ROUTES_MAX { pattern } else { OTHER };
    routes.entry(pattern.to_owned()).or_insert_with(|| {
        Box::leak(Box::new(Route {
            counts: [const { AtomicU64::new(0) }; COUNTS_LEN],
        }))
    })
}

/// Counts an answer. `pattern` is the pattern of the route; None for a path without a route.
pub fn count_request(pattern: Option<&str>, method: &str, status: u16) {
    let method = METHODS.iter().position(|known| *known == method);
    let method = method.unwrap_or(METHODS.len() - 1);
    let status = STATUSES.iter().position(|known| *known == status);
    let status = status.unwrap_or(STATUSES.len());
    route(pattern).counts[method * STATUSES_LEN + status].fetch_add(1, Ordering::Relaxed);
}

/// Adds the counts to a scrape.
pub(super) fn put_requests(families: &mut Families) {
    let routes = ROUTES.read();
    let mut samples = Vec::new();
    for (pattern, route) in routes.iter() {
        for (at, count) in route.counts.iter().enumerate() {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let (method, status) = (METHODS[at / STATUSES_LEN], STATUSES.get(at % STATUSES_LEN));
                let status = status.map_or_else(|| OTHER.to_owned(), u16::to_string);
                samples.push(([pattern.clone(), method.to_owned(), status], Value::Integer(count)));
            }
        }
    }
    samples.sort_by(|(one, _), (two, _)| one.cmp(two));
    families.put_labelled(HTTP_REQUESTS, samples);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_thousand_names_make_a_bounded_number_of_series() {
        for at in 0..100_000_u32 {
            count_request(Some(&format!("/{at:x}")), &format!("M{at:x}"), (at % 1000) as u16);
        }
        let mut families = Families::default();
        put_requests(&mut families);
        let samples = &families.0[0].samples;
        assert!(samples.len() <= (ROUTES_MAX + 1) * STATUSES_LEN, "{}", samples.len());
        let total: u64 = samples
            .iter()
            .map(|sample| match sample.value {
                Value::Integer(count) => count,
                _ => 0,
            })
            .sum();
        assert_eq!(total, 100_000);
    }
}
