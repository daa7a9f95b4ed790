//! `/api/v1/backends`: the backends that administrators add, change and remove.

use std::{collections::BTreeMap, sync::Arc};

use actix_web::{HttpResponse, http::header::LOCATION, web};
use actors::model::BrokerError;
use rest::backends::Backend;
use utoipa::ToSchema;

use crate::http::extract::{Admin, ApiError, ApiResult, Caller, ShortJsonArguments, ok};
use api::{
    auth::Identity,
    verbs::{
        added_backends as verbs,
        backends::{self, backend_view},
    },
};

/// The keys of a backend, as `[backends.NAME]` of the configuration file has them; docs/gateway-reference.md explains them. It has a
/// `command` or a `url`. `null` removes a key, in a `PATCH` alone. At most 16 KiB.
#[allow(dead_code, reason = "schema of what the table of a backend is read from")]
#[derive(ToSchema)]
#[schema(example = json!({"url": "https://docs.example.com/mcp", "headers": {"Authorization": "Bearer x"}, "call_timeout": "2m"}))]
pub struct BackendTable {
    /// Allowed with `gateway_commands = admin` alone.
    command: Option<String>,
    args: Option<Vec<String>>,
    /// Never shown again.
    env: Option<BTreeMap<String, String>>,
    pass_env: Option<Vec<String>>,
    cwd: Option<String>,
    /// The broker connects to it.
    url: Option<String>,
    /// Never shown again.
    headers: Option<BTreeMap<String, String>>,
    /// `auto`, `http` or `sse`.
    transport: Option<String>,
    disabled: Option<bool>,
    /// `lazy` or `eager`.
    start: Option<String>,
    stop_when_idle: Option<String>,
    concurrency: Option<usize>,
    call_timeout: Option<String>,
    call_timeout_max: Option<String>,
    start_timeout: Option<String>,
    result_max: Option<String>,
    /// `always`, `on-change` or `never`.
    restart: Option<String>,
    watch: Option<Vec<String>>,
    handover: Option<bool>,
    /// `auto`, `legacy` or `modern`.
    era: Option<String>,
    asks: Option<bool>,
    /// 1 to 64.
    instances_max: Option<usize>,
    /// `project`, `key` or `session`.
    sharing: Option<String>,
    instructions: Option<bool>,
    tools: Option<BackendToolsTable>,
    limits: Option<BackendLimitsTable>,
}

/// Which tools of a backend are offered. All other members are tables of single tools, by their original names; the
/// table of a tool that is called like a member here is in `override`.
#[allow(dead_code, reason = "schema of what the table of a backend is read from")]
#[derive(ToSchema)]
pub struct BackendToolsTable {
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
    rename: Option<BTreeMap<String, String>>,
    #[serde(rename = "override")]
    overrides: Option<BTreeMap<String, BackendToolOverride>>,
    #[serde(flatten)]
    single: BTreeMap<String, BackendToolTimeouts>,
}

/// Texts that are listed in place of those of the tool, and how long its calls may take.
#[allow(dead_code, reason = "schema of what the table of a backend is read from")]
#[derive(ToSchema)]
pub struct BackendToolOverride {
    /// At most 256 bytes.
    title: Option<String>,
    /// At most 4 KiB.
    description: Option<String>,
    #[schema(inline)]
    #[serde(flatten)]
    timeouts: BackendToolTimeouts,
}

/// How long calls of the tool may take.
#[allow(dead_code, reason = "schema of what the table of a backend is read from")]
#[derive(ToSchema)]
pub struct BackendToolTimeouts {
    call_timeout: Option<String>,
    call_timeout_max: Option<String>,
}

/// Limits of the process of a backend.
#[allow(dead_code, reason = "schema of what the table of a backend is read from")]
#[derive(ToSchema)]
pub struct BackendLimitsTable {
    memory: Option<String>,
    processes: Option<u64>,
    open_files: Option<u64>,
    cpu_seconds: Option<u64>,
}

/// A backend to add.
#[allow(dead_code, reason = "schema of what the table of a backend is read from")]
#[derive(ToSchema)]
#[schema(example = json!({"name": "docs", "url": "https://docs.example.com/mcp"}))]
pub struct NewBackend {
    #[schema(pattern = "^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$")]
    name: String,
    #[schema(inline)]
    #[serde(flatten)]
    table: BackendTable,
}

