use std::sync::Arc;

use actix_web::{HttpResponse, web};
use actors::model::{BrokerError, Scope};

use super::{Answer, Caller};
use crate::http::State;

pub fn routes(config: &mut web::ServiceConfig) {
    config.route("/tree", web::get().to(tree));
}

/// The actors of the broker as data: name, state, mailbox and restarts of each.
async fn tree(state: web::Data<Arc<State>>, Caller(by): Caller) -> Answer {
    by.check(Scope::Operator)?;
    let broker = state.broker.get().ok_or(BrokerError::unavailable())?;
    Ok(HttpResponse::Ok().json(broker.observe()))
}
