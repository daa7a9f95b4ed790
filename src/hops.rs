//! Finds requests that this broker has sent to itself: a backend whose URL leads back here would list itself again and
//! again. Each request to a backend over HTTP names the broker in `Via` (RFC 9110, section 7.6.3).

use std::sync::OnceLock;

use actix_web::http::header::{self, HeaderMap};
use uuid::Uuid;

/// The value of `Via` in the requests of this process.
pub fn own_hop() -> &'static str {
    static HOP: OnceLock<String> = OnceLock::new();
    HOP.get_or_init(|| format!("1.1 mcp-broker-{}", Uuid::new_v4().simple()))
}

/// Whether a request has come from this process.
pub fn has_own_hop(headers: &HeaderMap) -> bool {
    let mut hops = headers.get_all(header::VIA).filter_map(|via| via.to_str().ok());
    hops.any(|hops| hops.contains(own_hop()))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderValue;

    use super::*;

    #[test]
    fn a_request_of_this_process_is_found_behind_other_hops() {
        let mut headers = HeaderMap::new();
        headers.insert(header::VIA, HeaderValue::from_static("1.1 mcp-broker-other, 1.1 proxy"));
        assert!(!has_own_hop(&headers));
        let hops = format!("{}, 1.1 proxy", own_hop());
        headers.append(header::VIA, HeaderValue::try_from(hops).unwrap());
        assert!(has_own_hop(&headers));
    }
}
