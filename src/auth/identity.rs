use std::{net::IpAddr, sync::Arc, time::Duration};

use actors::{
    broker::Principal,
    model::{BrokerError, Owner, Scope},
    project::ProjectHandle,
    rate::Rate,
};

/// Somebody who was let in, and where they act.
pub struct Identity {
    pub principal: Arc<Principal>,
    pub project: ProjectHandle,
    pub address: Option<IpAddr>,
    /// The limit of those that no key tells apart.
    pub(super) shared_rate: Option<Arc<Rate>>,
}

impl Identity {
    pub fn owner(&self) -> &Owner {
        &self.principal.owner
    }

    pub fn scope(&self) -> Scope {
        self.principal.scope
    }

    /// # Errors
    /// `forbidden` when this takes more than they have.
    pub fn check(&self, needed: Scope) -> Result<(), BrokerError> {
        if self.scope() >= needed {
            return Ok(());
        }
        Err(BrokerError::forbidden(match needed {
            Scope::Operator => "this takes the admin key of the broker".to_owned(),
            _ => format!("this takes a key of scope {}", needed.as_str()),
        }))
    }

    /// Whether what they came in with is still good, and their project still there.
    pub fn is_good(&self, now_unix_ms: u64) -> bool {
        self.principal.standing.is_good(now_unix_ms) && !self.project.is_closed() && !self.project.is_abandoned()
    }

    /// Takes one request: of the caller's own limit, then of its project's.
    ///
    /// # Errors
    /// When there will be one again.
    pub fn take_request(&self) -> Result<(), Duration> {
        let own = self.principal.rate.as_ref().or(self.shared_rate.as_deref());
        own.map_or(Ok(()), Rate::take)?;
        self.project.take_request()
    }

    /// How many requests a minute are taken of them; None for any number.
    pub fn request_limit(&self) -> Option<u32> {
        let own = self.principal.rate.as_ref().or(self.shared_rate.as_deref());
        let of_project = self.project.terms().record.config.rate_limit;
        let of_project = Some(of_project).filter(|&limit| limit > 0);
        own.map(Rate::count).into_iter().chain(of_project).min()
    }

    /// Whether it is the same caller in the same project, whatever they came in with.
    pub fn is_same(&self, other: &Self) -> bool {
        self.owner() == other.owner() && self.project.id() == other.project.id()
    }

    /// Who it is that a state belongs to which its caller carries: not the project alone.
    pub fn signature(&self) -> String {
        format!("{}/{}", self.project.id(), self.principal.owner.as_str())
    }
}
