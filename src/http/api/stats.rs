//! `/api/v1/stats`: the present figures of a project or of the broker, and the series of the last hour.

use actix_web::{HttpRequest, web};
use actors::model::{BrokerError, Scope};
use rest::{series::STEP_SECONDS, stats::Stats};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::{
    extract::{ApiResult, Caller, ok, parse_seconds},
    health::storage_condition,
    replicas,
    state::StateData,
};

/// Bytes of the answer of another replica: an hour of points of every figure is about 50 KiB.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

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

/// The figures of the project, of all replicas together.
#[utoipa::path(get, path = "/api/v1/stats", operation_id = "get_stats", tag = "broker", params(Query), responses(
    (status = 200, description = "The figures", body = Stats),
))]
pub async fn show(
    state: StateData,
    Caller(by): Caller,
    web::Query(query): web::Query<Query>,
    request: HttpRequest,
) -> ApiResult {
    by.check_scope(if query.all_projects {
        Scope::Operator
    } else {
        Scope::Observer
    })?;
    let is_self_only = replicas::is_self_only(query.replica.as_deref())?;
    let series = parse_series(query.window.as_deref(), query.step.as_deref())?;
    let metrics = &state.ready()?.metrics;
    let project = (!query.all_projects).then_some(&by.project);
    let mut answer = Stats {
        health: Some(storage_condition(&state)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        replica: replicas::own_id(&request).map(|replica| replica.to_string()),
        series: series.map(|(window, step)| metrics.series(project.map(|project| project.id()), window, step)),
        ..metrics.stats(project)
    };
    for replica in &mut answer.replica_list {
        replica.id.clone_from(&answer.replica);
    }
    if !is_self_only {
        let mut others = replicas::ask_others(&request, ANSWER_BYTES_MAX).await;
        for (_, other) in others.parse() {
            answer.merge(&other);
        }
        answer.partial = others.partial;
    }
    answer.warnings = state.warnings(&answer, answer.partial.len());
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
