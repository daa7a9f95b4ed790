//! The cookie in which a browser keeps a login: what it is good for, what it is not, and how it ends.

use std::path::Path;

use serde_json::{Value, json};
use test_client::folder::Folder;

use super::{entry_points, handshake};
use crate::support::{ADMIN_KEY, Broker, Request, Response, Tenant, eventually, id_of_key, keys};

fn login(broker: &Broker, body: &str) -> Request {
    Request::post(broker.address, body).with_path("/api/v1/login")
}

/// A browser that has exchanged a key for a cookie.
struct Browser<'a> {
    broker: &'a Broker,
    cookie: String,
    token: String,
}

impl<'a> Browser<'a> {
    fn logs_in(broker: &'a Broker, key: &str) -> (Self, Value) {
        let answer = login(broker, &json!({"key": key}).to_string()).answered();
        assert_eq!(answer.status, 200, "{answer:?}");
        let set = answer.header("set-cookie").unwrap();
        let browser = Self {
            broker,
            cookie: set.split(';').next().unwrap().to_owned(),
            token: answer.json()["csrf_token"].as_str().unwrap().to_owned(),
        };
        (browser, answer.json())
    }

    fn request(&self, method: &str, path: &str) -> Request {
        Request::get(self.broker.address)
            .with_method(method)
            .with_path(path)
            .with("Cookie", &*self.cookie)
    }

    fn gets(&self, path: &str) -> Response {
        self.request("GET", path).answered()
    }

    /// Registers a protocol, with this token.
    fn registers(&self, name: &str, token: Option<&str>) -> Response {
        let body = json!({"name": name, "version": "1.0.0", "schema": {}});
        let request = Request::post(self.broker.address, body.to_string())
            .with_path("/api/v1/protocols")
            .with("Cookie", &*self.cookie);
        token
            .iter()
            .fold(request, |request, token| request.with("X-CSRF-Token", *token))
            .answered()
    }
}

fn labelled_key(team: &Tenant<'_>, scope: &str) -> String {
    team.new_key(&json!({"scope": scope, "label": "the page"}))
}

/// The name of the cookie at this broker.
fn cookie_name(broker: &Broker) -> String {
    format!("mcp_broker_login_{}", broker.address.port())
}

fn assert_removed(broker: &Broker, answer: &Response) {
    let removal = format!("{}=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict", cookie_name(broker));
    assert_eq!(answer.header("set-cookie"), Some(&*removal), "{answer:?}");
}

#[test]
fn a_browser_exchanges_a_key_for_a_cookie() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let key = labelled_key(&team, "member");
    let answer = login(&broker, &json!({"key": key}).to_string()).answered();
    let set = answer.header("set-cookie").unwrap();
    let (pair, attributes) = set.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Strict");
    assert!(pair.starts_with(&format!("{}=team.", cookie_name(&broker))), "{set}");
    assert!(
        !set.contains(key.rsplit('_').next().unwrap()),
        "no secret of the key: {set}"
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let (browser, logged_in) = Browser::logs_in(&broker, &key);
    let expected = json!({
        "project_id": "team", "scope": "member", "key_id": id_of_key(&key), "label": "the page", "csrf_token": browser.token,
    });
    assert_eq!(logged_in, expected);
    let me = browser.gets("/api/v1/me").json();
    for (member, value) in expected.as_object().unwrap() {
        assert_eq!(me[member], *value, "{me}");
    }
    assert_eq!(me["auth_enabled"], true);
    assert_eq!(me["version"], env!("CARGO_PKG_VERSION"));
    let with_header = broker.rest(&key, "GET", "/api/v1/me", &Value::Null).json();
    assert_eq!(
        keys(&with_header),
        [
            "auth_enabled",
            "key_id",
            "label",
            "project_id",
            "replica",
            "scope",
            "version"
        ],
        "there is no token without the cookie"
    );
    let answer = browser.request("POST", "/api/v1/logout").answered();
    assert_eq!(answer.status, 204, "{answer:?}");
    assert_removed(&broker, &answer);
    assert!(!broker.log().contains(&key), "keys reach no log");
}

#[test]
fn a_cookie_is_secure_where_the_browser_used_tls() {
    let broker = Broker::secured();
    let request = login(&broker, &json!({"key": ADMIN_KEY}).to_string());
    let own_origin = format!("https://{}", broker.address);
    for (name, value) in [("Origin", &*own_origin), ("X-Forwarded-Proto", "https")] {
        let answer = request.clone().with(name, value).answered();
        let set = answer.header("set-cookie").unwrap_or_else(|| panic!("{answer:?}"));
        assert!(set.ends_with("; HttpOnly; SameSite=Strict; Secure"), "{set}");
        assert!(set.starts_with("__Host-mcp_broker_login_"), "{set}");
    }
}

