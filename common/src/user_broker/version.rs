//! Which of two versions serves: the newer side wins, never the older, so that two installed versions cannot replace each
//! other in turn.

use semver::Version;

use super::{
    build::{build_id, is_replaced, own_protocol, running_version},
    hello::{COMMAND, Hello, RefusedProtocol},
};

/// What a broker does with a client that says hello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meeting {
    /// A newer version that is installed, if there is one.
    pub upgrade: Option<String>,
    /// The broker ends after its answer: only this client would be cut, and it starts the newer one.
    pub retires: bool,
}

/// Judges a client. `pending` is the upgrade that an earlier client brought, `others` the number of other connections.
///
/// # Errors
/// The client speaks another protocol. A newer client ends this broker with
/// [`RETIRE`](super::hello::RETIRE); an older one gives up.
pub fn meet(hello: &Hello, pending: Option<String>, others: usize) -> Result<Meeting, RefusedProtocol> {
    let broker = Side {
        protocol: own_protocol(),
        version: running_version(),
        build: build_id(),
    };
    judge(&broker, is_replaced(), hello, pending, others)
}

/// One end of a connection.
struct Side<'a> {
    protocol: u32,
    version: &'a str,
    build: &'a str,
}

fn judge(
    broker: &Side<'_>,
    is_replaced: bool,
    client: &Hello,
    pending: Option<String>,
    others: usize,
) -> Result<Meeting, RefusedProtocol> {
    if client.protocol != broker.protocol {
        let protocols = [broker.protocol, broker.protocol];
        return Err(RefusedProtocol {
            protocols,
            version: broker.version.to_owned(),
        });
    }
    let is_newer = is_newer(&client.version, broker.version);
    let is_older = self::is_newer(broker.version, &client.version);
    let is_other_build = is_replaced && !is_older && client.build != broker.build;
    let brings = (is_newer || is_other_build).then(|| client.version.clone());
    let upgrade = match (brings, pending) {
        (Some(brought), Some(pending)) if self::is_newer(&pending, &brought) => Some(pending),
        (brought, pending) => brought.or(pending),
    };
    // A client that is as old as this broker, or that only asks, would not start a newer one.
    let retires = others == 0 && client.kind != COMMAND && (is_newer || is_other_build);
    Ok(Meeting { upgrade, retires })
}

/// Whether a version is greater than another. What is no version is greater than none.
pub fn is_newer(version: &str, other: &str) -> bool {
    match (Version::parse(version), Version::parse(other)) {
        (Ok(version), Ok(other)) => version.cmp_precedence(&other).is_gt(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROKER: Side<'_> = Side {
        protocol: 2,
        version: "0.3.0",
        build: "aa",
    };

    fn client(protocol: u32, version: &str, build: &str) -> Hello {
        Hello {
            protocol,
            version: version.to_owned(),
            build: build.to_owned(),
            pid: 1,
            kind: "connect".to_owned(),
            agent: None,
            api_key: None,
        }
    }

    #[test]
    fn only_a_newer_client_replaces_a_broker() {
        let cases = [
            // version, build, executable replaced, others, upgrade, retires
            ("0.3.0", "aa", false, 0, None, false),
            ("0.3.0", "bb", false, 0, None, false),
            ("0.2.9", "bb", false, 0, None, false),
            ("0.2.9", "bb", true, 0, None, false),
            ("0.3.1", "bb", false, 0, Some("0.3.1"), true),
            ("0.3.1", "bb", false, 2, Some("0.3.1"), false),
            ("0.3.0", "bb", true, 0, Some("0.3.0"), true),
            ("0.3.0", "bb", true, 1, Some("0.3.0"), false),
            ("0.3.0", "aa", true, 0, None, false),
            ("0.10.0", "bb", false, 0, Some("0.10.0"), true),
            ("0.3.0-rc.1", "bb", false, 0, None, false),
            ("nonsense", "bb", false, 0, None, false),
        ];
        for (version, build, is_replaced, others, upgrade, retires) in cases {
            let meeting = judge(&BROKER, is_replaced, &client(2, version, build), None, others).unwrap();
            let expected = Meeting {
                upgrade: upgrade.map(str::to_owned),
                retires,
            };
            assert_eq!(meeting, expected, "{version} {build} {is_replaced} {others}");
        }
    }

    #[test]
    fn a_client_that_only_asks_ends_no_broker() {
        let mut asks = client(2, "0.3.1", "bb");
        asks.kind = COMMAND.to_owned();
        let meeting = judge(&BROKER, false, &asks, None, 0).unwrap();
        assert!(!meeting.retires);
        assert_eq!(meeting.upgrade.as_deref(), Some("0.3.1"));
    }

    #[test]
    fn the_newest_version_of_all_clients_is_the_upgrade() {
        let pending = |version: &str| Some(version.to_owned());
        let judged = |version: &str, pending| {
            judge(&BROKER, false, &client(2, version, "bb"), pending, 3)
                .unwrap()
                .upgrade
        };
        assert_eq!(judged("0.3.1", pending("0.3.2")), pending("0.3.2"));
        assert_eq!(judged("0.3.2", pending("0.3.1")), pending("0.3.2"));
        assert_eq!(judged("0.3.0", pending("0.3.1")), pending("0.3.1"));
    }

    #[test]
    fn another_protocol_is_refused_with_the_own() {
        for protocol in [1, 3] {
            let refused = judge(&BROKER, false, &client(protocol, "0.3.1", "bb"), None, 0).unwrap_err();
            assert_eq!(
                refused,
                RefusedProtocol {
                    protocols: [2, 2],
                    version: "0.3.0".to_owned()
                }
            );
        }
    }
}
