//! Reads the tables of added backends, whose authors administer one project and not the broker.

use std::collections::BTreeMap;

use actors::{
    gateway::BackendTables,
    model::{BackendAddress, BackendConfig, BackendFailure, BackendName, BrokerError},
};
use serde_json::Value;

use super::remote::{LINK_LOCAL, names_link_local};
use common::{
    config::{BackendDefaults, GatewayCommands, parse_table},
    refusal::serde_error_reason,
};

/// Calls that may run in one added backend at once.
const CONCURRENCY_MAX: usize = 64;

/// Reads tables as the settings of the broker allow them.
#[derive(Debug)]
pub struct AddedTables(pub BackendDefaults);

impl BackendTables for AddedTables {
    fn read(&self, name: &BackendName, table: &str) -> Result<BackendConfig, BrokerError> {
        let may_run_code = self.0.commands == GatewayCommands::Admin;
        let members: BTreeMap<String, Value> = serde_json::from_str(table).unwrap_or_default();
        if members.contains_key("command") && !may_run_code {
            let backend = name.to_string();
            return Err(BackendFailure::CommandNotAllowed { backend }.into());
        }
        if let Some((key, _)) = members.iter().find(|(_, value)| value.is_null()) {
            return Err(BrokerError::invalid(key.clone(), "null: leave it out"));
        }
        let config = parse_table(name, table, self.0).map_err(|(key, reason)| {
            let key = key.unwrap_or_else(|| "backend".to_owned());
            BrokerError::invalid(key, serde_error_reason(&reason))
        })?;
        if !may_run_code {
            refuse_references(&config.address)?;
        }
        if let BackendAddress::Url { url, .. } = &config.address
            && url.parse().is_ok_and(|url| names_link_local(&url))
        {
            return Err(BrokerError::invalid("url", LINK_LOCAL));
        }
        // What one administrator may have the broker hold for others is the choice of the operator.
        let limit = |key: &str, most: String| {
            Err(BrokerError::invalid(
                key,
                format!("at most {most} for an added backend"),
            ))
        };
        if config.result_bytes_max > self.0.result_bytes_max {
            return limit(
                "result_max",
                format!("gateway_result_max, {} bytes,", self.0.result_bytes_max),
            );
        }
        if config.concurrency > CONCURRENCY_MAX {
            return limit("concurrency", CONCURRENCY_MAX.to_string());
        }
        Ok(config)
    }
}

