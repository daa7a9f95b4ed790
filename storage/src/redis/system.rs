//! The system store: the list of projects and the audit log. They belong to no project.
//!
//! | key | holds |
//! |---|---|
//! | `{system}:projects` | set of the ids of all projects; their records are in `{project}:project:record` |
//! | `{system}:audit:PROJECT:OUTCOME` | sorted set by text: id of an entry, then its JSON; `*` for entries of no project |
//! | `{system}:audits` | set of the projects with audit entries |

use std::sync::Arc;

use actors::{
    bridge::{Frame, StoreEvent},
    model::{AuditEntry, AuditOutcome, AuditQuery, ProjectId, ProjectRecord, ReplicaId},
    storage::StoreError,
};
use deadpool_redis::redis::{Value, cmd};
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    client::RedisClient,
    connection::Request,
    operation::{Operation, pipeline_of, to_json},
    reply::{into_bytes, parse_json, parse_project as project_id, unreadable},
};

const PROJECTS: &str = "{system}:projects";
const AUDITS: &str = "{system}:audits";
/// For entries of no project.
const NO_PROJECT: &str = "*";
/// Reads that are outstanding at the same time.
pub(super) const CONCURRENT_READS_MAX: usize = 64;
/// Entries that one command reads.
const PAGE_LEN: usize = 256;
/// Length of the id of an entry as text.
const ID_LEN: usize = 36;

/// The ids of all projects.
pub(super) async fn project_ids(client: &RedisClient) -> Result<Vec<ProjectId>, StoreError> {
    let ids = client
        .send_one(cmd("SMEMBERS").arg(PROJECTS).to_owned(), PROJECTS)
        .await?;
    byte_strings(ids)?.iter().map(|id| project_id(id)).collect()
}

/// Adds an id to the list of projects.
pub(super) async fn add_project_id(client: Arc<RedisClient>, project: ProjectId) -> Result<(), StoreError> {
    let add = cmd("SADD").arg(PROJECTS).arg(project.as_str()).to_owned();
    client.send_one(add, PROJECTS).await.map(|_| ())
}

/// The operation that stores the next revision of a record.
pub(super) fn put_project(replica: ReplicaId, record: &ProjectRecord) -> Operation {
    Operation::accepting("put_project")
        .json(record)
        .number(record.revision)
        .text(Frame::head(replica, &record.id, &StoreEvent::Project(record.revision)))
}

/// Adds an entry to the audit log, and drops the oldest where there are too many.
pub(super) async fn append_audit(client: Arc<RedisClient>, entry: AuditEntry) -> Result<(), StoreError> {
    let of = entry.project.as_ref().map_or(NO_PROJECT, ProjectId::as_str);
    let key = audit_key(of, entry.outcome);
    let mut member = entry.id.as_hyphenated().to_string().into_bytes();
    member.extend(to_json(&entry));
    let last_dropped_rank = -(i64::try_from(client.retention.audit_len_max).unwrap_or(i64::MAX - 1) + 1);
    let request = Request {
        commands: pipeline_of([
            Some(cmd("SADD").arg(AUDITS).arg(of).to_owned()),
            Some(cmd("ZADD").arg(&key).arg(0).arg(member).to_owned()),
            Some(
                cmd("ZREMRANGEBYRANK")
                    .arg(&key)
                    .arg(0)
                    .arg(last_dropped_rank)
                    .to_owned(),
            ),
        ]),
        key,
    };
    client.send(&request).await?;
    Ok(())
}

/// Entries of the audit log, the newest first.
pub(super) async fn audit(client: Arc<RedisClient>, query: AuditQuery) -> Result<Vec<Arc<AuditEntry>>, StoreError> {
    let of = if let Some(project) = &query.project {
        vec![project.as_str().to_owned()]
    } else {
        let all = client.send_one(cmd("SMEMBERS").arg(AUDITS).to_owned(), AUDITS).await?;
        let text = |id| String::from_utf8(id).map_err(|_| unreadable("the project of an audit"));
        byte_strings(all)?
            .into_iter()
            .map(text)
            .collect::<Result<Vec<_>, _>>()?
    };
    let wanted = [AuditOutcome::Done, AuditOutcome::Refused].into_iter();
    let wanted = wanted.filter(|outcome| query.outcome.is_none_or(|asked| asked == *outcome));
    let keys: Vec<_> = wanted
        .flat_map(|outcome| of.iter().map(move |of| audit_key(of, outcome)))
        .collect();
    let newest = stream::iter(keys).map(|key| newest_entries(&client, &query, key));
    let mut entries: Vec<_> = newest.buffered(CONCURRENT_READS_MAX).try_concat().await?;
    entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.id));
    entries.truncate(query.limit);
    Ok(entries)
}

/// The entries of one key that match a query, the newest first.
async fn newest_entries(
    client: &RedisClient,
    query: &AuditQuery,
    key: String,
) -> Result<Vec<Arc<AuditEntry>>, StoreError> {
    let mut found = Vec::new();
    // An id sorts before the member that begins with it.
    let mut before = query
        .before
        .map_or_else(|| "+".to_owned(), |id| format!("({}", id.as_hyphenated()));
    while found.len() < query.limit {
        let mut page = cmd("ZRANGE");
        page.arg(&key).arg(before).arg("-").arg("BYLEX").arg("REV");
        page.arg("LIMIT").arg(0).arg(PAGE_LEN);
        let page = byte_strings(client.send_one(page, &key).await?)?;
        let Some(last) = page.last() else { break };
        before = format!("({}", String::from_utf8_lossy(last));
        for member in &page {
            let entry: AuditEntry = parse_json(member.get(ID_LEN..).unwrap_or_default())?;
            if query.matches(&entry) {
                found.push(Arc::new(entry));
            }
        }
        if page.len() < PAGE_LEN {
            break;
        }
    }
    found.truncate(query.limit);
    Ok(found)
}

fn audit_key(of: &str, outcome: AuditOutcome) -> String {
    format!("{{system}}:audit:{of}:{}", outcome.as_str())
}

fn byte_strings(list: Value) -> Result<Vec<Vec<u8>>, StoreError> {
    match list {
        Value::Array(parts) | Value::Set(parts) => parts.into_iter().map(into_bytes).collect(),
        _ => Err(unreadable("a list")),
    }
}
