//! Authenticates callers and decides their scope, for every transport.
//!
//! A transport passes the [`Credentials`] of a request and gets an [`Identity`], or a [`Problem`] to answer with. HTTP
//! does so for each request; a WebSocket does so once, and a background task closes it when the credential becomes
//! invalid. This module knows no routes and no MCP.

mod audit;
pub mod cookie;
mod credentials;
mod failed_attempts;
mod human;
mod identity;
pub mod jwt;
mod login;
mod rates;

use std::{
    borrow::Cow,
    sync::{Arc, atomic::AtomicU64},
};

use actix_http::{
    Method, StatusCode,
    header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE},
};
use actors::{
    broker::{BrokerHandle, Principal},
    clock::{Now, now},
    metrics::{AuthFailure, METRICS},
    model::{ApiKey, BrokerError, CredentialStatus, KeyDigest, KeyHuman, Owner, ProjectId, ProjectRecord, Scope},
    rate::RateLimit,
};

pub use audit::{Audit, AuditedAction};
pub use credentials::{API_KEY, Credential, Credentials, Network, PROJECT_ID, Stranger, only_value};
pub use identity::Identity;
pub use login::LoginToken;

use crate::problem::Problem;
use failed_attempts::{Attempt, FailedAttempts};
use jwt::{JwtError, JwtVerifier};
use rates::CallerRates;

/// Prefix of the scopes in a token that concern this broker.
const SCOPE_PREFIX: &str = "mcp-broker:";
/// Path of the protected resource's metadata (RFC 9728, section 3.1).
pub const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// How callers are authenticated.
pub struct AuthPolicy {
    /// A caller without a credential is refused.
    pub is_required: bool,
    /// The digest of the admin key.
    pub admin_key: Option<KeyDigest>,
    pub jwt: Option<Arc<JwtVerifier>>,
    /// Requests per minute of each caller; 0 means no limit.
    pub rate_limit: u32,
    /// Keys of agents may answer questions to people.
    pub allows_agent_answers: bool,
}

/// Authenticates callers.
pub struct Authenticator {
    broker: BrokerHandle,
    is_required: bool,
    admin: Option<(KeyDigest, Arc<Principal>)>,
    anonymous: Arc<Principal>,
    jwt: Option<Arc<JwtVerifier>>,
    /// Rate limits of callers without a key of their own: by address, or by token subject.
    caller_rates: CallerRates,
    failed_attempts: FailedAttempts,
    allows_agent_answers: bool,
    audit: Arc<Audit>,
}

/// Why a caller is refused.
enum AuthError {
    /// The request has no credential.
    MissingCredential,
    /// The credential is invalid. The answer does not say in which way.
    InvalidCredential,
    /// A program of this machine that needs a credential, without one.
    Stranger(Stranger),
    Refused(BrokerError),
}

impl AuthError {
    fn kind(&self) -> AuthFailure {
        match self {
            Self::MissingCredential => AuthFailure::Missing,
            Self::InvalidCredential => AuthFailure::Invalid,
            Self::Stranger(_) => AuthFailure::ForeignUser,
            Self::Refused(BrokerError::RateLimited { .. }) => AuthFailure::Blocked,
            Self::Refused(_) => AuthFailure::Refused,
        }
    }
}

impl From<BrokerError> for AuthError {
    fn from(error: BrokerError) -> Self {
        Self::Refused(error)
    }
}