#[test]
fn a_change_with_the_cookie_needs_the_token() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let (browser, _) = Browser::logs_in(&broker, &team.key);
    let (other, _) = Browser::logs_in(&broker, &team.new_key_with_scope("member"));
    for wrong in [None, Some(""), Some("x"), Some(&*other.token)] {
        let refused = browser.registers("mine", wrong);
        assert_eq!(refused.problem(), (403, "forbidden".to_owned()), "{wrong:?}");
        assert!(refused.body.contains("X-CSRF-Token"), "{refused:?}");
        assert_eq!(refused.header("set-cookie"), None);
        for method in ["PUT", "PATCH", "DELETE"] {
            let request = browser.request(method, "/api/v1/projects/team/grants/x");
            let request = wrong
                .iter()
                .fold(request, |request, token| request.with("X-CSRF-Token", *token));
            assert_eq!(
                request.answered().problem(),
                (403, "forbidden".to_owned()),
                "{method} {wrong:?}"
            );
        }
    }
    assert_eq!(browser.gets("/api/v1/protocols/mine/1.0.0").status, 404);
    let made = browser.registers("mine", Some(&browser.token));
    assert_eq!(made.status, 201, "{made:?}");
}

#[test]
fn a_cookie_is_good_for_rest_alone() {
    let broker = Broker::secured();
    let (browser, _) = Browser::logs_in(&broker, ADMIN_KEY);
    let elsewhere = entry_points(&broker)
        .into_iter()
        .filter(|request| !request.path.starts_with("/api/v1/"));
    let elsewhere = elsewhere
        .chain([handshake(&broker)])
        .chain(["/metrics", "/sessions", "/protocols"].map(|path| browser.request("GET", path)));
    for request in elsewhere {
        let request = request
            .with("Cookie", &*browser.cookie)
            .with("X-CSRF-Token", &*browser.token);
        let answer = request.answered();
        assert_eq!(answer.status, 401, "{} {answer:?}", request.path);
        assert_eq!(answer.header("set-cookie"), None, "{answer:?}");
    }
    assert_eq!(browser.gets("/api/v1/projects").status, 200);
}

#[test]
fn a_key_in_a_header_takes_precedence_over_the_cookie() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let (browser, _) = Browser::logs_in(&broker, &team.key);
    for name in ["X-API-Key", "Authorization"] {
        let value = |key: &str| {
            if name == "Authorization" {
                format!("Bearer {key}")
            } else {
                key.to_owned()
            }
        };
        let request = browser.request("GET", "/api/v1/me").with(name, value(ADMIN_KEY));
        assert_eq!(request.answered().json()["scope"], "operator");
        let refused = browser
            .request("GET", "/api/v1/me")
            .with(name, value("wrong_key_of_mine"))
            .answered();
        assert_eq!(refused.status, 401);
        assert_eq!(
            refused.header("set-cookie"),
            None,
            "the cookie was not looked at: {refused:?}"
        );
    }
    // A proxy in front of the broker may have credentials of its own.
    let with_proxy = browser
        .request("GET", "/api/v1/me")
        .with("Authorization", "Basic bWU6bWU=")
        .answered();
    assert_eq!(with_proxy.json()["project_id"], "team");
}

#[test]
fn the_end_of_a_key_ends_its_cookie_and_what_was_opened_with_it() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let key = team.new_key_with_scope("observer");
    let (browser, _) = Browser::logs_in(&broker, &key);
    let mut events = browser.request("GET", "/api/v1/events").sent().streams();
    events.next_event().expect("the first frame");
    team.revoke_key(&key);
    events.awaits_end();
    let refused = browser.gets("/api/v1/me");
    assert_eq!(refused.problem(), (401, "authentication_failed".to_owned()));
    assert_removed(&broker, &refused);
    let answer = browser.request("POST", "/api/v1/logout").answered();
    assert_eq!(
        answer.status, 204,
        "a dead key is no reason to stay logged in: {answer:?}"
    );
    let again = login(&broker, &json!({"key": key}).to_string()).answered();
    assert_eq!(again.problem(), (401, "authentication_failed".to_owned()));
    assert_eq!(again.header("set-cookie"), None);
}

