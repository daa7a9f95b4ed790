//! REST under `/api/v1`: one file per resource. What it does is done by the administration, which the tools call too.

pub mod audit;
pub mod projects;
pub mod tree;

use std::{future::Ready, sync::Arc};

use actix_web::{
    FromRequest, HttpMessage, HttpRequest, HttpResponse, ResponseError, body::BoxBody, dev::Payload, http::StatusCode,
    web,
};
use actors::model::BrokerError;
use serde::Serialize;

use super::State;
use crate::{admin::Administration, auth::Identity, problem::Problem};

/// Bytes of one body.
const BODY_LEN_MAX: usize = 64 * 1024;

/// Adds the routes.
pub fn routes(config: &mut web::ServiceConfig) {
    let scope = web::scope("/api/v1")
        .app_data(
            web::JsonConfig::default()
                .limit(BODY_LEN_MAX)
                .error_handler(|error, _| {
                    let error: actix_web::Error = match &error {
                        actix_web::error::JsonPayloadError::Overflow { limit }
                        | actix_web::error::JsonPayloadError::OverflowKnownLength { limit, .. } => {
                            Refused(BrokerError::PayloadTooLarge { limit: *limit }).into()
                        }
                        error => Refused(BrokerError::invalid("body", error.to_string())).into(),
                    };
                    error
                }),
        )
        .app_data(
            web::QueryConfig::default()
                .error_handler(|error, _| Refused(BrokerError::invalid("query", error.to_string())).into()),
        )
        .configure(projects::routes)
        .configure(audit::routes)
        .configure(tree::routes)
        .default_service(web::to(super::not_found));
    config.service(scope);
}

/// Who calls. Every route under authentication has one.
pub struct Caller(pub Arc<Identity>);

impl FromRequest for Caller {
    type Error = Refused;
    type Future = Ready<Result<Self, Refused>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let identity = request.extensions().get::<Arc<Identity>>().cloned();
        std::future::ready(identity.map(Self).ok_or(Refused(BrokerError::AuthenticationFailed)))
    }
}

/// The administration of the broker, as soon as it has started.
pub struct Admin(Arc<Administration>);

impl std::ops::Deref for Admin {
    type Target = Administration;

    fn deref(&self) -> &Administration {
        &self.0
    }
}

impl FromRequest for Admin {
    type Error = Refused;
    type Future = Ready<Result<Self, Refused>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let state = request.app_data::<web::Data<Arc<State>>>();
        let admin = state.and_then(|state| state.admin.get()).cloned();
        std::future::ready(admin.map(Self).ok_or(Refused(BrokerError::unavailable())))
    }
}

/// What a verb refused, as a problem.
#[derive(Debug)]
pub struct Refused(pub BrokerError);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl From<BrokerError> for Refused {
    fn from(error: BrokerError) -> Self {
        Self(error)
    }
}

impl ResponseError for Refused {
    fn status_code(&self) -> StatusCode {
        Problem::from(&self.0).status
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        Problem::from(&self.0).into_response()
    }
}

type Answer = Result<HttpResponse, Refused>;

fn ok(body: impl Serialize) -> Answer {
    Ok(HttpResponse::Ok().json(body))
}
