//! The chart `helm/mcp-broker` and the manifests in `k8s`: rendered, compared with golden files, checked by the tools of the
//! field, and tried with the real broker.
//!
//! `scripts/test` installs the tools.
//! `UPDATE_GOLDEN=1 cargo test --test product -- --include-ignored helm::` rewrites what is generated: the golden files, `k8s`, the README and the schema.

mod backends;
mod broker;
mod documentation;
mod kustomize;
mod manifests;
mod metadata;
mod refusals;
mod rendering;
mod tools;
mod upgrades;

use crate::support;