impl Authenticator {
    /// Authenticates callers of `broker` by this policy.
    pub fn new(broker: BrokerHandle, policy: AuthPolicy, audit: Arc<Audit>) -> Self {
        let AuthPolicy {
            is_required: required,
            admin_key,
            jwt,
            rate_limit,
            allows_agent_answers,
        } = policy;
        let permanent = |owner: Owner, scope, rate| {
            Arc::new(Principal {
                audit_name: owner.as_str().into(),
                owner,
                scope,
                human: None,
                tools: None,
                only_project: None,
                status: CredentialStatus::valid_until(u64::MAX),
                rate,
            })
        };
        // With an admin key, anonymous callers lose the operator's scope.
        let anonymous_scope = if admin_key.is_some() {
            Scope::Member
        } else {
            Scope::Operator
        };
        Self {
            broker,
            is_required: required,
            anonymous: permanent(Owner::anonymous(), anonymous_scope, None),
            admin: admin_key.map(|digest| {
                let rate = RateLimit::from_per_minute(rate_limit);
                (digest, permanent(Owner::operator(), Scope::Operator, rate))
            }),
            jwt,
            caller_rates: CallerRates::per_minute(rate_limit),
            failed_attempts: FailedAttempts::default(),
            allows_agent_answers,
            audit,
        }
    }

    /// Whether callers need a credential.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// The verifier of bearer tokens, if an issuer is configured.
    pub fn jwt(&self) -> Option<&Arc<JwtVerifier>> {
        self.jwt.as_ref()
    }

    /// Authenticates the caller of a request and opens its project.
    ///
    /// # Errors
    /// The response to send instead: 401, 403, 404, 429 or 503.
    pub async fn authenticate(&self, credentials: &Credentials<'_>) -> Result<Arc<Identity>, Problem> {
        match self.identify(credentials).await {
            Ok(identity) => Ok(identity),
            Err(denial) => {
                METRICS.authentication_failures.of(denial.kind()).increment();
                let problem = self.problem(&denial);
                self.audit.record_unauthenticated(credentials, problem.code());
                Err(problem)
            }
        }
    }

    /// The identity of a program that the kernel knows to run as this user, which is the broker's own. It may do in this
    /// project what a member may, and is the same owner as every other caller without a key.
    ///
    /// # Errors
    /// The project cannot be opened.
    pub async fn authenticate_user(&self, uid: u32, project: &ProjectId) -> Result<Arc<Identity>, Problem> {
        let user = format!("uid:{uid}");
        let shared_rate = self.caller_rates.rate_of(&user);
        let principal = Principal {
            audit_name: user.into(),
            owner: Owner::anonymous(),
            scope: Scope::Member,
            human: None,
            tools: None,
            only_project: Some(project.clone()),
            status: CredentialStatus::valid_until(u64::MAX),
            rate: None,
        };
        let project = self.broker.project(project).await;
        Ok(Arc::new(Identity {
            principal: Arc::new(principal),
            project: project.map_err(|error| Problem::from(&error))?,
            address: None,
            shared_rate,
            allows_agent_answers: self.allows_agent_answers,
            invalid_since_ms: AtomicU64::new(0),
        }))
    }

    /// Authenticates the caller with this key, who has no request.
    ///
    /// # Errors
    /// As [`Self::authenticate`].
    pub async fn authenticate_key(&self, key: &str) -> Result<Arc<Identity>, Problem> {
        let mut headers = HeaderMap::new();
        if let Ok(key) = HeaderValue::from_str(key) {
            headers.insert(API_KEY, key);
        }
        let credentials = Credentials {
            method: &Method::GET,
            headers: &headers,
            query: None,
            path: "",
            address: None,
            stranger: None,
        };
        self.authenticate(&credentials).await
    }

    /// The response for a caller whose credential became invalid (revoked or expired) after it was accepted.
    pub fn invalid_credential(&self) -> Problem {
        self.problem(&AuthError::InvalidCredential)
    }

