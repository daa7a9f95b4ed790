//! The official SDK's server. The contents of its tools, resources and prompts are made up here; everything else that
//! a client sees (HTTP, headers, sessions, eras, methods, errors) comes from the SDK. It offers the same names as the
//! broker, so that both can be sent the same request.

// The broker still offers the deprecated logging, so this server does too.
#![expect(deprecated)]

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{Arc, LazyLock},
};

use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::{
        router::tool::{ToolRoute, ToolRouter},
        tool::ToolCallContext,
    },
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, GetPromptRequestParams,
        GetPromptResponse, GetPromptResult, GetTaskParams, GetTaskResult, Implementation, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams, Prompt,
        PromptMessage, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
        Role, ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter,
        Tool, UnsubscribeRequestParams, object,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde_json::json;
use tokio::{net::TcpListener, runtime::Runtime};

/// The resource to subscribe to, with the same name in the broker.
pub const SUBSCRIBED_RESOURCE: &str = "broker://inbox";

/// The resource to read: the broker shows an inbox only to sessions.
pub const READ_RESOURCE: &str = "broker://protocols";

/// The prompt, with the same name in the broker.
pub const PROMPT: &str = "join";

/// What the server keeps for legacy clients.
#[derive(Clone, Copy, Debug)]
pub enum SessionMode {
    /// A session for every `initialize`; answers are events.
    Legacy,
    /// Nothing between requests; answers are JSON.
    None,
}

/// The SDK's server in this process. Dropping it ends the server.
pub struct SdkServer {
    pub address: SocketAddr,
    runtime: Option<Runtime>,
}

impl SdkServer {
    /// Starts the server on a free port of the loopback interface.
    ///
    /// # Errors
    /// When there is no free port or no thread.
    pub fn start(sessions: SessionMode) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let runtime = runtime(1)?;
        runtime.spawn(serve(listener, sessions));
        Ok(Self {
            address,
            runtime: Some(runtime),
        })
    }
}

impl Drop for SdkServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A runtime with this many worker threads.
///
/// # Errors
/// When the threads cannot be started.
pub fn runtime(workers: usize) -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
}

/// Serves `/mcp` until the runtime ends.
///
/// # Errors
/// When the listener cannot be registered with the runtime.
pub async fn serve(listener: std::net::TcpListener, sessions: SessionMode) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(matches!(sessions, SessionMode::Legacy))
        .with_json_response(true)
        // By default the SDK's server checks no Origin.
        .with_allowed_origins(["http://127.0.0.1:*", "http://localhost:*"]);
    let mcp = StreamableHttpService::new(|| Ok(Endpoint), Arc::new(LocalSessionManager::default()), config);
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            continue;
        };
        let _ = socket.set_nodelay(true);
        let mcp = mcp.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: http::Request<Incoming>| {
                let mcp = mcp.clone();
                async move { Ok::<_, Infallible>(mcp.handle(request).await) }
            });
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

static TOOLS: LazyLock<ToolRouter<Endpoint>> = LazyLock::new(|| {
    ToolRouter::new()
        .with_route(ToolRoute::new_dyn(
            Tool::new("echo", "Says what it is told.", object(schema("text"))),
            |context| Box::pin(async move { Ok(echo(&context)) }),
        ))
        .with_route(ToolRoute::new_dyn(
            Tool::new("list_sessions", "Nobody is here.", object(json!({"type": "object"}))),
            |_| Box::pin(async { Ok(CallToolResult::structured(json!({"sessions": []})).into()) }),
        ))
});

fn schema(text: &str) -> serde_json::Value {
    json!({"type": "object", "properties": {text: {"type": "string"}}, "required": [text]})
}

fn echo(context: &ToolCallContext<'_, Endpoint>) -> CallToolResponse {
    let text = context
        .arguments
        .as_ref()
        .and_then(|arguments| arguments.get("text")?.as_str());
    match text {
        Some(text) => CallToolResult::structured(json!({"text": text})).into(),
        None => CallToolResult::structured_error(json!({"message": "text must be a string"})).into(),
    }
}

struct Endpoint;

impl ServerHandler for Endpoint {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_logging()
            .enable_prompts()
            .enable_completions()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("mcp-broker-oracle", env!("CARGO_PKG_VERSION")))
            .with_instructions("Compare.")
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let join = Prompt::new(PROMPT, Some("Join."), None);
        Ok(ListPromptsResult::with_all_items(vec![join]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name != PROMPT {
            return Err(ErrorData::invalid_params("Unknown prompt", None));
        }
        let message = PromptMessage::new_text(Role::User, "Join.");
        let result = GetPromptResult::new(vec![message]).with_description("Join.");
        Ok(result.into())
    }

    async fn get_task(&self, _: GetTaskParams, _: RequestContext<RoleServer>) -> Result<GetTaskResult, ErrorData> {
        Err(ErrorData::invalid_params("Task not found", None))
    }

    async fn cancel_task(&self, _: CancelTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Err(ErrorData::invalid_params("Task not found", None))
    }

    async fn set_level(&self, _: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.list_all()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        TOOLS.call(ToolCallContext::new(self, request, context)).await
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        TOOLS.get(name).cloned()
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resources = vec![
            Resource::new(SUBSCRIBED_RESOURCE, "inbox"),
            Resource::new(READ_RESOURCE, "protocols"),
        ];
        Ok(ListResourcesResult::with_all_items(resources))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::default())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        exists(&request.uri)?;
        Ok(ReadResourceResult::new(vec![ResourceContents::text("[]", request.uri)]).into())
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        exists(&request.uri)
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        exists(&request.uri)
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }
}

fn exists(uri: &str) -> Result<(), ErrorData> {
    if [SUBSCRIBED_RESOURCE, READ_RESOURCE].contains(&uri) {
        return Ok(());
    }
    Err(ErrorData::resource_not_found(
        "Resource not found",
        Some(json!({"uri": uri})),
    ))
}
