#![allow(unused_qualifications, reason = "what utoipa writes")]

use std::{collections::BTreeSet, time::Duration};

use actix_web::{HttpResponse, http::header::LOCATION, web};
use actors::{
    clock::{millis, now},
    model::{
        BrokerError, ConfigChanges, KeyId, NewKey, NewProject, ProjectChanges, ProjectConfig, ProjectId, ProtocolName,
        Scope,
    },
};
use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};

use super::{Admin, Answer, Caller, ok};
use crate::{
    admin::{GRACE_MAX, KEY_LIFE_MAX, views},
    http::openapi::Refusals,
};

pub fn routes(config: &mut web::ServiceConfig) {
    config
        .service(
            web::resource("/projects")
                .route(web::get().to(list))
                .route(web::post().to(create))
                .default_service(web::to(super::super::not_allowed)),
        )
        .service(
            web::resource("/projects/{id}")
                .route(web::get().to(show))
                .route(web::patch().to(change))
                .route(web::delete().to(delete))
                .default_service(web::to(super::super::not_allowed)),
        )
        .service(
            web::resource("/projects/{id}/keys")
                .route(web::get().to(keys))
                .route(web::post().to(add_key))
                .default_service(web::to(super::super::not_allowed)),
        )
        .service(
            web::resource("/projects/{id}/keys/rotate")
                .route(web::post().to(rotate))
                .default_service(web::to(super::super::not_allowed)),
        )
        .service(
            web::resource("/projects/{id}/keys/{key}")
                .route(web::delete().to(revoke_key))
                .default_service(web::to(super::super::not_allowed)),
        )
        .service(
            web::resource("/projects/{id}/grants")
                .route(web::get().to(grants))
                .default_service(web::to(super::super::not_allowed)),
        )
        .service(
            web::resource("/projects/{id}/grants/{target}")
                .route(web::put().to(grant))
                .route(web::delete().to(revoke_grant))
                .default_service(web::to(super::super::not_allowed)),
        );
}

fn parse(id: &str) -> Result<ProjectId, BrokerError> {
    // What cannot be the id of a project is not there either.
    ProjectId::parse(id).map_err(|_| BrokerError::ProjectNotFound)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListQuery {
    /// Deleted ones too.
    #[serde(default)]
    include_inactive: bool,
    /// Only those that have all of these, separated by commas.
    tags: Option<String>,
}

/// One's own project, and those that want to be found; for the admin key all.
#[utoipa::path(get, path = "/api/v1/projects", tag = "projects", params(ListQuery), responses(
    (status = 200, description = "The projects", body = views::Projects),
    Refusals,
))]
pub async fn list(admin: Admin, Caller(by): Caller, query: web::Query<ListQuery>) -> Answer {
    let ListQuery { include_inactive, tags } = query.into_inner();
    let tags = tags.unwrap_or_default();
    let tags = tags
        .split(',')
        .filter(|tag| !tag.is_empty())
        .map(str::to_owned)
        .collect();
    ok(admin.list(&by, include_inactive, &tags))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateProject {
    /// Lower-case letters, digits and '-'; 63 characters at most.
    project_id: String,
    name: String,
    description: Option<String>,
    #[serde(default)]
    tags: BTreeSet<String>,
    #[serde(default)]
    #[schema(value_type = Option<ConfigBody>)]
    config: Option<ProjectConfig>,
}

/// How a project is to be; what is left out stays as it is, null is the broker's default.
#[allow(dead_code, reason = "it describes what ProjectConfig and ConfigChanges read")]
#[derive(ToSchema)]
pub struct ConfigBody {
    allow_cross_project: Option<bool>,
    discoverable: Option<bool>,
    max_sessions: Option<usize>,
    max_protocols: Option<usize>,
    queue_capacity: Option<usize>,
    rate_limit: Option<u32>,
}

/// Makes a project and its first key, which administers it. Takes the admin key.
#[utoipa::path(post, path = "/api/v1/projects", tag = "projects", request_body = CreateProject, responses(
    (status = 201, description = "It is made", body = views::CreatedProject),
    Refusals,
))]
pub async fn create(admin: Admin, Caller(by): Caller, body: web::Json<CreateProject>) -> Answer {
    let CreateProject {
        project_id,
        name,
        description,
        tags,
        config,
    } = body.into_inner();
    let wanted = NewProject {
        id: ProjectId::parse(&project_id)?,
        name,
        description,
        tags,
        config: config.unwrap_or_default(),
    };
    let created = admin.create(&by, wanted).await?;
    let location = format!("/api/v1/projects/{project_id}");
    Ok(HttpResponse::Created()
        .insert_header((LOCATION, location))
        .json(created))
}