/// Adds a backend to the project. It survives a restart where the storage does. Requires the scope `admin`; a `command` needs
/// the setting `gateway_commands = admin`, and so does a reference such as `${TOKEN}` in a value.
#[utoipa::path(post, path = "/api/v1/backends", operation_id = "add_backend", tag = "backends",
    request_body = NewBackend, responses(
    (status = 201, description = "The backend as it is now; it may still be starting", body = Backend,
        headers(("Location" = String, description = "The path of the backend")), links(
        ("show" = (operation_id = "get_backend", parameters(("backend" = "$response.body#/name")))),
        ("change" = (operation_id = "change_backend", parameters(("backend" = "$response.body#/name")))),
        ("remove" = (operation_id = "remove_backend", parameters(("backend" = "$response.body#/name"))))
    )),
    (status = 409, description = "The project has a backend of this name"),
))]
pub async fn add(admin: Admin, Caller(by): Caller, body: ShortJsonArguments) -> ApiResult {
    let mut arguments = body.arguments()?;
    let name = arguments.required_text("name")?.into_owned();
    let table = verbs::table_of(arguments)?;
    let added = name.clone();
    admin
        .change_backends(&by, "backend.add", &name, async move |project| {
            verbs::add(project, &added, table).await
        })
        .await?;
    let location = format!("/api/v1/backends/{name}");
    let backend = shown(&by, &name)?;
    Ok(HttpResponse::Created()
        .insert_header((LOCATION, location))
        .json(backend))
}

/// Replaces all keys of an added backend, which is then handed over as after a change of the configuration file. Requires the
/// scope `admin`. A backend of the configuration file is refused with 403.
#[utoipa::path(put, path = "/api/v1/backends/{backend}", operation_id = "replace_backend", tag = "backends",
    params(("backend" = String, Path, description = "Its name")), request_body = BackendTable, responses(
    (status = 200, description = "The backend as it is now", body = Backend),
))]
pub async fn replace(admin: Admin, Caller(by): Caller, path: web::Path<String>, body: ShortJsonArguments) -> ApiResult {
    let (name, table) = (path.into_inner(), verbs::table_of(body.arguments()?)?);
    change(&admin, &by, "backend.change", name, async move |project, name| {
        verbs::replace(project, name, table).await
    })
    .await
}

/// Changes the given keys of an added backend; `null` removes one (RFC 7396). Otherwise as `PUT`.
#[utoipa::path(patch, path = "/api/v1/backends/{backend}", operation_id = "change_backend", tag = "backends",
    params(("backend" = String, Path, description = "Its name")), request_body = BackendTable, responses(
    (status = 200, description = "The backend as it is now", body = Backend),
))]
pub async fn patch(admin: Admin, Caller(by): Caller, path: web::Path<String>, body: ShortJsonArguments) -> ApiResult {
    let (name, patch) = (path.into_inner(), verbs::table_of(body.arguments()?)?);
    change(&admin, &by, "backend.change", name, async move |project, name| {
        verbs::merge(project, name, patch).await
    })
    .await
}

/// Removes an added backend. Its open calls may last for 30 s. Requires the scope `admin`. A backend of the configuration
/// file is refused with 403.
#[utoipa::path(delete, path = "/api/v1/backends/{backend}", operation_id = "remove_backend", tag = "backends",
    params(("backend" = String, Path, description = "Its name")), responses(
    (status = 204, description = "The backend is removed"),
))]
pub async fn remove(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    let name = path.into_inner();
    let removed = name.clone();
    admin
        .change_backends(&by, "backend.remove", &name, async move |project| {
            verbs::remove(project, &removed).await
        })
        .await?;
    Ok(HttpResponse::NoContent().finish())
}

/// Serves an added backend that is switched off: its key `disabled` becomes `false`. Requires the scope `admin`.
#[utoipa::path(post, path = "/api/v1/backends/{backend}/enable", operation_id = "enable_backend", tag = "backends",
    params(("backend" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The backend as it is now; it may still be starting", body = Backend),
))]
pub async fn enable(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    change(
        &admin,
        &by,
        "backend.enable",
        path.into_inner(),
        async |project, name| verbs::switch(project, name, false).await,
    )
    .await
}

/// Switches an added backend off: its key `disabled` becomes `true`. Requires the scope `admin`.
#[utoipa::path(post, path = "/api/v1/backends/{backend}/disable", operation_id = "disable_backend", tag = "backends",
    params(("backend" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The backend as it is now; it may still be stopping", body = Backend),
))]
pub async fn disable(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> ApiResult {
    change(
        &admin,
        &by,
        "backend.disable",
        path.into_inner(),
        async |project, name| verbs::switch(project, name, true).await,
    )
    .await
}

async fn change(
    admin: &Admin,
    by: &Arc<Identity>,
    action: &'static str,
    name: String,
    change: impl AsyncFnOnce(&actors::project::ProjectHandle, &str) -> Result<(), BrokerError> + 'static,
) -> ApiResult {
    let changed = name.clone();
    admin
        .change_backends(by, action, &name, async move |project| change(project, &changed).await)
        .await?;
    ok(shown(by, &name)?)
}

/// The backend as it is now. It is stored, and this replica serves it unless the storage has failed since.
fn shown(by: &Identity, name: &str) -> Result<Backend, ApiError> {
    let found = backends::find(&by.project, name).map_err(|_| BrokerError::unavailable())?;
    Ok(backend_view(&found, true))
}
