//! `/docs`: a page that shows `/openapi.json`. Its content security policy allows nothing from other hosts.

use std::sync::LazyLock;

use actix_web::{
    HttpResponse,
    http::header::{CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("docs/page.css");
const SCRIPT: &str = include_str!("docs/page.js");

struct Page {
    text: String,
    policy: String,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| Page {
    text: format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>mcp-broker</title>\n\
         <style>{STYLE}</style>\n\
         <main><noscript>This page needs JavaScript, <a href=\"openapi.json\">the document</a> does not.</noscript>\
         </main>\n\
         <script>{SCRIPT}</script>\n</html>\n"
    ),
    policy: format!(
        "default-src 'none'; style-src {}; script-src {}; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
        hash(STYLE),
        hash(SCRIPT)
    ),
});

/// The source expression of an inline text in the policy (CSP level 3, section 2.3.1).
pub fn hash(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)))
}

/// This API as a web page.
#[utoipa::path(get, path = "/docs", operation_id = "get_docs", tag = "broker", security(()), responses(
    (status = 200, description = "The page", body = String, content_type = "text/html",
        headers(("Content-Security-Policy" = String, description = "Allows nothing from other hosts"))),
))]
pub async fn page() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((CONTENT_SECURITY_POLICY, PAGE.policy.as_str()))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((REFERRER_POLICY, "no-referrer"))
        .content_type("text/html; charset=utf-8")
        .body(PAGE.text.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text that ended its element early would be markup, with another hash.
    #[test]
    fn style_and_script_stay_in_their_elements() {
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("</") && !text.contains("<!--") && !text.contains('\r'));
        }
        assert!(!SCRIPT.contains("innerHTML") && !STYLE.contains("url("));
    }
}