/// One project: to its own in full, to others as far as it wants to be found.
#[utoipa::path(get, path = "/api/v1/projects/{id}", tag = "projects", params(("id" = String, Path)), responses(
    (status = 200, description = "The project", body = views::ProjectInfo),
    Refusals,
))]
pub async fn show(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> Answer {
    ok(admin.show(&by, Some(&parse(&path)?)).await?)
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeProject {
    name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    description: Option<Option<String>>,
    tags: Option<BTreeSet<String>>,
    #[serde(default)]
    #[schema(value_type = Option<ConfigBody>)]
    config: Option<ConfigChanges>,
}

/// A member that is there, be it `null`.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Changes a project. Its limits take the admin key.
#[utoipa::path(patch, path = "/api/v1/projects/{id}", tag = "projects", params(("id" = String, Path)),
    request_body = ChangeProject, responses(
    (status = 200, description = "The project as it is now", body = views::ChangedProject),
    Refusals,
))]
pub async fn change(
    admin: Admin,
    Caller(by): Caller,
    path: web::Path<String>,
    body: web::Json<ChangeProject>,
) -> Answer {
    let ChangeProject {
        name,
        description,
        tags,
        config,
    } = body.into_inner();
    let changes = ProjectChanges {
        name,
        description,
        tags,
        config: config.unwrap_or_default(),
    };
    ok(admin.change(&by, &parse(&path)?, changes).await?)
}

/// Deletes a project: its keys end, its sessions too, and what they hold is gone. Takes the admin key.
#[utoipa::path(delete, path = "/api/v1/projects/{id}", tag = "projects", params(("id" = String, Path)), responses(
    (status = 204, description = "It is deleted"),
    Refusals,
))]
pub async fn delete(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> Answer {
    admin.delete(&by, &parse(&path)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// The keys of a project, without their secrets.
#[utoipa::path(get, path = "/api/v1/projects/{id}/keys", tag = "keys", params(("id" = String, Path)), responses(
    (status = 200, description = "The keys", body = views::Keys),
    Refusals,
))]
pub async fn keys(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> Answer {
    ok(admin.keys(&by, &parse(&path)?)?)
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// For people.
    label: Option<String>,
    /// `admin`, `member` (where nothing is said) or `observer`.
    scope: Option<String>,
    /// At most ten years; never, where nothing is said.
    #[schema(minimum = 1)]
    expires_in_seconds: Option<u64>,
}

/// Makes another key. It is shown this one time.
#[utoipa::path(post, path = "/api/v1/projects/{id}/keys", tag = "keys", params(("id" = String, Path)),
    request_body = CreateKey, responses(
    (status = 201, description = "The key", body = views::CreatedKey),
    Refusals,
))]
pub async fn add_key(admin: Admin, Caller(by): Caller, path: web::Path<String>, body: web::Json<CreateKey>) -> Answer {
    let CreateKey {
        label,
        scope,
        expires_in_seconds,
    } = body.into_inner();
    let scope = match scope.as_deref() {
        Some("admin") => Scope::Admin,
        None | Some("member") => Scope::Member,
        Some("observer") => Scope::Observer,
        Some(_) => return Err(BrokerError::invalid("scope", "admin, member or observer").into()),
    };
    let most = KEY_LIFE_MAX.as_secs();
    let expires_in = match expires_in_seconds {
        Some(seconds) if !(1..=most).contains(&seconds) => {
            return Err(BrokerError::invalid("expires_in_seconds", format!("1 to {most}")).into());
        }
        seconds => seconds.map(Duration::from_secs),
    };
    let wanted = NewKey {
        label,
        scope,
        expires_at_ms: expires_in.map(|life| now().unix_ms + millis(life)),
    };
    let created = admin.add_key(&by, &parse(&path)?, wanted).await?;
    Ok(HttpResponse::Created().json(created))
}

