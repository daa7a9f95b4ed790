//! The URL of a backend.

use http::Uri;

/// Parses the URL of a backend.
///
/// # Errors
/// Why the broker cannot use it.
pub fn parse_url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|_| "it is no URL".to_owned())?;
    if !matches!(url.scheme_str(), Some("http" | "https" | "ws" | "wss")) {
        return Err("it must begin with http://, https://, ws:// or wss://".to_owned());
    }
    match url.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Err("it has a user or a password: send them in a header, headers = { Authorization = \"…\" }".to_owned())
        }
        Some(authority) if !authority.host().is_empty() => Ok(url),
        _ => Err("it names no host".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host_and_no_user() {
        for good in [
            "http://localhost:8080/mcp",
            "https://example.com",
            "ws://[::1]:1/ws",
            "wss://a/b?c=d",
        ] {
            assert!(parse_url(good).is_ok(), "{good}");
        }
        for (wrong, reason) in [
            ("ftp://a", "must begin with"),
            ("/mcp", "must begin with"),
            ("localhost:80", "must begin with"),
            ("http://me:pw@a/", "a user or a password"),
            ("http:///mcp", "it is no URL"),
        ] {
            let found = parse_url(wrong).unwrap_err();
            assert!(found.contains(reason), "{wrong}: {found}");
        }
    }
}
