//! Schemas of texts that are validated where they are parsed. Only [`ApiKey`] has values; `tests/openapi.rs` checks that the
//! patterns agree with the parsers.

#![allow(dead_code, reason = "schemas only")]

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A UUID. `#[answer]` writes the format into the schema.
pub type Id = String;

/// A time as RFC 3339 writes it. `#[answer]` writes the format into the schema.
pub type Time = String;

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
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(pattern = "^[a-z0-9-]{1,63}_[a-z0-9]{1,32}_[0-9a-f]{32,}$")]
pub struct ApiKey(pub String);

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The name of a protocol.
#[derive(ToSchema)]
#[schema(pattern = "^[a-z][a-z0-9_-]{0,62}[a-z0-9]$", max_length = 64, example = "chat")]
pub struct ProtocolName(String);

/// A semantic version.
#[derive(ToSchema)]
#[schema(
    pattern = r"^(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$",
    example = "1.0.0"
)]
pub struct Version(String);

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
