//! The data of an older broker are opened by this one, on disk and on Redis: nothing is lost. `older/make` has made them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::{ADMIN_KEY, Broker, Redis, Tenant};
use serde_json::{Value, json};
use test_client::folder::Folder;

/// Which storage an older broker has left.
#[derive(Clone, Copy)]
enum Older {
    Disk,
    Redis,
}

fn older(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/upgrade/older")
        .join(file)
}

/// A folder with the data folder of the older broker.
fn older_folder() -> Folder {
    let folder = Folder::new();
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(older("disk.tar.gz")).arg("-C").arg(&*folder);
    assert!(unpack.status().unwrap().success());
    folder
}

/// A broker with authentication on this storage. It keeps the sessions of the older one, which on Redis have been silent
/// since their data were made, for the longest time that there is.
fn start(storage: &[String]) -> Broker {
    let admin_key = format!("--admin-key={ADMIN_KEY}");
    let flags: Vec<_> = storage.iter().map(String::as_str).collect();
    let usual = ["--enable-auth", &admin_key, "--session-retention=8760h"];
    Broker::on_existing_storage(&[&usual, &flags[..]].concat())
}

fn tenant<'a>(broker: &'a Broker, id: &str, facts: &Value) -> Tenant<'a> {
    Tenant {
        broker,
        id: id.to_owned(),
        key: facts[format!("{id}_key")].as_str().unwrap().to_owned(),
    }
}

/// What the older broker has stored is there, its messages are received in their order, and their acknowledgement is kept.
fn keeps_everything(kind: Older, storage: &[String]) {
    let file = match kind {
        Older::Disk => "disk.json",
        Older::Redis => "redis.json",
    };
    let facts: Value = serde_json::from_slice(&fs::read(older(file)).unwrap()).unwrap();
    let mut broker = start(storage);
    {
        let (shop, books) = (tenant(&broker, "shop", &facts), tenant(&broker, "books", &facts));
        let shown = shop.rest("GET", "", &Value::Null).json();
        assert_eq!(shown["project"]["name"], "The shop", "{shown}");
        assert_eq!(shown["project"]["config"]["queue_capacity"], 7, "{shown}");
        assert_eq!(shown["permissions"][0]["target_project_id"], "books", "{shown}");
        let protocol = shop.client().calls("discover_protocols", json!({"name": "note"}));
        assert_eq!(protocol["protocols"][0]["version"], "1.0.0", "{protocol}");

        let absent = shop.client();
        let sessions = absent.calls("list_sessions", json!({"status": "all"}));
        let mut known: Vec<_> = sessions["sessions"].as_array().unwrap().iter().collect();
        known.sort_by_key(|session| session["name"].as_str());
        assert_eq!(known.len(), 2, "{sessions}");
        assert_eq!(
            (&known[0]["name"], &known[0]["session_id"]),
            (&json!("absent"), &facts["absent"])
        );
        assert_eq!(
            (&known[0]["queue_size"], &known[1]["name"]),
            (&json!(6), &json!("sender"))
        );
        let resumed = absent.calls("register_session", json!({"name": "absent"}));
        assert_eq!(resumed["resumed"], true, "{resumed}");
        let seen = absent.sees(["urgent", "leased", "first", "second", "to all", "low"]);
        let first = &seen[2];
        assert_eq!(
            (&first["sender_name"], &first["headers"]["correlation_id"]),
            (&json!("sender"), &json!("order-1"))
        );
        // Their order and number of deliveries are those of the older broker.
        let deliveries: Vec<_> = seen
            .iter()
            .map(|message| message["delivery_count"].as_u64().unwrap())
            .collect();
        assert_eq!(deliveries, [1, 2, 1, 1, 1, 1]);
        absent.sees_nothing();
        let dead = absent.dead_letters("expired");
        assert_eq!(dead.len(), 1);
        assert_eq!(dead[0]["message"]["message_id"], facts["expired"]);

        let reader = books.agent("reader");
        reader.sees(["abroad"]);
        // The grant holds, and sessions of before and after exchange messages.
        let sender = shop.agent("sender");
        sender.sends("since the upgrade").to("reader@books");
        reader.sees(["since the upgrade"]);
        reader.sees_nothing();
        sender.sends("news").to("absent");
    }
    broker.terminate();
    assert!(broker.wait_for_exit().success());
    let broker = start(storage);
    tenant(&broker, "shop", &facts).agent("absent").sees(["news"]);
    tenant(&broker, "books", &facts).agent("reader").sees_nothing();
}

#[test]
fn data_of_an_older_broker_on_disk_are_kept() {
    let folder = older_folder();
    let data_dir = format!("--data-dir={}", folder.join("data").display());
    keeps_everything(Older::Disk, &["--storage=disk".to_owned(), data_dir]);
}

#[test]
fn data_of_an_older_broker_on_redis_are_kept() {
    let redis = Redis::with_snapshot(&older("redis.rdb"));
    let url = format!("--redis-url={}", redis.url());
    keeps_everything(Older::Redis, &["--storage=redis".to_owned(), url]);
}