    async fn identify(&self, credentials: &Credentials<'_>) -> Result<Arc<Identity>, AuthError> {
        let credential = match credentials.credential()? {
            Some(Credential::Key(key)) => Some(Cow::Borrowed(key)),
            Some(Credential::Login(login)) => Some(Cow::Owned(self.credential_of(&login, credentials).await?)),
            Some(Credential::NoLogin(text)) => {
                let attempt = self.failed_attempts.attempt(credentials.network(), text);
                return Err(failure_of(&attempt, now()));
            }
            None => None,
        };
        let principal = match &credential {
            Some(credential) => self.principal_for(credential, credentials).await?,
            None => None,
        };
        let principal = match principal {
            Some(principal) => principal,
            None if self.is_required => return Err(AuthError::MissingCredential),
            None => match credentials.stranger {
                Some(stranger) => return Err(AuthError::Stranger(stranger)),
                None => Arc::clone(&self.anonymous),
            },
        };
        let project = project_of(&principal, credentials.project()?)?;
        let project = self.broker.project(&project).await.map_err(|error| match error {
            // The project of a key was deleted, and with it the key.
            BrokerError::ProjectNotFound if principal.only_project.is_some() => AuthError::InvalidCredential,
            error => AuthError::Refused(error),
        })?;
        let shared_rate = match &principal.only_project {
            _ if !self.caller_rates.is_limited() => None,
            None if principal.owner == Owner::anonymous() => {
                let network = credentials.network();
                self.caller_rates
                    .rate_of(&network.map_or_else(String::new, |network| network.to_string()))
            }
            Some(_) if principal.rate.is_none() => self.caller_rates.rate_of(&principal.audit_name),
            _ => None,
        };
        Ok(Arc::new(Identity {
            principal,
            project,
            address: credentials.address,
            shared_rate,
            allows_agent_answers: self.allows_agent_answers,
            invalid_since_ms: AtomicU64::new(0),
        }))
    }

    /// Stores a login of this caller with its credential. The cookie of a browser keeps the token.
    ///
    /// # Errors
    /// `project_not_found`, `unavailable`.
    pub async fn log_in(&self, by: &Identity, credential: &str) -> Result<LoginToken, BrokerError> {
        let home = by.principal.only_project.clone();
        let login = LoginToken::generate(&home.unwrap_or_else(ProjectId::default_project))?;
        let record = login.record(credential, &by.principal.audit_name, now().unix_ms);
        self.broker.add_login(login.project(), record).await?;
        Ok(login)
    }

    /// Ends a login, if it exists.
    ///
    /// # Errors
    /// `rate_limited` after too many tokens that no login has; `unavailable`.
    pub async fn log_out(&self, login: &LoginToken, credentials: &Credentials<'_>) -> Result<(), BrokerError> {
        match self.credential_of(login, credentials).await {
            Ok(_) => self.broker.end_login(login.project(), login.digest()).await,
            Err(AuthError::Refused(error)) => Err(error),
            Err(AuthError::MissingCredential | AuthError::InvalidCredential | AuthError::Stranger(_)) => Ok(()),
        }
    }

    /// The credential of a login.
    async fn credential_of(&self, login: &LoginToken, credentials: &Credentials<'_>) -> Result<String, AuthError> {
        self.broker.wait_until_loaded().await?;
        let now = now();
        let find = |record: Arc<ProjectRecord>| {
            let stored = record.login(&login.digest(), now.unix_ms);
            stored.and_then(|stored| login.credential_in(stored))
        };
        if let Some(credential) = self.broker.record(login.project()).and_then(find) {
            return Ok(credential);
        }
        let attempt = self.failed_attempts.attempt(credentials.network(), login.reveal());
        if let Err(retry_after) = attempt.record_failure(now) {
            return Err(BrokerError::RateLimited { retry_after }.into());
        }
        // Another replica may have stored the login a moment ago. The limit of failures bounds these reads.
        if self.broker.storage().replicated().is_some() {
            let stored = self.broker.storage().project(login.project().clone()).await;
            if let Some(credential) = stored.map_err(BrokerError::from)?.and_then(find) {
                return Ok(credential);
            }
        }
        Err(AuthError::InvalidCredential)
    }