#[test]
fn a_cookie_stays_within_its_project() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let other = broker.project("other", &json!({}));
    let alice = other.agent("alice");
    let (browser, _) = Browser::logs_in(&broker, &team.key);
    let path = format!("/api/v1/sessions/{}", alice.session);
    assert_eq!(browser.gets(&path).problem(), (404, "session_not_found".to_owned()));
    let named = browser.request("GET", &path).with("X-Project-ID", "other").answered();
    assert_eq!(named.problem(), (403, "project_mismatch".to_owned()));
    let (operator, logged_in) = Browser::logs_in(&broker, ADMIN_KEY);
    assert_eq!(
        (&logged_in["scope"], &logged_in["key_id"]),
        (&json!("operator"), &Value::Null)
    );
    let named = operator.request("GET", &path).with("X-Project-ID", "other").answered();
    assert_eq!(named.status, 200, "{named:?}");
    let login_elsewhere = login(&broker, &json!({"key": team.key}).to_string()).with("X-Project-ID", "other");
    assert_eq!(
        login_elsewhere.answered().problem(),
        (403, "project_mismatch".to_owned())
    );
}

#[test]
fn pages_of_other_origins_cannot_log_in_and_cannot_use_the_cookie() {
    let broker = Broker::secured();
    let body = json!({"key": ADMIN_KEY}).to_string();
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
    ] {
        let refused = login(&broker, &body).with("Content-Type", kind).answered();
        assert_eq!(refused.status, 415, "{kind}: {refused:?}");
    }
    let (browser, _) = Browser::logs_in(&broker, ADMIN_KEY);
    let (host, port) = (broker.address.ip(), broker.address.port());
    for origin in ["https://evil.example", "null", &format!("http://{host}:{}", port ^ 1)] {
        for request in [
            login(&broker, &body),
            browser.request("GET", "/api/v1/me"),
            browser.request("POST", "/api/v1/logout"),
        ] {
            let refused = request.with("Origin", origin).answered();
            assert_eq!(refused.problem(), (403, "forbidden".to_owned()), "{origin}");
            assert_eq!(refused.header("set-cookie"), None, "{refused:?}");
        }
    }
    for site in ["cross-site", "same-site"] {
        let refused = browser
            .request("GET", "/api/v1/me")
            .with("Sec-Fetch-Site", site)
            .answered();
        assert_eq!(refused.status, 403, "{site}: {refused:?}");
        assert_eq!(refused.header("set-cookie"), None, "a foreign page logs no one out");
    }
}

#[test]
fn wrong_keys_are_counted_and_a_right_one_is_still_let_in() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let wrong = format!("team_{}_{}", id_of_key(&team.key), "0".repeat(48));
    let body = json!({"key": wrong}).to_string();
    let limited = eventually("the wrong key is limited", || {
        let refused = login(&broker, &body).answered();
        assert_eq!(refused.header("set-cookie"), None, "{refused:?}");
        match refused.status {
            401 => None,
            _ => Some(refused),
        }
    });
    assert_eq!(limited.problem(), (429, "rate_limited".to_owned()));
    assert!(limited.header("retry-after").is_some());
    // As a cookie it counts for the same limit.
    let cookie = Request::get(broker.address)
        .with_path("/api/v1/me")
        .with("Cookie", format!("{}={wrong}", cookie_name(&broker)));
    assert_eq!(cookie.answered().status, 429);
    Browser::logs_in(&broker, &team.key);
}

#[test]
fn a_key_in_the_cookie_is_no_login() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    for key in [ADMIN_KEY, &team.key] {
        let cookie = format!("{}={key}", cookie_name(&broker));
        for (method, path) in [
            ("GET", "/api/v1/me"),
            ("DELETE", "/api/v1/projects/team"),
            ("POST", "/api/v1/protocols"),
        ] {
            let request = Request::get(broker.address).with_method(method).with_path(path);
            let refused = request.with("Cookie", &*cookie).answered();
            let code = (401, "authentication_failed".to_owned());
            assert_eq!(refused.problem(), code, "{method} {path}");
            assert_removed(&broker, &refused);
        }
    }
    Browser::logs_in(&broker, &team.key);
}

#[test]
fn a_dead_cookie_of_tls_is_removed_by_its_own_name() {
    let broker = Broker::secured();
    let plain = cookie_name(&broker);
    let tls = format!("__Host-{plain}");
    let stale = format!("default.{}", "A".repeat(43));
    let request = Request::get(broker.address).with_path("/api/v1/me");
    let refused = request.clone().with("Cookie", format!("{tls}={stale}")).answered();
    let removal = format!("{tls}=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict; Secure");
    assert_eq!(refused.header("set-cookie"), Some(&*removal), "{refused:?}");
    let both = format!("{plain}={stale}; {tls}={stale}");
    let refused = request.with("Cookie", both).answered();
    let shown = format!("{refused:?}");
    assert_eq!(shown.matches("=; Max-Age=0; ").count(), 2, "{shown}");
}

