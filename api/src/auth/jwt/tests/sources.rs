//! Loading of keys from URLs and files, and the cache of verified claims.

use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::{Mutex, atomic::AtomicUsize},
    thread,
    time::{Instant, SystemTime},
};

use futures_util::future::join_all;

use super::*;
use crate::auth::jwt::{claims::VerifiedClaims, key_cache::Fingerprint, keys::JwkSet};

const UNKNOWN: Result<Claims, JwtError> = Err(JwtError::Invalid("no key of the issuer fits"));

/// A web server that gives every client the last configured answer, and counts requests.
struct Server {
    address: SocketAddr,
    answer: Arc<Mutex<Option<String>>>,
    asked: Arc<AtomicUsize>,
}

impl Server {
    /// A server without an answer: connections stay open.
    fn silent() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, asked) = (Arc::new(Mutex::new(None::<String>)), Arc::new(AtomicUsize::new(0)));
        let server = Self {
            address,
            answer: Arc::clone(&answer),
            asked: Arc::clone(&asked),
        };
        thread::spawn(move || {
            let mut held = Vec::new();
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                asked.fetch_add(1, Ordering::SeqCst);
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if socket.read_exact(&mut byte).is_err() {
                        break;
                    }
                    head.extend(byte);
                }
                match &*answer.lock().unwrap() {
                    // A client that has read enough closes the connection.
                    Some(answer) => drop(socket.write_all(answer.as_bytes())),
                    None => held.push(socket),
                }
            }
        });
        server
    }

    fn with(body: &str) -> Self {
        let server = Self::silent();
        server.set_answer("200 OK", "", body);
        server
    }

    fn set_answer(&self, status: &str, lines: &str, body: &str) {
        let len = body.len();
        let head = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {len}\r\nConnection: close\r\n\r\n");
        *self.answer.lock().unwrap() = Some(head + body);
    }

    fn url(&self) -> String {
        format!("http://{}/jwks.json", self.address)
    }

    fn verifier(&self, timings: JwtTimings) -> Arc<JwtVerifier> {
        JwtVerifier::open_with(timings, settings(KeySource::Url(self.url()))).unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

fn fetcher(jwt: &JwtVerifier) -> &Fetcher {
    match &jwt.source {
        Source::Url(fetcher) => fetcher,
        Source::File(_) => panic!("no URL"),
    }
}

fn token(issuer: &Issuer, subject: &str) -> String {
    issuer.signs(&issuer.claims(subject, NOW))
}

/// Polls until the condition holds.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !is_so().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[actix_rt::test]
async fn the_first_tokens_wait_for_the_first_fetch() {
    let issuer = issuer();
    let server = Server::with(&issuer.jwks());
    let jwt = server.verifier(NO_TIMERS);
    let tokens = ["alice", "bob", "carol"].map(|name| token(&issuer, name));
    let taken = join_all(tokens.iter().map(|token| jwt.verify(token, NOW))).await;
    assert!(taken.iter().all(Result::is_ok), "{taken:?}");
    assert_eq!(server.asked(), 1);
}

#[actix_rt::test]
async fn an_unknown_key_causes_a_fetch() {
    let old = issuer();
    let server = Server::with(&old.jwks());
    let jwt = server.verifier(NO_TIMERS);
    let old_token = token(&old, "alice");
    assert!(jwt.verify(&old_token, NOW).await.is_ok());
    let new = old.rotated();
    server.set_answer("200 OK", "", &new.jwks());
    let new_token = token(&new, "alice");
    assert_eq!(jwt.verify(&new_token, NOW).await, UNKNOWN, "it is too soon");
    assert_eq!(server.asked(), 1);
    fetcher(&jwt).reset_last_fetch();
    assert!(jwt.verify(&new_token, NOW).await.is_ok());
    assert_eq!(server.asked(), 2);
    assert_eq!(
        jwt.verify(&old_token, NOW).await,
        UNKNOWN,
        "what the old key had signed is forgotten"
    );
}

#[actix_rt::test]
async fn many_unknown_keys_cause_one_fetch() {
    let issuer = issuer();
    let server = Server::with(&issuer.jwks());
    let jwt = server.verifier(NO_TIMERS);
    assert!(jwt.verify(&token(&issuer, "alice"), NOW).await.is_ok());
    fetcher(&jwt).reset_last_fetch();
    let flood: Vec<_> = (0..100).map(|_| token(&issuer.rotated(), "mallory")).collect();
    for _ in 0..2 {
        let refused = join_all(flood.iter().map(|token| jwt.verify(token, NOW))).await;
        assert!(refused.iter().all(|it| *it == UNKNOWN), "{refused:?}");
        assert_eq!(server.asked(), 2);
    }
    // Tokens without a key id, or with a known one, cause no fetch.
    fetcher(&jwt).reset_last_fetch();
    let thief = issuer.rotated();
    for kid in [json!(null), json!(issuer.key_id)] {
        let header = with(thief.header(), "kid", kid);
        let forged = thief.signs_with(&header, &thief.claims("mallory", NOW));
        assert!(jwt.verify(&forged, NOW).await.is_err());
    }
    assert!(jwt.verify("a.b.c", NOW).await.is_err());
    assert_eq!(server.asked(), 2);
}

#[actix_rt::test]
async fn a_silent_key_server_delays_tokens_only_until_the_timeout() {
    let server = Server::silent();
    let timings = JwtTimings {
        wait_timeout: Duration::from_millis(30),
        ..NO_TIMERS
    };
    let jwt = server.verifier(timings);
    let started = Instant::now();
    let token = token(&issuer(), "alice");
    assert_eq!(jwt.verify(&token, NOW).await, Err(JwtError::Unavailable));
    assert_eq!(jwt.verify(&token, NOW).await, Err(JwtError::Unavailable));
    assert!(started.elapsed() < TEST_TIMEOUT / 2);
    assert_eq!(
        jwt.verify("a.b.c", NOW)
            .await
            .map_err(|why| why == JwtError::Unavailable),
        Err(false)
    );
}

#[actix_rt::test]
async fn known_keys_do_not_wait_for_a_server_that_never_answers() {
    let issuer = issuer();
    let server = Server::with(&issuer.jwks());
    let timings = JwtTimings {
        fetch_timeout: NEVER,
        ..NO_TIMERS
    };
    let jwt = server.verifier(timings);
    assert!(jwt.verify(&token(&issuer, "alice"), NOW).await.is_ok());
    *server.answer.lock().unwrap() = None;
    fetcher(&jwt).reset_last_fetch();
    let (unknown, known) = (token(&issuer.rotated(), "mallory"), token(&issuer, "bob"));
    let mut waits = Box::pin(jwt.verify(&unknown, NOW));
    assert!((&mut waits).now_or_never().is_none());
    assert!(verdict(&jwt, &known, NOW).is_ok());
}

#[actix_rt::test]
async fn a_fetch_that_times_out_is_repeated() {
    let issuer = issuer();
    let server = Server::silent();
    let timings = JwtTimings {
        fetch_timeout: Duration::from_millis(100),
        fetch_interval_min: Duration::from_millis(10),
        ..NO_TIMERS
    };
    let jwt = server.verifier(timings);
    let token = token(&issuer, "alice");
    assert_eq!(jwt.verify(&token, NOW).await, Err(JwtError::Unavailable));
    server.set_answer("200 OK", "", &issuer.jwks());
    eventually("the keys are fetched", async || jwt.verify(&token, NOW).await.is_ok()).await;
}

#[actix_rt::test]
async fn a_failed_fetch_is_retried_without_a_request() {
    let server = Server::with("<html>");
    let timings = JwtTimings {
        fetch_interval_min: Duration::from_millis(10),
        ..NO_TIMERS
    };
    let jwt = server.verifier(timings);
    eventually("there are more fetches", async || server.asked() > 2).await;
    let issuer = issuer();
    server.set_answer("200 OK", "", &issuer.jwks());
    eventually("the keys are there", async || jwt.key_cache.keys().is_some()).await;
}

#[actix_rt::test]
async fn an_answer_without_a_key_set_leaves_the_keys_unchanged() {
    let issuer = issuer();
    let server = Server::with(&issuer.jwks());
    let jwt = server.verifier(NO_TIMERS);
    let new = issuer.rotated();
    let too_long = format!("{}{}", new.jwks(), " ".repeat(SET_LEN_MAX as usize));
    let elsewhere = Server::with(&new.jwks());
    let redirect = format!("Location: {}\r\n", elsewhere.url());
    assert!(jwt.verify(&token(&issuer, "alice"), NOW).await.is_ok());
    for (at, (status, lines, body)) in [
        ("500 Internal Server Error", "", new.jwks().as_str()),
        ("404 Not Found", "", &new.jwks()),
        ("302 Found", &redirect, ""),
        ("307 Temporary Redirect", &redirect, &new.jwks()),
        ("200 OK", "", ""),
        ("200 OK", "", "<html>"),
        ("200 OK", "", "{}"),
        ("200 OK", "", &too_long),
    ]
    .into_iter()
    .enumerate()
    {
        server.set_answer(status, lines, body);
        fetcher(&jwt).reset_last_fetch();
        assert_eq!(jwt.verify(&token(&new, "alice"), NOW).await, UNKNOWN, "{status}");
        assert_eq!(server.asked(), at + 2);
        assert!(jwt.verify(&token(&issuer, status), NOW).await.is_ok(), "{status}");
    }
    assert_eq!(elsewhere.asked(), 0);
    // The longest accepted body.
    let longest = format!("{}{}", new.jwks(), " ".repeat(SET_LEN_MAX as usize - new.jwks().len()));
    server.set_answer("200 OK", "", &longest);
    fetcher(&jwt).reset_last_fetch();
    assert!(jwt.verify(&token(&new, "alice"), NOW).await.is_ok());
}

#[actix_rt::test]
async fn an_issuer_can_withdraw_all_its_keys() {
    let issuer = issuer();
    let server = Server::with(&issuer.jwks());
    let jwt = server.verifier(NO_TIMERS);
    let token = token(&issuer, "alice");
    assert!(jwt.verify(&token, NOW).await.is_ok());
    server.set_answer("200 OK", "", r#"{"keys": []}"#);
    fetcher(&jwt).reset_last_fetch();
    fetcher(&jwt).wait_for_fetch().await;
    assert_eq!(jwt.verify(&token, NOW).await, UNKNOWN);
}

#[actix_rt::test]
async fn keys_are_refreshed_without_a_request() {
    let old = issuer();
    let server = Server::with(&old.jwks());
    let timings = JwtTimings {
        refresh_interval: Duration::from_millis(10),
        ..NO_TIMERS
    };
    let jwt = server.verifier(timings);
    let token = token(&old, "alice");
    assert!(jwt.verify(&token, NOW).await.is_ok());
    server.set_answer("200 OK", "", &old.rotated().jwks());
    eventually("the old key is forgotten", async || {
        jwt.verify(&token, NOW).await == UNKNOWN
    })
    .await;
    drop(jwt);
    eventually("the thread ends with its fetcher", async || {
        let asked = server.asked();
        tokio::time::sleep(Duration::from_millis(200)).await;
        server.asked() == asked
    })
    .await;
}

#[actix_rt::test]
async fn an_https_url_is_never_fetched_in_clear_text() {
    let issuer = issuer();
    let server = Server::with(&issuer.jwks());
    let timings = JwtTimings {
        fetch_timeout: Duration::from_millis(100),
        ..NO_TIMERS
    };
    let url = server.url().replace("http:", "https:");
    let jwt = JwtVerifier::open_with(timings, settings(KeySource::Url(url))).unwrap();
    let taken = jwt.verify(&token(&issuer, "alice"), NOW).await;
    assert_eq!(taken, Err(JwtError::Unavailable));
}

#[test]
fn keys_come_over_tls_or_from_this_machine() {
    for url in [
        "http://login.example/jwks.json",
        "http://127.0.0.1.evil.example/jwks.json",
        "http://localhost.evil.example/jwks.json",
        "http://localhost@evil.example/jwks.json",
        "http://user:secret@localhost/jwks.json",
        "https://user:secret@login.example/jwks.json",
        "http://128.0.0.1/jwks.json",
        "http://[::2]/jwks.json",
        "ftp://localhost/jwks.json",
        "file:///etc/jwks.json",
        "//localhost/jwks.json",
        "/jwks.json",
        "localhost",
        "https://",
        "",
    ] {
        let refused = JwtVerifier::open(settings(KeySource::Url(url.to_owned())));
        assert!(refused.is_err_and(|why| !why.contains("secret")), "{url}");
    }
    for url in [
        "https://localhost:1/",
        "http://localhost:1/",
        "http://LOCALHOST:1/",
        "http://127.9.9.9:1/",
        "http://[::1]:1/",
    ] {
        assert!(
            JwtVerifier::open(settings(KeySource::Url(url.to_owned()))).is_ok(),
            "{url}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_used_is_an_error_at_the_start() {
    let missing = TempFile::new("").0.clone();
    assert!(JwtVerifier::open(settings(KeySource::File(missing))).is_err());
    let enc = with(issuer().jwk(), "use", json!("enc"));
    let too_long = format!("{}{}", issuer().jwks(), " ".repeat(SET_LEN_MAX as usize));
    for text in [
        "",
        "{}",
        "[",
        r#"{"keys": []}"#,
        &json!({"keys": [enc]}).to_string(),
        &too_long,
    ] {
        let file = TempFile::new(text);
        assert!(JwtVerifier::open(settings(KeySource::File(file.0.clone()))).is_err());
    }
}

#[test]
fn a_file_that_was_changed_is_read_again() {
    let (old, new) = (issuer(), issuer());
    let file = TempFile::new(&old.jwks());
    let touched = |age: u64| {
        let time = SystemTime::now() - Duration::from_secs(age);
        File::options()
            .write(true)
            .open(&file.0)
            .unwrap()
            .set_modified(time)
            .unwrap();
        time
    };
    let first = touched(100);
    let eager = JwtTimings {
        file_check_interval: Duration::ZERO,
        ..NO_TIMERS
    };
    let open = |timings| JwtVerifier::open_with(timings, settings(KeySource::File(file.0.clone()))).unwrap();
    let (eager, slow) = (open(eager), open(NO_TIMERS));
    let (by_old, by_new) = (token(&old, "alice"), token(&new, "alice"));
    for jwt in [&eager, &slow] {
        assert!(verdict(jwt, &by_old, NOW).is_ok());
        assert_eq!(verdict(jwt, &by_new, NOW), UNKNOWN);
    }
    new.publishes(&file.0);
    File::options()
        .write(true)
        .open(&file.0)
        .unwrap()
        .set_modified(first)
        .unwrap();
    assert!(verdict(&eager, &by_old, NOW).is_ok(), "it is not known to have changed");
    // An older modification time counts as a change, too.
    touched(200);
    assert_eq!(verdict(&eager, &by_old, NOW), UNKNOWN, "what was verified is forgotten");
    assert!(verdict(&eager, &by_new, NOW).is_ok());
    assert!(verdict(&slow, &by_old, NOW).is_ok(), "the last check was a moment ago");
    std::fs::write(&file.0, "{").unwrap();
    touched(50);
    assert!(
        verdict(&eager, &by_new, NOW).is_ok(),
        "what cannot be read changes nothing"
    );
    std::fs::remove_file(&file.0).unwrap();
    assert!(verdict(&eager, &by_new, NOW).is_ok());
    old.publishes(&file.0);
    touched(40);
    assert_eq!(verdict(&eager, &by_new, NOW), UNKNOWN);
    assert!(verdict(&eager, &by_old, NOW).is_ok());
}

fn accepted(expires_at_ms: u64) -> VerifiedClaims {
    let claims = Claims {
        human: String::new(),
        roles: Vec::new(),
        subject: "alice".to_owned(),
        project: None,
        scopes: Vec::new(),
        expires_at_ms,
    };
    VerifiedClaims {
        claims,
        not_before_s: 0,
    }
}

fn fingerprint(of: u32) -> Fingerprint {
    Sha256::digest(of.to_le_bytes()).into()
}

#[test]
fn claims_verified_with_replaced_keys_are_not_cached() {
    let cache = KeyCache::default();
    let (old, new) = (issuer().jwks(), issuer().jwks());
    cache.replace_keys(old.as_bytes()).unwrap();
    let by = cache.keys().unwrap();
    cache.cache_claims(fingerprint(1), accepted(u64::MAX), &by, NOW);
    assert!(cache.cached_claims(&fingerprint(1), NOW).is_some());
    // The same text changes nothing.
    cache.replace_keys(old.as_bytes()).unwrap();
    assert!(cache.cached_claims(&fingerprint(1), NOW).is_some());
    assert!(cache.replace_keys(b"{").is_err());
    assert!(cache.cached_claims(&fingerprint(1), NOW).is_some());
    cache.replace_keys(new.as_bytes()).unwrap();
    assert!(cache.cached_claims(&fingerprint(1), NOW).is_none());
    // A verification that started with the old keys ends after they were replaced.
    cache.cache_claims(fingerprint(2), accepted(u64::MAX), &by, NOW);
    cache.cache_claims(fingerprint(3), accepted(u64::MAX), &Arc::new(JwkSet::default()), NOW);
    for of in [1, 2, 3] {
        assert!(cache.cached_claims(&fingerprint(of), NOW).is_none(), "{of}");
    }
}

#[test]
fn the_cache_is_bounded_and_drops_the_first_to_expire() {
    let cache = KeyCache::default();
    cache.replace_keys(issuer().jwks().as_bytes()).unwrap();
    let by = cache.keys().unwrap();
    let remember = |of: u32, now_s: u64| {
        let expires_at_ms = (NOW + 10 + u64::from(of)) * 1000;
        cache.cache_claims(fingerprint(of), accepted(expires_at_ms), &by, now_s);
    };
    let known = |range: std::ops::Range<u32>| {
        range
            .filter(|of| cache.cached_claims(&fingerprint(*of), NOW).is_some())
            .count()
    };
    (0..1024).for_each(|of| remember(of, NOW));
    assert_eq!(known(0..1024), 1024);
    (1024..1034).for_each(|of| remember(of, NOW));
    assert_eq!((known(0..10), known(10..1034)), (0, 1024));
    // All expired entries are removed first.
    remember(5000, NOW + 120);
    assert_eq!((known(10..111), known(111..1034), known(5000..5001)), (0, 923, 1));
}
