//! Whether tools of backends can be called now, and if not, whether waiting helps.

use std::sync::Arc;

use actors::{
    gateway::{BackendShared, BackendState, GatewayHandle, ListKind},
    model::BrokerError,
    project::ProjectHandle,
};
use rest::backends::{ReadinessLevel, ToolReadiness, ToolsReadiness};

/// Tools of one question.
pub const TOOLS_MAX: usize = 100;
/// Bytes of the name of a tool.
const NAME_LEN_MAX: usize = 256;

/// How ready these tools of a project are at this replica.
///
/// # Errors
/// `invalid_argument`: none or too many tools, or a name that no tool can have.
pub fn of_tools(project: &ProjectHandle, names: Vec<String>) -> Result<ToolsReadiness, BrokerError> {
    let is_allowed = |name: &String| (1..=NAME_LEN_MAX).contains(&name.len());
    if !(1..=TOOLS_MAX).contains(&names.len()) || !names.iter().all(is_allowed) {
        let allowed = format!("1 to {TOOLS_MAX} names of tools, of at most {NAME_LEN_MAX} bytes each");
        return Err(BrokerError::invalid("tools", allowed));
    }
    let tools: Vec<_> = names.into_iter().map(|name| of_tool(project.gateway(), name)).collect();
    let worst = tools.iter().map(|tool| tool.readiness).max();
    Ok(ToolsReadiness {
        readiness: worst.unwrap_or(ReadinessLevel::Unknown),
        tools,
    })
}

fn of_tool(gateway: Option<&GatewayHandle>, tool: String) -> ToolReadiness {
    let found = gateway.and_then(|gateway| find(gateway, &tool));
    let Some((backend, is_offered)) = found else {
        return ToolReadiness {
            tool,
            ..ToolReadiness::default()
        };
    };
    let view = backend.view();
    let readiness = match view.state {
        BackendState::Failed | BackendState::Disabled => ReadinessLevel::NeedsPerson,
        _ if !is_offered && view.lists.is_some() => ReadinessLevel::Unknown,
        BackendState::Ready | BackendState::Replacing | BackendState::Idle if is_offered => ReadinessLevel::Ready,
        _ => ReadinessLevel::Transient,
    };
    ToolReadiness {
        tool,
        readiness,
        backend: Some(backend.name.to_string()),
        state: Some(view.state.as_str().to_owned()),
        reason: view.reason.clone(),
    }
}

/// The backend that offers a tool, or else the one whose name that of the tool begins with; and whether it offers the tool.
fn find(gateway: &GatewayHandle, tool: &str) -> Option<(Arc<BackendShared>, bool)> {
    let offered = gateway.shared().offered();
    if let Some(target) = offered.routes.listing(None, ListKind::Tools).find(tool) {
        return Some((Arc::clone(offered.backend_of(target)?), true));
    }
    let naming = &gateway.settings().naming;
    let mut separators = naming.separators();
    let backend = separators.find_map(|separator| offered.backend(tool.split_once(separator)?.0).cloned())?;
    Some((backend, false))
}