/// Revokes a key at once. Connections that came in with it are closed.
#[utoipa::path(delete, path = "/api/v1/projects/{id}/keys/{key_id}", tag = "keys",
    params(("id" = String, Path), ("key_id" = String, Path)), responses(
    (status = 200, description = "Since when it is good no more", body = views::RevokedKeys),
    Refusals,
))]
pub async fn revoke_key(admin: Admin, Caller(by): Caller, path: web::Path<(String, String)>) -> Answer {
    let (id, key) = path.into_inner();
    ok(admin.revoke_key(&by, &parse(&id)?, KeyId::parse(&key)?).await?)
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateKeys {
    /// Only this one; all, where nothing is said.
    key_id: Option<String>,
    /// How long the old ones stay good; at most 30 days, and not at all where nothing is said.
    #[serde(default)]
    grace_period_seconds: u64,
}

/// Puts new keys in the place of old ones.
#[utoipa::path(post, path = "/api/v1/projects/{id}/keys/rotate", tag = "keys", params(("id" = String, Path)),
    request_body = RotateKeys, responses(
    (status = 200, description = "The new keys, and when the old ones end", body = views::RotatedKeys),
    Refusals,
))]
pub async fn rotate(admin: Admin, Caller(by): Caller, path: web::Path<String>, body: web::Json<RotateKeys>) -> Answer {
    let RotateKeys {
        key_id,
        grace_period_seconds,
    } = body.into_inner();
    let most = GRACE_MAX.as_secs();
    if grace_period_seconds > most {
        return Err(BrokerError::invalid("grace_period_seconds", format!("0 to {most}")).into());
    }
    let key = key_id.map(|text| KeyId::parse(&text)).transpose()?;
    let grace = Duration::from_secs(grace_period_seconds);
    ok(admin.rotate(&by, &parse(&path)?, key, grace).await?)
}

/// To which other projects its sessions may send.
#[utoipa::path(get, path = "/api/v1/projects/{id}/grants", tag = "grants", params(("id" = String, Path)), responses(
    (status = 200, description = "The permissions", body = views::Grants),
    Refusals,
))]
pub async fn grants(admin: Admin, Caller(by): Caller, path: web::Path<String>) -> Answer {
    ok(admin.grants(&by, &parse(&path)?)?)
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantAccess {
    /// Names of protocols; empty: all.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    allowed_protocols: BTreeSet<ProtocolName>,
    /// Messages per minute; 0 is no limit.
    #[serde(default)]
    message_rate_limit: u32,
}

/// Lets its sessions send to another project.
#[utoipa::path(put, path = "/api/v1/projects/{id}/grants/{target}", tag = "grants",
    params(("id" = String, Path), ("target" = String, Path)), request_body = GrantAccess, responses(
    (status = 200, description = "The permission", body = views::Granted),
    Refusals,
))]
pub async fn grant(
    admin: Admin,
    Caller(by): Caller,
    path: web::Path<(String, String)>,
    body: web::Json<GrantAccess>,
) -> Answer {
    let (id, target) = path.into_inner();
    let GrantAccess {
        allowed_protocols,
        message_rate_limit,
    } = body.into_inner();
    let (id, target) = (parse(&id)?, ProjectId::parse(&target)?);
    ok(admin
        .grant(&by, &id, target, allowed_protocols, message_rate_limit)
        .await?)
}

/// Takes a permission back.
#[utoipa::path(delete, path = "/api/v1/projects/{id}/grants/{target}", tag = "grants",
    params(("id" = String, Path), ("target" = String, Path)), responses(
    (status = 200, description = "Whether there was one", body = views::GrantRevoked),
    Refusals,
))]
pub async fn revoke_grant(admin: Admin, Caller(by): Caller, path: web::Path<(String, String)>) -> Answer {
    let (id, target) = path.into_inner();
    ok(admin
        .revoke_grant(&by, &parse(&id)?, &ProjectId::parse(&target)?)
        .await?)
}
