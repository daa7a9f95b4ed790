//! Agents of several versions of a protocol upgrade one after another, on brokers that are killed.

use serde_json::json;
use test_client::folder::Folder;

use super::{
    cluster::{BrokerCluster, ReplicaAddresses},
    ledger::{Balance, Ledger},
    roaming_client::{LOAD, Load, NoteVersion},
    support::{Agent, Broker, Redis},
};

const VERSIONS: &[NoteVersion] = &[
    NoteVersion {
        version: "1.0.0",
        text: "text",
        others: &[],
    },
    NoteVersion {
        version: "2.0.0",
        text: "body",
        others: &[],
    },
    NoteVersion {
        version: "3.0.0",
        text: "content",
        others: &[("urgency", "high")],
    },
];

const FLEET: Load = Load {
    versions: VERSIONS,
    ..LOAD
};

/// Registers the versions after the first, each with the lens from the version before.
fn register_versions(author: &Agent) {
    let lenses = [
        json!([{"op": "rename", "path": "/text", "to": "body"}]),
        json!([
            {"op": "rename", "path": "/body", "to": "content"},
            {"op": "add", "path": "/urgency", "value": "normal"},
        ]),
    ];
    for (pair, lens) in VERSIONS.windows(2).zip(lenses) {
        let [from, to] = pair else { unreachable!() };
        let members = [to.text].into_iter().chain(to.others.iter().map(|(name, _)| *name));
        let members: Vec<_> = members.collect();
        let properties: serde_json::Map<_, _> = members
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "string"})))
            .collect();
        let registered = author.calls(
            "register_protocol",
            json!({
                "name": "note", "version": to.version, "from": from.version, "lens": lens,
                "schema": {"type": "object", "properties": properties, "required": members},
            }),
        );
        assert_eq!(registered["lens"]["forward"]["proof"], "proved", "{registered}");
    }
}

/// Upgrades the clients one after another. `kill` kills a broker, four times.
fn upgrade(ledger: &Ledger, mut kill: impl FnMut(usize)) {
    // All have spoken version 3 after ten upgrades; then some go back one version.
    for upgrade in 0..13 {
        ledger.await_more_accepted(40);
        ledger.upgrade_next();
        if upgrade % 3 == 1 {
            kill(upgrade / 3);
        }
    }
    ledger.await_more_accepted(40);
}

/// Everything that was accepted has arrived, each message in a version that its recipient declared.
fn assert_upgraded(balance: &Balance, broker: &Broker) {
    println!("four kills: {balance:?}");
    assert!(balance.accepted >= 560, "{balance:?}");
    let (all, transformed) = (balance.arrivals, balance.transformed);
    assert!(transformed > 0 && transformed < all, "{balance:?}");
    let lost = broker.agent("auditor").dead_letters("transform_failed");
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn a_fleet_upgrades_under_load_and_every_message_arrives_in_a_version_of_its_recipient() {
    let redis = Redis::start();
    let mut cluster = BrokerCluster::start(2, &redis);
    register_versions(&cluster.replicas[0].client().registered("author"));
    let balance = FLEET.run_while(&mut cluster, |cluster, ledger| {
        upgrade(ledger, |at| cluster.kill(at % 2));
    });
    assert_upgraded(&balance, &cluster.replicas[0]);
}

#[test]
fn a_fleet_upgrades_on_a_broker_with_a_disk_that_is_killed() {
    let folder = Folder::new();
    let data_dir = folder.data_dir();
    let start = || Broker::on_existing_storage(&["--storage=disk", &data_dir]);
    let mut broker = start();
    let author = broker.client().registered("author");
    Broker::register_note_protocol(&author);
    register_versions(&author);
    let addresses = ReplicaAddresses::of(broker.address);
    let balance = FLEET.run(addresses.clone(), |ledger| {
        upgrade(ledger, |_| {
            broker.kill();
            broker = start();
            addresses.put(0, broker.address);
        });
    });
    assert_upgraded(&balance, &broker);
}
