//! The chart `helm/mcp-broker` and the manifests in `k8s`: rendered, compared with golden files, checked by the tools of the
//! field, and tried with the real broker.
//!
//! `scripts/test` installs the tools. Without them a test prints that and passes, unless `CHART_TOOLS=required`.
//! `UPDATE_GOLDEN=1 cargo test --test helm` rewrites what is generated: the golden files, `k8s`, the README and the schema.

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "shared with other tests")]
mod support;

mod backends;
mod broker;
mod documentation;
mod generated;
mod kustomize;
mod manifests;
mod metadata;
mod refusals;
mod rendering;
mod tools;
mod upgrades;
