//! Authentication and the rate limit of a request.

use std::sync::Arc;

use actors::model::BrokerError;

use api::{
    auth::{Authenticator, Credentials, Identity},
    problem::Problem,
};

/// Authenticates the caller with these credentials, and takes the request from its rate limit.
///
/// # Errors
/// The response to send instead: 401, 403, 404, 429 or 503.
pub async fn authenticate(auth: &Authenticator, credentials: &Credentials<'_>) -> Result<Arc<Identity>, Problem> {
    let identity = auth.authenticate(credentials).await?;
    match identity.take_request() {
        Ok(()) => Ok(identity),
        Err(retry_after) => Err(Problem::from(&BrokerError::RateLimited { retry_after })),
    }
}
