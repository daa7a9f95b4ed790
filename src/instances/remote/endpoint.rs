//! The server behind a URL: requests to it with the headers of its configuration, and redirects within its origin.

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::OnceLock, time::Duration};

use actix_codec::Framed;
use actix_http::ws::{self, Codec};
use actors::model::BackendOrigin;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, uri::Scheme};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, upgrade::Upgraded};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, Error, connect::HttpConnector},
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use rustls::ClientConfig;
use url::Url;

use super::resolver::{LINK_LOCAL, Resolver, is_link_local};
use crate::hops;
use common::environment::expand;
use common::{
    config::parse_url,
    tls::{self, Roots},
};

/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an idle connection is kept. Servers on Node.js close theirs after 5 s, and a request must not meet that.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a silent connection is kept before the system asks whether the server is there.
const TCP_KEEP_ALIVE: Duration = Duration::from_secs(60);
/// Redirects that one request follows.
const REDIRECTS_MAX: usize = 5;
/// The name of MCP as a protocol over a `WebSocket`.
const SUBPROTOCOL: &str = "mcp";

/// An open WebSocket.
pub type Socket = Framed<TokioIo<Upgraded>, Codec>;

/// The server behind a URL.
pub struct Endpoint {
    client: Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
    url: Uri,
    headers: HeaderMap,
    /// Who has chosen the URL. An administrator of one project must not read other pages by it.
    origin: BackendOrigin,
}

/// A response whose body has not been read.
pub struct Response {
    response: http::Response<Incoming>,
    /// What is not MCP in the body is not shown.
    pub hides_body: bool,
}

impl Response {
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// What broke the connection.
    pub async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let Some(frame) = self.response.body_mut().frame().await else {
                return Ok(None);
            };
            let frame = frame.map_err(|error| format!("the connection broke: {}", innermost(&error)))?;
            // Trailers say nothing of interest.
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
    }
}

/// Why a request has no response.
#[derive(Debug)]
pub struct RequestFailure {
    pub reason: String,
    /// The server may have seen the request.
    pub may_be_sent: bool,
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// Headers of which each request has the right ones: those of the connection, and the one by which a backend that points back
/// to the broker is found.
const OWN_HEADERS: [HeaderName; 8] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::VIA,
];