    /// Finds the principal of a credential. `None`: the credential is not for this broker, and none is required.
    async fn principal_for(
        &self,
        credential: &str,
        credentials: &Credentials<'_>,
    ) -> Result<Option<Arc<Principal>>, AuthError> {
        let now = now();
        let digest = KeyDigest::of_key(credential);
        // A valid key is accepted however many attempts failed from the same address.
        if let Some(principal) = self.key_holder(&digest, now) {
            return Ok(Some(principal));
        }
        // A client that returns right after the start must not hear that its key is not valid.
        self.broker.wait_until_loaded().await?;
        if let Some(principal) = self.key_holder(&digest, now) {
            return Ok(Some(principal));
        }
        let attempt = self.failed_attempts.attempt(credentials.network(), credential);
        if let Some(retry_after) = attempt.blocked_for(now) {
            return Err(BrokerError::RateLimited { retry_after }.into());
        }
        if let Some(jwt) = self.jwt.as_ref().filter(|_| JwtVerifier::is_jwt_shaped(credential)) {
            match jwt.verify(credential, now.unix_ms / 1000).await {
                Ok(claims) => return principal_of_claims(claims).map(Some),
                Err(JwtError::Unavailable) => return Err(BrokerError::unavailable().into()),
                // The token was valid once: the client fetches a new one. The attempt does not count as failed.
                Err(JwtError::Invalid(jwt::EXPIRED)) => return Err(AuthError::InvalidCredential),
                Err(JwtError::Invalid(reason)) => tracing::debug!(reason, "a token was refused"),
            }
        } else if !self.is_required && !credentials.has_api_key() && ApiKey::claimed_ids(credential).is_none() {
            // The header is probably for a proxy in front of the broker.
            return Ok(None);
        }
        Err(failure_of(&attempt, now))
    }

    /// Returns the holder of a valid key. All invalid keys take the same path.
    fn key_holder(&self, digest: &KeyDigest, now: Now) -> Option<Arc<Principal>> {
        if let Some((known, operator)) = &self.admin
            && known.matches(digest)
        {
            return Some(Arc::clone(operator));
        }
        let holder = self.broker.keyring().find(digest)?;
        let is_good = holder.status.is_valid(now.unix_ms);
        if is_good {
            holder.status.record_use(now.unix_ms);
        }
        is_good.then_some(holder)
    }

    fn problem(&self, denial: &AuthError) -> Problem {
        let unauthorized = |detail: &str, error: &str| {
            let problem = Problem::new(StatusCode::UNAUTHORIZED, "authentication_failed", detail);
            problem.with_header(WWW_AUTHENTICATE, &self.challenge(error))
        };
        match denial {
            AuthError::MissingCredential => unauthorized(
                "a key is required: send it as X-API-Key, or as Authorization: Bearer",
                "",
            ),
            AuthError::InvalidCredential => unauthorized("the key is not valid", "error=\"invalid_token\""),
            AuthError::Stranger(Stranger::UnknownUser) => Problem::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                "the broker cannot find out which user runs this program: use a key, or set allow_anonymous = true",
            ),
            AuthError::Stranger(Stranger::OtherUser) => Problem::new(
                StatusCode::FORBIDDEN,
                "forbidden",
                "this broker serves the user that runs it, and root: start one of your own (mcp-broker start), or \
                 ask its user for a key, or for allow_anonymous = true",
            ),
            AuthError::Refused(error @ BrokerError::Forbidden { .. }) => {
                Problem::from(error).with_header(WWW_AUTHENTICATE, &self.challenge("error=\"insufficient_scope\""))
            }
            AuthError::Refused(error) => Problem::from(error),
        }
    }

    /// The value of `WWW-Authenticate` (RFC 6750, section 3), with the URL of the resource metadata (RFC 9728, section
    /// 5.1).
    fn challenge(&self, error: &str) -> String {
        let mut challenge = "Bearer realm=\"mcp-broker\"".to_owned();
        let metadata = self.jwt.as_ref().map(|jwt| metadata_url(jwt.audience()));
        let metadata = metadata.map(|url| format!("resource_metadata=\"{url}\""));
        for part in metadata
            .into_iter()
            .chain(Some(error.to_owned()))
            .filter(|part| !part.is_empty())
        {
            challenge.push_str(", ");
            challenge.push_str(&part);
        }
        challenge
    }

    /// The metadata of the protected resource (RFC 9728, section 2); `None` without a configured issuer.
    pub fn resource_metadata(&self) -> Option<serde_json::Value> {
        let jwt = self.jwt.as_ref()?;
        let scopes = [Scope::Observer, Scope::Answer, Scope::Member, Scope::Admin]
            .map(|scope| format!("{SCOPE_PREFIX}{}", scope.as_str()));
        Some(serde_json::json!({
            "resource": jwt.audience(),
            "resource_name": "mcp-broker",
            "authorization_servers": [jwt.issuer()],
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes,
        }))
    }
}

