//! Asks the other replicas what a caller asked this one, so that the figures of processes are those of the whole broker.

use actix_web::{
    HttpRequest,
    http::{StatusCode, Uri},
    web::Bytes,
};
use actors::model::{BrokerError, ReplicaId};
use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::timeout;

use super::backpressure::transport_context;
use crate::transport::{TransportContext, replica_client};

/// How long an answer of another replica is awaited.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// What `partial` has when the storage could not say which replicas there are.
const UNKNOWN: &str = "unknown";

/// The answers of the other replicas.
#[derive(Debug, Default)]
pub struct Answers {
    /// What the replicas answered with status 200, or with 204 without a body.
    answered: Vec<(ReplicaId, Bytes)>,
    /// The replicas that did not answer.
    pub partial: Vec<String>,
}

impl Answers {
    /// Whether a replica has what was asked about.
    pub fn is_any(&self) -> bool {
        !self.answered.is_empty()
    }

    /// The answers as values. A replica whose answer cannot be read, such as one of another version, counts as one that
    /// did not answer.
    pub fn parse<T: DeserializeOwned>(&mut self) -> Vec<(ReplicaId, T)> {
        let mut parsed = Vec::new();
        for (replica, body) in std::mem::take(&mut self.answered) {
            match serde_json::from_slice(&body) {
                Ok(value) => parsed.push((replica, value)),
                Err(error) => {
                    tracing::warn!(%replica, %error, "the answer of another replica cannot be read");
                    self.partial.push(replica.to_string());
                }
            }
        }
        parsed
    }
}

/// Parses the query parameter `replica`: whether only this replica is asked.
///
/// # Errors
/// `InvalidArgument` for a value other than `self`.
pub fn is_self_only(replica: Option<&str>) -> Result<bool, BrokerError> {
    match replica {
        None => Ok(false),
        Some("self") => Ok(true),
        Some(_) => Err(BrokerError::invalid("replica", "self, or absent for the whole broker")),
    }
}

/// Whether another replica has sent the request on.
pub fn is_sent_on(request: &HttpRequest) -> bool {
    request.headers().contains_key(replica_client::FORWARDED)
}

/// This replica's id; `None` where the storage is not shared.
pub fn own_id(request: &HttpRequest) -> Option<ReplicaId> {
    transport_context(request)?.replica_id()
}

/// Sends the request to every other replica with `replica=self`, and waits at most a second for the answers, of at most
/// `bytes_max` bytes each. A 404 is an answer without a value.
pub async fn ask_others(request: &HttpRequest, bytes_max: usize) -> Answers {
    let Some((context, replicas)) =
        transport_context(request).and_then(|context| Some((context, context.replicas.as_ref()?)))
    else {
        return Answers::default();
    };
    let mut answers = Answers::default();
    let Ok(Ok(addresses)) = timeout(ANSWER_TIMEOUT, replicas.addresses()).await else {
        answers.partial.push(UNKNOWN.to_owned());
        return answers;
    };
    let others = addresses
        .into_iter()
        .filter(|(replica, _)| *replica != replicas.own_id());
    let asked = others.map(async |(replica, address)| {
        let answer = ask_one(request, context, address, bytes_max).await;
        (replica, answer)
    });
    for (replica, answer) in join_all(asked).await {
        match answer {
            Some((StatusCode::OK | StatusCode::NO_CONTENT, body)) => answers.answered.push((replica, body)),
            Some((StatusCode::NOT_FOUND, _)) => {}
            Some(_) | None => answers.partial.push(replica.to_string()),
        }
    }
    answers.partial.sort_unstable();
    answers
}

async fn ask_one(
    request: &HttpRequest,
    context: &TransportContext,
    address: std::net::SocketAddr,
    bytes_max: usize,
) -> Option<(StatusCode, Bytes)> {
    let (path, query) = (request.uri().path(), request.uri().query());
    let query = query.map_or_else(String::new, |query| format!("{query}&"));
    let uri: Uri = format!("{path}?{query}replica=self").parse().ok()?;
    answer_of(request, context, uri, Bytes::new(), address, bytes_max).await
}

/// Sends the request with this body to the replica that it is for, and returns the status and the body of the answer. None
/// where this replica is to serve it: it is that one, the request comes from another replica, or no such replica answers.
pub async fn ask_replica(
    request: &HttpRequest,
    replica: ReplicaId,
    body: Bytes,
    bytes_max: usize,
) -> Option<(StatusCode, Bytes)> {
    let context = transport_context(request)?;
    let replicas = context.replicas.as_ref()?;
    if replica == replicas.own_id() || is_sent_on(request) {
        return None;
    }
    let addresses = timeout(ANSWER_TIMEOUT, replicas.addresses()).await.ok()?.ok()?;
    let (_, address) = addresses.into_iter().find(|(known, _)| *known == replica)?;
    answer_of(request, context, request.uri().clone(), body, address, bytes_max).await
}

async fn answer_of(
    request: &HttpRequest,
    context: &TransportContext,
    uri: Uri,
    body: Bytes,
    address: std::net::SocketAddr,
    bytes_max: usize,
) -> Option<(StatusCode, Bytes)> {
    let stall_max = context.timeouts.stall_timeout;
    let answer = replica_client::ask(request, uri, body, address, stall_max, bytes_max);
    match timeout(ANSWER_TIMEOUT, answer).await {
        Ok(Ok(answer)) => Some(answer),
        Ok(Err(error)) => {
            tracing::debug!(%error, replica = %address, "a replica did not answer");
            None
        }
        Err(_) => None,
    }
}
