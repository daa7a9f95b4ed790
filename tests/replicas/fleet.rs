//! Agents of several versions of a protocol upgrade one after another, on replicas that are killed.

use serde_json::json;

use super::{
    cluster::BrokerCluster,
    roaming_client::{LOAD, Load, NoteVersion},
    support::Redis,
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

#[test]
fn a_fleet_upgrades_under_load_and_every_message_arrives_in_a_version_of_its_recipient() {
    let redis = Redis::start();
    let mut cluster = BrokerCluster::start(2, &redis);
    let author = cluster.replicas[0].client().registered("author");
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
    let load = Load {
        versions: VERSIONS,
        ..LOAD
    };
    let mut kills = 0;
    let balance = load.run_while(&mut cluster, |cluster, ledger| {
        // All have spoken version 3 after ten upgrades; then some go back one version.
        for upgrade in 0..13 {
            ledger.await_more_accepted(40);
            ledger.upgrade_next();
            if upgrade % 3 == 1 {
                cluster.kill(upgrade / 3 % 2);
                kills += 1;
            }
        }
        ledger.await_more_accepted(40);
    });
    println!("{kills} replicas killed: {balance:?}");
    assert!(balance.accepted >= 560 && kills == 4, "{balance:?}");
    assert!(
        balance.transformed > 0 && balance.transformed < balance.arrivals,
        "{balance:?}"
    );
    let lost = cluster.replicas[0].agent("auditor").dead_letters("transform_failed");
    assert!(lost.is_empty(), "{lost:?}");
}