#[test]
fn bad_logins_are_refused_with_what_is_allowed() {
    let broker = Broker::secured();
    let long = json!({"key": "k".repeat(3801)}).to_string();
    let much = json!({"key": "k".repeat(70_000)}).to_string();
    for (body, status, code) in [
        ("", 400, "invalid_argument"),
        ("[]", 400, "invalid_argument"),
        ("{}", 400, "invalid_argument"),
        (r#"{"key": null}"#, 400, "invalid_argument"),
        (r#"{"key": ""}"#, 400, "invalid_argument"),
        (r#"{"key": "two words"}"#, 400, "invalid_argument"),
        (r#"{"key": "line\r\nSet-Cookie: x=y"}"#, 400, "invalid_argument"),
        (r#"{"key": "x", "project": "team"}"#, 400, "invalid_argument"),
        (&long, 400, "invalid_argument"),
        (&much, 413, "payload_too_large"),
    ] {
        let refused = login(&broker, body).answered();
        assert_eq!(refused.problem(), (status, code.to_owned()), "{body:.80}");
        assert_eq!(refused.header("set-cookie"), None);
    }
    let in_url = login(&broker, "{}").with_path("/api/v1/login?key=x").answered();
    assert_eq!(in_url.problem(), (400, "invalid_argument".to_owned()));
}

#[test]
fn a_broker_without_authentication_needs_no_login() {
    let broker = Broker::start();
    let me = broker.rest_with(&[], "GET", "/api/v1/me", &Value::Null).json();
    assert_eq!(
        (&me["auth_enabled"], &me["project_id"], &me["key_id"]),
        (&json!(false), &json!("default"), &Value::Null)
    );
    assert_eq!(me.get("csrf_token"), None);
    // The cookie of an earlier broker at this port, and of a broker at another one.
    let stale = format!("{}=default.{}", cookie_name(&broker), "A".repeat(43));
    let refused = broker.rest_with(&[("Cookie", &stale)], "GET", "/api/v1/me", &Value::Null);
    assert_eq!(refused.status, 401);
    assert_removed(&broker, &refused);
    let other = [("Cookie", "mcp_broker_login_1=default.x")];
    assert_eq!(broker.rest_with(&other, "GET", "/api/v1/me", &Value::Null).status, 200);
}

#[test]
fn a_logout_ends_the_login_at_the_broker() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    for key in [ADMIN_KEY, &team.key] {
        let (stays, _) = Browser::logs_in(&broker, key);
        let (stolen, _) = Browser::logs_in(&broker, key);
        assert_eq!(stolen.gets("/api/v1/me").status, 200);
        assert_eq!(stolen.request("POST", "/api/v1/logout").answered().status, 204);
        let refused = stolen.gets("/api/v1/me");
        assert_eq!(refused.problem(), (401, "authentication_failed".to_owned()));
        assert_eq!(
            stays.gets("/api/v1/me").status,
            200,
            "the other browser stays logged in"
        );
        let again = stolen.request("POST", "/api/v1/logout").answered();
        assert_eq!(again.status, 204, "an ended login can be logged out again: {again:?}");
    }
}

#[test]
fn the_ninth_login_of_a_key_ends_its_first() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let logins: Vec<_> = (0..9).map(|_| Browser::logs_in(&broker, &team.key).0).collect();
    let statuses: Vec<_> = logins.iter().map(|login| login.gets("/api/v1/me").status).collect();
    assert_eq!(statuses, [401, 200, 200, 200, 200, 200, 200, 200, 200]);
}

#[test]
fn a_login_survives_a_restart_and_its_record_has_no_key() {
    let folder = Folder::new();
    let flags = ["--storage=disk".to_owned(), folder.data_dir()];
    let flags = flags.each_ref().map(String::as_str);
    let mut broker = Broker::secured_with(&flags);
    let (browser, _) = Browser::logs_in(&broker, ADMIN_KEY);
    let token = browser.cookie.split_once('=').unwrap().1.to_owned();
    broker.terminate();
    assert!(broker.wait_for_exit().success());
    let mut stored = Vec::new();
    read_all(&folder, &mut stored);
    assert!(contains(&stored, b"expires_at_ms"), "the record is in the data folder");
    for secret in [ADMIN_KEY, &token] {
        assert!(!contains(&stored, secret.as_bytes()), "{secret} is in the data folder");
    }
    let again = Broker::secured_with(&flags);
    let cookie = format!("{}={token}", cookie_name(&again));
    let me = again.rest_with(&[("Cookie", &cookie)], "GET", "/api/v1/me", &Value::Null);
    assert_eq!(me.json()["scope"], "operator", "{me:?}");
    drop(again);
}

fn read_all(folder: &Path, bytes: &mut Vec<u8>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_all(&path, bytes);
        } else {
            bytes.extend(std::fs::read(path).unwrap());
        }
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