impl Endpoint {
    /// The server of this URL. References in the URL and in the values are replaced. One that was added has no link-local
    /// address, whether its URL names it or its name leads to it.
    ///
    /// # Errors
    /// The URL or a header is wrong, or names a variable that is not set: which, for the operator.
    pub fn new(url: &str, headers: &BTreeMap<String, String>, origin: BackendOrigin) -> Result<Self, String> {
        let read = |name: &str| std::env::var(name).ok();
        let url = expand(url, &read).map_err(|reason| format!("url: {reason}"))?;
        let url = parse_url(&url).map_err(|reason| format!("url: {reason}"))?;
        if origin == BackendOrigin::Added && names_link_local(&url) {
            return Err(format!("url: {LINK_LOCAL}"));
        }
        let mut sent = HeaderMap::new();
        let user_agent = concat!("mcp-broker/", env!("CARGO_PKG_VERSION"));
        sent.insert(header::USER_AGENT, HeaderValue::from_static(user_agent));
        sent.insert(header::VIA, HeaderValue::from_static(hops::own_hop()));
        for (name, value) in headers {
            let wrong = |reason: &str| format!("headers.{name}: {reason}");
            let key = HeaderName::try_from(name.as_str()).map_err(|_| wrong("is no name of a header"))?;
            if OWN_HEADERS.contains(&key) {
                return Err(wrong("is set by the broker"));
            }
            let value = expand(value, &read).map_err(|reason| wrong(&reason))?;
            let mut value =
                HeaderValue::try_from(value).map_err(|_| wrong("has characters that no header may have"))?;
            value.set_sensitive(true);
            sent.insert(key, value);
        }
        let mut tcp = HttpConnector::new_with_resolver(Resolver::new(origin));
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(TCP_KEEP_ALIVE));
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(client_config()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self {
            client,
            url,
            headers: sent,
            origin,
        })
    }

    /// The URL.
    pub fn url(&self) -> &Uri {
        &self.url
    }

    /// Whether it is the URL of a WebSocket.
    pub fn is_websocket(&self) -> bool {
        matches!(self.url.scheme_str(), Some("ws" | "wss"))
    }

    /// A URL that the server names, relative to another one (RFC 3986, section 5); `None` if it is of another server.
    pub fn resolve(&self, base: &Uri, reference: &str) -> Option<Uri> {
        let mut url = Url::parse(&base.to_string()).ok()?.join(reference).ok()?;
        url.set_fragment(None);
        let has_user = !url.username().is_empty() || url.password().is_some();
        let url: Uri = url.as_str().parse().ok()?;
        (!has_user && origin(&url) == origin(&self.url)).then_some(url)
    }

    /// Sends a request. The body goes out as a whole; the response comes back as soon as its head is there.
    ///
    /// # Errors
    /// The server cannot be reached, breaks the connection, or redirects to another server.
    pub async fn request(
        &self,
        method: Method,
        url: &Uri,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response, RequestFailure> {
        let mut url = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut request = Request::new(Full::new(body.clone()));
            (*request.method_mut(), *request.uri_mut()) = (method.clone(), url.clone());
            *request.headers_mut() = self.with_own_headers(headers);
            let response = Response {
                response: self.client.request(request).await.map_err(|error| failure(&error))?,
                hides_body: self.origin == BackendOrigin::Added,
            };
            let Some(location) = redirect(&method, &response) else {
                return Ok(response);
            };
            url = self.resolve(&url, location).ok_or_else(|| {
                let target = match self.origin {
                    BackendOrigin::Added => String::new(),
                    BackendOrigin::File => format!(" ({})", shortened(location)),
                };
                RequestFailure {
                    reason: format!("it redirects to another server{target}: set its url"),
                    may_be_sent: false,
                }
            })?;
        }
        Err(RequestFailure {
            reason: "it redirects again and again".to_owned(),
            may_be_sent: false,
        })
    }

    /// The headers of a request, and those of the configuration that it does not have.
    fn with_own_headers(&self, headers: &HeaderMap) -> HeaderMap {
        let mut all = headers.clone();
        for (name, value) in &self.headers {
            if !all.contains_key(name) {
                all.insert(name, value.clone());
            }
        }
        all
    }

    /// Opens a WebSocket with messages of at most `message_len_max` bytes (RFC 6455, section 4.1).
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub async fn open_socket(&self, message_len_max: usize) -> Result<Socket, String> {
        let mut key = [0; 16];
        getrandom::fill(&mut key).map_err(|error| error.to_string())?;
        let key = STANDARD.encode(key);
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::CONNECTION, "Upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_VERSION, "13"),
            (header::SEC_WEBSOCKET_KEY, &key),
            (header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL),
        ] {
            headers.insert(name, HeaderValue::try_from(value).map_err(|error| error.to_string())?);
        }
        let scheme = match self.url.scheme_str() {
            Some("wss") => Scheme::HTTPS,
            _ => Scheme::HTTP,
        };
        let mut parts = self.url.clone().into_parts();
        parts.scheme = Some(scheme);
        let url = Uri::from_parts(parts).map_err(|error| error.to_string())?;
        let mut request = Request::new(Full::default());
        *request.uri_mut() = url;
        *request.headers_mut() = self.with_own_headers(&headers);
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| failure(&error).reason)?;
        let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
        let is_accepted = accepted.is_some_and(|accepted| accepted.as_bytes() == ws::hash_key(key.as_bytes()));
        if response.status() != StatusCode::SWITCHING_PROTOCOLS || !is_accepted {
            let status = response.status().as_u16();
            return Err(format!("it opens no WebSocket: it answers with HTTP {status}"));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|error| error.to_string())?;
        let codec = Codec::new().max_size(message_len_max).client_mode();
        Ok(Framed::new(TokioIo::new(upgraded), codec))
    }
}

/// The address to which a response sends a request on. A POST stays one: servers of MCP answer no GET in its place. So 303,
/// which asks for one, is followed by a GET alone.
fn redirect<'a>(method: &Method, response: &'a Response) -> Option<&'a str> {
    let is_redirect = match response.status() {
        StatusCode::MOVED_PERMANENTLY
        | StatusCode::FOUND
        | StatusCode::TEMPORARY_REDIRECT
        | StatusCode::PERMANENT_REDIRECT => true,
        StatusCode::SEE_OTHER => method == Method::GET,
        _ => false,
    };
    let location = response.headers().get(header::LOCATION).filter(|_| is_redirect)?;
    location.to_str().ok()
}

/// Whether the host of a URL is written as a link-local address.
pub fn names_link_local(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.parse::<IpAddr>().is_ok_and(is_link_local)
}

