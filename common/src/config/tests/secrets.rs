//! Tests of settings that hold secrets, or name the files that hold them.

use super::*;

#[test]
fn a_url_with_a_password_is_hidden() {
    let start = |url: &str| Start::new().env("MCP_BROKER_REDIS_URL", url);
    let config = start("redis://user:hunter2@cache:1/2").config();
    assert_eq!(config.redis_url.as_str(), "redis://user:hunter2@cache:1/2");
    assert!(!format!("{config:?}").contains("hunter2"));
    let line = start("http://user:hunter2@cache").refusal();
    assert!(
        line.starts_with("redis_url = (hidden) (MCP_BROKER_REDIS_URL) is not allowed; allowed: a URL such as "),
        "{line}"
    );
    assert!(!line.contains("hunter2"), "{line}");
}

#[test]
fn the_url_of_redis_may_be_in_a_file_and_not_in_two_places() {
    let folder = std::env::temp_dir().join(format!("mcp-broker-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("url");
    let from_file = || Start::new().flag("redis_url_file", path.to_str().unwrap());
    let line = from_file().refusal();
    assert!(
        line.contains("allowed: a file whose first line is a URL such as"),
        "{line}"
    );
    std::fs::write(&path, "http://user:hunter2@cache\n").unwrap();
    let line = from_file().refusal();
    assert!(line.contains("its first line is not a URL of Redis"), "{line}");
    assert!(!line.contains("hunter2"), "{line}");
    std::fs::write(&path, " redis://user:hunter2@cache:1/2 \nmore\n").unwrap();
    let config = from_file().config();
    assert_eq!(
        config.redis_address().unwrap().as_str(),
        "redis://user:hunter2@cache:1/2"
    );
    assert!(!format!("{config:?}").contains("hunter2"));
    let line = from_file().env("MCP_BROKER_REDIS_URL", "redis://another").refusal();
    assert!(line.contains("allowed: none together with redis_url"), "{line}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_password_of_redis_may_be_in_a_file_and_not_in_two_places() {
    let folder = std::env::temp_dir().join(format!("mcp-broker-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("password");
    std::fs::write(&path, "hunter2@/:%\n").unwrap();
    let with = |url: &str| {
        let start = Start::new().flag("redis_password_file", path.to_str().unwrap());
        start.env("MCP_BROKER_REDIS_URL", url)
    };
    for (url, wanted) in [
        ("redis://cache:1/2", "redis://:hunter2%40%2F%3A%25@cache:1/2"),
        ("redis://user@cache", "redis://user:hunter2%40%2F%3A%25@cache"),
        (
            "redis+sentinel://a:1,b:2/master/0",
            "redis+sentinel://:hunter2%40%2F%3A%25@a:1,b:2/master/0",
        ),
    ] {
        let config = with(url).config();
        assert_eq!(config.redis_address().unwrap().as_str(), wanted);
        assert!(!format!("{config:?}").contains("hunter2"));
    }
    let line = with("redis://user:other@cache").refusal();
    assert!(
        line.contains("redis_url has a password") && !line.contains("hunter2"),
        "{line}"
    );
    let both = with("redis://cache").flag("redis_url_file", path.to_str().unwrap());
    assert!(both.refusal().contains("allowed: none together with redis_url_file"));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_admin_key_may_be_in_a_file_and_not_in_two_places() {
    let folder = std::env::temp_dir().join(format!("mcp-broker-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("key");
    let from_file = || Start::new().flag("admin_key_file", path.to_str().unwrap());
    assert!(
        from_file()
            .refusal()
            .contains("allowed: a file whose first line is 16 to 256")
    );
    std::fs::write(&path, "short\n").unwrap();
    assert!(from_file().refusal().contains("its first line is not a key"));
    std::fs::write(&path, "an-admin-key-of-some-length\nmore\n").unwrap();
    let digest = from_file().config().admin_digest().unwrap().unwrap();
    assert!(digest.matches(&KeyDigest::of_key("an-admin-key-of-some-length")));
    let line = from_file()
        .env("MCP_BROKER_ADMIN_KEY", "another-admin-key-of-some-length")
        .refusal();
    assert!(
        line.contains("allowed: none together with admin_key") && !line.contains("another"),
        "{line}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn values_of_secret_sounding_names_are_hidden() {
    for name in ["ADMIN_KEY", "REDIS_URL", "API_TOKEN"] {
        let line = Start::new().env(&format!("MCP_BROKER_{name}"), "hunter2").refusal();
        assert!(!line.contains("hunter2") && line.contains("(hidden)"), "{line}");
    }
}
