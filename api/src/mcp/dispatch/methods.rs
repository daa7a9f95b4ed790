//! The methods that the broker serves.

/// Declares the methods by name. Others are refused.
macro_rules! methods {
    ($($method:ident = $name:literal,)*) => {
        /// A method of MCP that the broker serves.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Method {
            $($method,)*
        }

        impl Method {
            #[cfg(test)]
            const NAMES: &[&str] = &[$($name,)*];

            /// The name of the method.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$method => $name,)*
                }
            }

            /// The method of this name.
            pub fn parse(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$method),)*
                    _ => None,
                }
            }
        }
    };
}

impl Method {
    /// Whether a client that sees only one backend may call it. What the backend answers itself is not asked here.
    pub const fn is_served_for_backends(self) -> bool {
        !matches!(self, Self::ReadResource | Self::GetPrompt | Self::Complete)
    }
}

methods! {
    Ping = "ping",
    Initialize = "initialize",
    SetLogLevel = "logging/setLevel",
    Discover = "server/discover",
    ListTools = "tools/list",
    CallTool = "tools/call",
    ListResources = "resources/list",
    ListResourceTemplates = "resources/templates/list",
    ReadResource = "resources/read",
    Subscribe = "resources/subscribe",
    Unsubscribe = "resources/unsubscribe",
    ListPrompts = "prompts/list",
    GetPrompt = "prompts/get",
    Complete = "completion/complete",
    GetTask = "tasks/get",
    UpdateTask = "tasks/update",
    CancelTask = "tasks/cancel",
    Listen = "subscriptions/listen",
    Cancelled = "notifications/cancelled",
    Acknowledged = "notifications/dev.mcp-broker/ack",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_request_of_every_method_is_measured() {
        let measured = include_str!("../../../../tests/contract/limits/worst_calls.rs");
        for name in Method::NAMES {
            assert!(
                measured.contains(&format!("\"{name}\",")),
                "tests/contract/limits/worst_calls.rs has no request of {name}: add the most expensive one"
            );
        }
    }
}
