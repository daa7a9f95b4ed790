//! Finds requests that this broker has sent to itself: a backend whose URL points back here would list itself again and
//! again. Each request to a backend over HTTP names the broker in `Via` (RFC 9110, section 7.6.3).

use std::sync::OnceLock;

use actix_web::http::header::{self, HeaderMap};
use uuid::Uuid;

/// What such a request is answered with.
pub const LED_BACK: &str = "this request comes from this broker itself: a backend must not be the broker that calls it";

static OWN_HOP: OnceLock<String> = OnceLock::new();

/// Gives this process the hop of the broker of which it is a replica. Called before the first request to a backend.
pub fn share(broker_id: Uuid) {
    let _ = OWN_HOP.set(hop(broker_id));
}

/// The value of `Via` in the requests of this broker: all its replicas have the same one.
pub fn own_hop() -> &'static str {
    OWN_HOP.get_or_init(|| hop(Uuid::new_v4()))
}

/// Whether a request has come from this broker. Without a hop it has sent none.
pub fn has_own_hop(headers: &HeaderMap) -> bool {
    let mut hops = headers.get_all(header::VIA).filter_map(|via| via.to_str().ok());
    OWN_HOP.get().is_some_and(|own| hops.any(|hops| hops.contains(own)))
}

fn hop(id: Uuid) -> String {
    format!("1.1 mcp-broker-{}", id.simple())
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    #[test]
    fn a_request_of_this_broker_is_found_behind_other_hops() {
        let mut headers = HeaderMap::new();
        headers.insert(header::VIA, HeaderValue::from_static("1.1 mcp-broker-other, 1.1 proxy"));
        assert!(!has_own_hop(&headers));
        let hops = format!("{}, 1.1 proxy", own_hop());
        headers.append(header::VIA, HeaderValue::try_from(hops).unwrap());
        assert!(has_own_hop(&headers));
    }
}
