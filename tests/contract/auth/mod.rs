//! Keys, tokens and scopes: which caller is let in, what it may do, what it must not learn, and the audit log.

mod audit;
mod credentials;
mod discovery;
mod isolation;
mod revocation;
mod scopes;
mod tokens;
