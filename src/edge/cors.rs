//! CORS: which web pages may read the answers of this broker.

use actix_cors::Cors;
use actix_web::http::Method;

use super::Admission;

/// Middleware with the CORS headers for the allowed origins (Fetch, section 3.2).
pub fn cors(admission: Admission) -> Cors {
    const PREFLIGHT_MAX_AGE_S: usize = 3600;
    // A page of a listed origin may send credentials; where every origin is allowed, none may.
    let allows_credentials = !admission.allows_every_origin();
    let cors = Cors::default()
        .allowed_origin_fn(move |_, head| admission.check(head.headers()).is_ok())
        .allowed_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_any_header()
        .expose_headers(["ETag", "Mcp-Session-Id", "Retry-After", "WWW-Authenticate"])
        .max_age(PREFLIGHT_MAX_AGE_S);
    if allows_credentials {
        cors.supports_credentials()
    } else {
        cors
    }
}