/// Refuses references: they would send variables and files of the broker, which may hold secrets, to a server that the author
/// of the table has chosen.
///
/// # Errors
/// `invalid_argument` with the key.
fn refuse_references(address: &BackendAddress) -> Result<(), BrokerError> {
    let BackendAddress::Url { url, headers, .. } = address else {
        return Ok(());
    };
    let headers = headers.iter().map(|(name, value)| (format!("headers.{name}"), value));
    let mut texts = headers.chain([("url".to_owned(), url)]);
    match texts.find(|(_, text)| text.contains("${")) {
        Some((key, _)) => Err(BrokerError::invalid(
            key,
            "a reference \"${\" reads the broker's environment: put it into the configuration file, or write the value here",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use actors::model::BackendOrigin;
    use serde_json::json;

    use super::*;

    fn read(commands: GatewayCommands, table: &Value) -> Result<BackendConfig, String> {
        let tables = AddedTables(BackendDefaults {
            call_timeout: Duration::from_secs(60),
            result_bytes_max: 1024,
            commands,
        });
        let name = BackendName::parse("docs").unwrap();
        let read = tables.read(&name, &table.to_string());
        read.map_err(|error| format!("{}: {error}", error.code()))
    }

    #[test]
    fn a_table_has_the_keys_of_the_configuration_file() {
        let table = json!({
            "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer x"}, "call_timeout": "5s",
            "tools": {"deny": ["delete_*"]}, "disabled": true, "result_max": "1KiB",
        });
        let config = read(GatewayCommands::Configured, &table).unwrap();
        assert_eq!(config.origin, BackendOrigin::Added);
        assert_eq!(config.call_timeout, Duration::from_secs(5));
        assert!(config.is_disabled && config.tools.deny == ["delete_*"]);
        let address = BackendAddress::Url {
            url: "https://example.com/mcp".to_owned(),
            headers: BTreeMap::from([("Authorization".to_owned(), "Bearer x".to_owned())]),
            transport: None,
        };
        assert!(config.address == address);
    }

    #[test]
    fn a_command_and_a_reference_are_allowed_only_to_those_who_may_run_code() {
        let url = |text: &str| json!({"url": text});
        let header = json!({"url": "http://a", "headers": {"X-Key": "a${MCP_BROKER_ADMIN_KEY}"}});
        let command = json!({"command": "x", "env": {"A": "${B}"}});
        for commands in [GatewayCommands::None, GatewayCommands::Configured] {
            assert!(read(commands, &url("http://a")).is_ok());
            for (table, code) in [
                (&command, "command_not_allowed: docs: "),
                (&header, "invalid_argument: headers.X-Key: a reference"),
                (&url("http://a/${HOME}"), "invalid_argument: url: a reference"),
                (&url("${file:/etc/passwd}"), "invalid_argument: url: a reference"),
            ] {
                let error = read(commands, table).unwrap_err();
                assert!(error.starts_with(code), "{table}: {error}");
            }
        }
        for table in [&command, &header, &url("${SERVER}")] {
            assert!(read(GatewayCommands::Admin, table).is_ok(), "{table}");
        }
    }

    #[test]
    fn a_wrong_table_is_refused_with_its_key() {
        for (table, error) in [
            (json!({"url": 7}), "url: must be a string, not 7"),
            (json!({"url": null}), "url: null: leave it out"),
            (
                json!({"url": "http://169.254.169.254/"}),
                "url: it leads to a link-local address",
            ),
            (
                json!({"url": "http://[::ffff:169.254.169.254]/"}),
                "url: it leads to a link-local address",
            ),
            (
                json!({"url": "https://a", "headers": {"X": "a\r\nY: b"}}),
                "headers.X: has characters that no header may have",
            ),
            (
                json!({"url": "https://a", "headers": {"X: y\r\nZ": "b"}}),
                "headers.X: y Z: is no name of a header",
            ),
            (json!({"uri": "x"}), "uri: `uri` is not known; known: `command`"),
            (json!({"url": "ftp://a"}), "url: it must begin with http://"),
            (
                json!({"url": "http://a", "call_timeout": "soon"}),
                "call_timeout: must be a time",
            ),
            (
                json!({"url": "http://a", "concurrency": 0}),
                "concurrency: must be a whole number",
            ),
            (
                json!({"url": "http://a", "concurrency": 65}),
                "concurrency: at most 64 for an added backend",
            ),
            (
                json!({"url": "http://a", "result_max": "2KiB"}),
                "result_max: at most gateway_result_max, 1024 bytes, for an added backend",
            ),
            (
                json!({"url": "http://a", "tools": {"alow": []}}),
                "tools.alow: is not known",
            ),
            (
                json!({"url": "http://a", "tools": {"get": {"call_timeout": "8d"}}}),
                "tools.get.call_timeout: must be a time",
            ),
            (
                json!({"url": "http://a", "tools": {"allow": {"call_timeout": "8s"}}}),
                "tools: allow and deny are lists of patterns",
            ),
            (
                json!({"url": "http://a", "tools": {"override": {"get": {"name": "x"}}}}),
                "tools.override.get.name: is not known",
            ),
            (
                json!({"url": "http://a", "command": "x"}),
                "backend: it has a command and a url",
            ),
            (json!({}), "backend: it needs a command or a url"),
        ] {
            let found = read(GatewayCommands::Admin, &table).unwrap_err();
            assert!(
                found.starts_with(&format!("invalid_argument: {error}")),
                "{table}: {found}"
            );
        }
    }
}
