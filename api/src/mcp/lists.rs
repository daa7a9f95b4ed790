//! The lists of tools, resources and prompts, which depend on the build and the kind of caller alone, and their digest.

use std::{borrow::Cow, sync::OnceLock};

use actors::model::{Scope, ToolSet};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    prompts,
    reply::with_era_members,
    resources,
    rpc::{Params, RpcError},
    service::Service,
    tools,
};
use crate::auth::Identity;
use common::json::write_json;

/// How long a client may cache the lists, in milliseconds. They change only with the version of the broker.
const LIST_TTL_MS: u64 = 3_600_000;

/// Adds the members that say how long and for whom a result may be cached.
pub fn cacheable(mut result: Value, ttl_ms: u64, scope: &str) -> Value {
    result["ttlMs"] = json!(ttl_ms);
    result["cacheScope"] = json!(scope);
    result
}

/// Lets every client cache a result as long as the lists.
pub fn cacheable_by_all(result: Value) -> Value {
    cacheable(result, LIST_TTL_MS, "public")
}

/// The callers that get the same lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListViewer {
    /// The broker has many projects, so it offers the tools for them.
    pub is_multi_project: bool,
    /// Their project has backends, so they see the tools and resources about these.
    pub has_backends: bool,
    /// The scope of the callers. They do not see the tools that they may not call.
    pub scope: Scope,
    /// The tools that they are listed.
    pub tools: ToolSet,
}

impl ListViewer {
    /// The viewer of a caller whose project has backends or has none.
    pub fn of(service: &Service, identity: &Identity, has_backends: bool) -> Self {
        let tools = identity.tools(service.tools);
        let scope = identity.scope();
        Self {
            is_multi_project: service.admin.is_multi_project(),
            has_backends,
            // Without a key every caller may administer: an agent is not listed the tools for it.
            scope: if identity.is_keyless() && tools < ToolSet::Full {
                scope.min(Scope::Member)
            } else {
                scope
            },
            tools,
        }
    }

    /// The result of a method that lists something; `None` for all other methods.
    ///
    /// # Errors
    /// Invalid params for a cursor: all lists fit on one page.
    pub fn list(
        self,
        method: &str,
        params: &Params<'_>,
        is_modern: bool,
    ) -> Option<Result<Cow<'static, [u8]>, RpcError>> {
        let (key, items): (_, fn(bool) -> Value) = match method {
            "tools/list" => {
                let tools = || Cow::Borrowed(self.tool_list(is_modern));
                return Some(check_cursor(params).map(|()| tools()));
            }
            "resources/list" => ("resources", resources::list),
            "resources/templates/list" => ("resourceTemplates", resources::templates),
            "prompts/list" => ("prompts", |_| prompts::list()),
            _ => return None,
        };
        let list = || {
            Cow::Owned(result_text(
                cacheable_by_all(json!({key: items(self.has_backends)})),
                is_modern,
            ))
        };
        Some(check_cursor(params).map(|()| list()))
    }

    /// The result of `tools/list`. It is long and requested by every client, so it is serialized once.
    fn tool_list(self, is_modern: bool) -> &'static [u8] {
        type CachedList = OnceLock<Vec<u8>>;
        static LISTS: [[[CachedList; 8]; Scope::ALL.len()]; ToolSet::ALL.len()] =
            [const { [const { [const { CachedList::new() }; 8] }; Scope::ALL.len()] }; ToolSet::ALL.len()];
        let [multi, backends, modern] = [self.is_multi_project, self.has_backends, is_modern].map(usize::from);
        LISTS[self.tools as usize][self.scope as usize][multi | backends << 1 | modern << 2].get_or_init(|| {
            let tools = json!({"tools": tools::list(self.is_multi_project, self.has_backends, self.scope, self.tools)});
            result_text(cacheable(tools, LIST_TTL_MS, "private"), is_modern)
        })
    }

    /// Sixteen hexadecimal digits that tell the lists of two builds apart: the first of the SHA-256 of all lists, in both
    /// eras, without those of backends.
    pub fn digest(self) -> &'static str {
        static DIGESTS: [[[OnceLock<String>; 2]; Scope::ALL.len()]; ToolSet::ALL.len()] =
            [const { [const { [const { OnceLock::new() }; 2] }; Scope::ALL.len()] }; ToolSet::ALL.len()];
        DIGESTS[self.tools as usize][self.scope as usize][usize::from(self.is_multi_project)].get_or_init(|| {
            let without = Self {
                has_backends: false,
                ..self
            };
            let mut digest = Sha256::new();
            for method in [
                "tools/list",
                "prompts/list",
                "resources/list",
                "resources/templates/list",
            ] {
                for is_modern in [false, true] {
                    if let Some(Ok(list)) = without.list(method, &Params::default(), is_modern) {
                        digest.update(list);
                    }
                }
            }
            let digest = digest.finalize();
            let bits = digest
                .iter()
                .take(8)
                .fold(0, |bits, byte| (bits << 8) | u64::from(*byte));
            format!("{bits:016x}")
        })
    }
}

/// A result as text, with the members that every result of its era has.
pub fn result_text(result: Value, is_modern: bool) -> Vec<u8> {
    let mut text = Vec::new();
    write_json(&mut text, &with_era_members(result, is_modern));
    text
}

/// Refuses every cursor: all lists fit on one page.
fn check_cursor(params: &Params<'_>) -> Result<(), RpcError> {
    #[derive(Deserialize)]
    struct ListParams {
        cursor: Option<Value>,
    }
    match params.parse::<ListParams>()?.cursor {
        Some(_) => Err(RpcError::invalid_params("Invalid cursor")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_tells_the_lists_of_audiences_apart() {
        let agent = ListViewer {
            is_multi_project: true,
            has_backends: false,
            scope: Scope::Member,
            tools: ToolSet::Full,
        };
        let digest = agent.digest();
        assert!(digest.len() == 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
        for other in [
            ListViewer {
                is_multi_project: false,
                ..agent
            },
            ListViewer {
                scope: Scope::Observer,
                ..agent
            },
            ListViewer {
                tools: ToolSet::Core,
                ..agent
            },
        ] {
            assert_ne!(digest, other.digest());
        }
    }
}