/// Counts an attempt with an invalid credential. Returns why it is refused.
fn failure_of(attempt: &Attempt<'_>, now: Now) -> AuthError {
    match attempt.record_failure(now) {
        Ok(()) => AuthError::InvalidCredential,
        Err(retry_after) => BrokerError::RateLimited { retry_after }.into(),
    }
}

/// Makes a principal from the claims of a token.
fn principal_of_claims(claims: jwt::Claims) -> Result<Arc<Principal>, AuthError> {
    let named = |scope: Scope| {
        let mut names = claims.scopes.iter().filter_map(|name| name.strip_prefix(SCOPE_PREFIX));
        names.any(|name| name == scope.as_str())
    };
    let scopes = [Scope::Admin, Scope::Member, Scope::Answer, Scope::Observer];
    let scope = scopes.into_iter().find(|&scope| named(scope)).ok_or_else(|| {
        let names = scopes
            .map(|scope| format!("{SCOPE_PREFIX}{}", scope.as_str()))
            .join(", ");
        BrokerError::forbidden(format!("the token has none of the scopes {names}"))
    })?;
    let home = claims.project.as_deref().and_then(|text| ProjectId::parse(text).ok());
    let home = home.ok_or_else(|| BrokerError::forbidden("the token names no project"))?;
    let human =
        match scope {
            Scope::Answer => Some(KeyHuman::parse(&claims.human, claims.roles).map_err(|error| {
                BrokerError::forbidden(format!("the token names no person who may answer: {error}"))
            })?),
            _ => None,
        };
    let owner = Owner::subject(&claims.subject);
    Ok(Arc::new(Principal {
        audit_name: owner.as_str().into(),
        owner,
        scope,
        human,
        tools: None,
        only_project: Some(home),
        status: CredentialStatus::valid_until(claims.expires_at_ms.saturating_add(jwt::LEEWAY_S * 1000)),
        rate: None,
    }))
}

/// Selects the project of a caller: the credential's own project, which `X-Project-ID` may repeat, or else the named
/// one.
fn project_of(principal: &Principal, named: Option<&str>) -> Result<ProjectId, AuthError> {
    match (&principal.only_project, named) {
        (Some(home), Some(named)) if named != home.as_str() => Err(BrokerError::ProjectMismatch.into()),
        (Some(home), _) => Ok(home.clone()),
        (None, Some(named)) => Ok(ProjectId::parse(named).map_err(|_| BrokerError::ProjectNotFound)?),
        (None, None) => Ok(ProjectId::default_project()),
    }
}

/// The URL of a resource's metadata, at the root of its host. A resource that is no URL gets the path alone.
fn metadata_url(resource: &str) -> String {
    let host_end = resource
        .split_once("://")
        .map(|(scheme, rest)| scheme.len() + 3 + rest.find('/').unwrap_or(rest.len()));
    match host_end {
        Some(end) => format!(
            "{}{METADATA_PATH}{}",
            &resource[..end],
            resource[end..].trim_end_matches('/')
        ),
        None => METADATA_PATH.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metadata_of_a_resource_is_at_the_root_of_its_host() {
        for (resource, url) in [
            (
                "https://a.example/mcp",
                "https://a.example/.well-known/oauth-protected-resource/mcp",
            ),
            (
                "https://a.example",
                "https://a.example/.well-known/oauth-protected-resource",
            ),
            (
                "https://a.example/",
                "https://a.example/.well-known/oauth-protected-resource",
            ),
            ("mcp-broker", "/.well-known/oauth-protected-resource"),
        ] {
            assert_eq!(metadata_url(resource), url);
        }
    }
}
