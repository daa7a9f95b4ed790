//! `/api/v1/stats`: the present figures of a project or of the broker, and the series of the last hour.

#![allow(unused_qualifications, reason = "what utoipa writes")]

use actix_web::{HttpRequest, http::Method, web};
use actors::model::{BrokerError, Scope};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    http::{
        extract::{ApiResult, Caller, ok, parse_seconds},
        health::StorageCondition,
        replicas,
        resource::Resource,
        state::StateData,
    },
    metrics::{STEP_SECONDS, Series, Stats, Warning},
};

/// Bytes of the answer of another replica: an hour of points of every figure is about 50 KiB.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    vec![Resource::at("/api/v1/stats").on(Method::GET, web::to(show))]
}

/// Selects figures.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Query {
    /// The figures of all projects together, and those of the broker. Requires the admin key.
    #[serde(default)]
    #[param(default = false)]
    all_projects: bool,
    /// Also series of this time until now, such as `15m`: at most `1h`.
    #[param(pattern = "^[1-9][0-9]{0,3}[smh]$", example = "1h")]
    window: Option<String>,
    /// The time between two points of the series: at least `10s`, which is the default.
    #[param(pattern = "^[1-9][0-9]{0,3}[smh]$", example = "10s")]
    step: Option<String>,
    /// `self`: the figures of this replica alone.
    #[param(pattern = "^self$")]
    replica: Option<String>,
}

/// Figures, and series if they were asked for.
#[derive(Serialize, Deserialize, ToSchema)]
#[schema(as = StatsAnswer)]
pub struct Answer {
    #[serde(flatten)]
    stats: Stats,
    /// That of the replica that works worst.
    #[schema(nullable = false, required)]
    health: Option<StorageCondition>,
    /// What an operator should look at, most urgent first.
    #[serde(default)]
    #[schema(required)]
    warnings: Vec<Warning>,
    /// Of the replica that answers.
    #[serde(default)]
    version: String,
    /// The id of the replica that answers; null where the storage is not shared.
    #[schema(required)]
    replica: Option<String>,
    /// With `window`. A project that is not among the busiest `METRICS_PROJECTS_MAX` has no points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    series: Option<Series>,
    /// Replicas that did not answer: their figures are missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    partial: Vec<String>,
}

/// The figures of the project, of all replicas together.
#[utoipa::path(get, path = "/api/v1/stats", operation_id = "get_stats", tag = "broker", params(Query), responses(
    (status = 200, description = "The figures", body = Answer),
))]
pub async fn show(state: StateData, Caller(by): Caller, query: web::Query<Query>, request: HttpRequest) -> ApiResult {
    let Query {
        all_projects,
        window,
        step,
        replica,
    } = query.into_inner();
    by.check_scope(if all_projects { Scope::Operator } else { Scope::Observer })?;
    let is_self_only = replicas::is_self_only(replica.as_deref())?;
    let series = parse_series(window.as_deref(), step.as_deref())?;
    let metrics = &state.ready()?.metrics;
    let project = (!all_projects).then_some(&by.project);
    let mut answer = Answer {
        stats: metrics.stats(project),
        health: Some(StorageCondition::of(&state)),
        warnings: Vec::new(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        replica: replicas::own_id(&request).map(|replica| replica.to_string()),
        series: series.map(|(window, step)| metrics.series(project.map(|project| project.id()), window, step)),
        partial: Vec::new(),
    };
    for replica in &mut answer.stats.replica_list {
        replica.id.clone_from(&answer.replica);
    }
    if !is_self_only {
        let mut others = replicas::ask_others(&request, ANSWER_BYTES_MAX).await;
        for (_, other) in others.parse::<Answer>() {
            answer.stats.merge(&other.stats);
            answer.health = match (answer.health, other.health) {
                (Some(own), Some(other)) => Some(own.worse(other)),
                (own, other) => own.or(other),
            };
            if let (Some(series), Some(other)) = (&mut answer.series, &other.series) {
                series.merge(other);
            }
        }
        answer.partial = others.partial;
    }
    answer.warnings = state.warnings(&answer.stats, answer.partial.len());
    ok(answer)
}

/// Parses window and step in seconds; `None` without a window.
fn parse_series(window: Option<&str>, step: Option<&str>) -> Result<Option<(u64, u64)>, BrokerError> {
    let step_text = step;
    let step = step
        .map(|text| parse_seconds("step", text))
        .transpose()?
        .unwrap_or(STEP_SECONDS);
    let Some(window) = window else {
        return match step_text {
            Some(_) => Err(BrokerError::invalid("window", "required with step")),
            None => Ok(None),
        };
    };
    let window = parse_seconds("window", window)?;
    if window < step {
        return Err(BrokerError::invalid("step", "at most the window"));
    }
    Ok(Some((window, step)))
}
