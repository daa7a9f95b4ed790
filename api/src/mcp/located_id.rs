//! Ids of HTTP sessions and tasks, which live in the memory of one process. With several replicas, the id names the
//! replica.

use actors::model::ReplicaId;
use uuid::Uuid;

/// Characters of a UUID without hyphens.
const UUID_LEN: usize = 32;

/// A random, unguessable id. It begins with the id of the replica, if there is one.
pub fn new_id(replica: Option<ReplicaId>) -> String {
    let replica = replica.map(|replica| replica.as_uuid().simple().to_string());
    format!("{}{}", replica.unwrap_or_default(), Uuid::new_v4().simple())
}

/// The replica that an id names, if it names one. In a signed id, that of a task of a backend, it ends at the first dot.
pub fn replica_of(id: &str) -> Option<ReplicaId> {
    let replica = match id.split_once('.') {
        Some((replica, _)) => replica,
        None => id.get(..UUID_LEN).filter(|_| id.len() == 2 * UUID_LEN)?,
    };
    ReplicaId::parse(replica)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_the_replica_that_made_it() {
        let replica = ReplicaId::generate();
        let id = new_id(Some(replica));
        assert_eq!(replica_of(&id), Some(replica));
        assert_eq!(replica_of(&format!("{replica}.signed.tag")), Some(replica));
        assert_eq!(replica_of("signed.tag"), None);
        assert_ne!(new_id(Some(replica)), id);
        for none in ["", &new_id(None), &id[1..], &format!("{id}0"), &"é".repeat(UUID_LEN)] {
            assert_eq!(replica_of(none), None, "{none}");
        }
    }
}