/// The scheme, host and port of a URL.
fn origin(url: &Uri) -> (Option<&str>, Option<String>, Option<u16>) {
    let default = match url.scheme_str() {
        Some("https" | "wss") => 443,
        _ => 80,
    };
    let host = url.host().map(str::to_ascii_lowercase);
    (url.scheme_str(), host, Some(url.port_u16().unwrap_or(default)))
}

fn failure(error: &Error) -> RequestFailure {
    let inner = innermost(error);
    if error.is_connect() {
        return RequestFailure {
            reason: format!("no connection: {inner}"),
            may_be_sent: false,
        };
    }
    RequestFailure {
        reason: format!("the connection broke: {inner}"),
        may_be_sent: true,
    }
}

/// What an error comes from in the end.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

/// The settings of TLS: the authorities of this machine, or the bundled ones where it has none.
fn client_config() -> Result<ClientConfig, String> {
    static CONFIG: OnceLock<Result<ClientConfig, String>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let roots = Roots::System.store().or_else(|_| Roots::Bundled.store())?;
        tls::client_config(roots)
    });
    config.clone()
}

/// The beginning of what a server has sent, for a message.
pub fn shortened(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[actix_web::test]
    async fn a_server_leads_only_to_itself() {
        let url = "http://example.com:80/api/mcp?key=1";
        let endpoint = Endpoint::new(url, &BTreeMap::new(), BackendOrigin::File).unwrap();
        let resolve = |reference| endpoint.resolve(endpoint.url(), reference).map(|url| url.to_string());
        for (reference, url) in [
            ("/messages?s=1", Some("http://example.com/messages?s=1")),
            ("messages", Some("http://example.com/api/messages")),
            ("?sid=1", Some("http://example.com/api/mcp?sid=1")),
            ("./m", Some("http://example.com/api/m")),
            ("../m?a=b#c", Some("http://example.com/m?a=b")),
            ("../../../m", Some("http://example.com/m")),
            ("", Some("http://example.com/api/mcp?key=1")),
            ("//example.com/x", Some("http://example.com/x")),
            ("http://me@example.com/x", None),
            ("\\\\evil.com/x", None),
            ("ws://example.com/x", None),
            ("http://EXAMPLE.com/x", Some("http://example.com/x")),
            ("https://example.com/x", None),
            ("http://example.com:81/x", None),
            ("http://evil.com/x", None),
            ("//evil.com/x", None),
        ] {
            assert_eq!(
                resolve(reference).map(|url| url.to_ascii_lowercase()).as_deref(),
                url,
                "{reference}"
            );
        }
    }

    #[actix_web::test]
    async fn a_wrong_header_is_named() {
        let new = |name: &str, value: &str| {
            let headers = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            Endpoint::new("http://a/", &headers, BackendOrigin::File).err()
        };
        assert_eq!(new("Authorization", "Bearer x"), None);
        assert_eq!(new("a b", "x").unwrap(), "headers.a b: is no name of a header");
        assert!(new("a", "x\ny").unwrap().contains("no header may have"));
        assert!(
            new("a", "${NOT_SET_ANYWHERE}")
                .unwrap()
                .contains("NOT_SET_ANYWHERE is not set")
        );
    }

    #[actix_web::test]
    async fn an_added_server_has_no_link_local_address() {
        let new = |url: &str, origin| Endpoint::new(url, &BTreeMap::new(), origin).err();
        for url in [
            "http://169.254.169.254/latest/meta-data",
            "https://169.254.0.1:8443/",
            "http://[fe80::1]/",
            "http://[febf::1]:80/",
            "http://[::ffff:169.254.169.254]/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[fd00:ec2::254]/",
            "ws://169.254.169.254/",
        ] {
            let refused = new(url, BackendOrigin::Added);
            assert!(refused.is_some_and(|reason| reason.contains("link-local")), "{url}");
            assert_eq!(new(url, BackendOrigin::File), None, "the operator has chosen it");
        }
        for url in [
            "http://127.0.0.1/",
            "http://[::1]/",
            "http://10.0.0.1/",
            "http://example.com/",
        ] {
            assert_eq!(new(url, BackendOrigin::Added), None, "{url}");
        }
        // The resolver of the system reads numbers as addresses.
        let endpoint = Endpoint::new("http://2852039166/", &BTreeMap::new(), BackendOrigin::Added).unwrap();
        let refused = endpoint
            .request(Method::GET, endpoint.url(), &HeaderMap::new(), Bytes::new())
            .await;
        assert!(refused.err().unwrap().reason.contains("link-local"));
    }
}
