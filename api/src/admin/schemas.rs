//! Schemas for `/openapi.json`, of strings that are validated where they are parsed. No value has these types;
//! `tests/openapi.rs` checks that they agree with the parsers.

#![allow(dead_code, reason = "schemas only")]

use utoipa::ToSchema;

/// The id of a project. `system`, `admin` and `root` are reserved.
#[derive(ToSchema)]
#[schema(
    pattern = "^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
    max_length = 63,
    example = "acme"
)]
pub struct ProjectId(String);

/// The id of a key in its project.
#[derive(ToSchema)]
#[schema(pattern = "^[a-z0-9]{1,32}$", max_length = 32, example = "k1abcdef")]
pub struct KeyId(String);

/// A key in clear text: `{project_id}_{key_id}_{secret}`.
#[derive(ToSchema)]
#[schema(pattern = "^[a-z0-9-]{1,63}_[a-z0-9]{1,32}_[0-9a-f]{32,}$")]
pub struct ApiKey(String);

/// The name of a protocol.
#[derive(ToSchema)]
#[schema(pattern = "^[a-z][a-z0-9_-]{0,62}[a-z0-9]$", max_length = 64, example = "chat")]
pub struct ProtocolName(String);

/// A display name: one line.
#[derive(ToSchema)]
#[schema(pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$", min_length = 1, max_length = 128)]
pub struct Name(String);

/// Free text without control characters except line feeds.
#[derive(ToSchema)]
#[schema(pattern = r"^[^\u0000-\u0009\u000b-\u001f\u007f-\u009f]*$", max_length = 1024)]
pub struct Description(String);

/// One line.
#[derive(ToSchema)]
#[schema(pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$", min_length = 1, max_length = 64)]
pub struct Tag(String);

/// What a key may do: administer its project; use sessions, send and receive; answer questions as a person; read only.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum KeyScope {
    Admin,
    Member,
    Answer,
    Observer,
}

/// How many of the broker's own tools the callers of a key are listed.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum ToolSet {
    Core,
    Agent,
    Full,
}

/// What a caller may do: administer the broker, or what a key of that scope may.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum CallerScope {
    Operator,
    Admin,
    Member,
    Answer,
    Observer,
}

/// A `retiring` key stays valid until its grace period ends.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum KeyStatus {
    Active,
    Retiring,
    Expired,
    Revoked,
}

/// The outcome of an audited action.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Outcome {
    Done,
    Refused,
}

/// The name of a person: 1 to 128 characters without `@`, white space at an end and control characters, not of the form of
/// a UUID, and not `desk`.
#[derive(ToSchema)]
#[schema(
    pattern = r"^[^\s@\u0000-\u001f\u007f-\u009f](?:[^@\u0000-\u001f\u007f-\u009f]{0,126}[^\s@\u0000-\u001f\u007f-\u009f])?$",
    min_length = 1,
    max_length = 128,
    example = "mara"
)]
pub struct HumanName(String);

/// A role of people, such as `oncall`: as a name, without commas.
#[derive(ToSchema)]
#[schema(
    pattern = r"^[^\s,@\u0000-\u001f\u007f-\u009f](?:[^,@\u0000-\u001f\u007f-\u009f]{0,126}[^\s,@\u0000-\u001f\u007f-\u009f])?$",
    min_length = 1,
    max_length = 128,
    example = "oncall"
)]
pub struct Role(String);
