//! `/dashboard`, the operators' page, and `/desk`, the page on which people answer agents. Pages and assets are embedded in
//! the binary and public; what the pages show comes from `/api/v1`. A debug build reads the assets from `assets/dashboard`,
//! so that an edit needs a reload and no build.

use actix_web::{
    HttpResponse,
    http::{
        Method, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CROSS_ORIGIN_OPENER_POLICY, CROSS_ORIGIN_RESOURCE_POLICY, ETAG,
            EntityTag, IfNoneMatch, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        },
    },
    web,
};
use actors::model::QuestionId;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::{paths, resource::Resource};
use api::problem::Problem;

#[derive(RustEmbed)]
#[folder = "assets/dashboard"]
struct Assets;

/// The route of the assets. `/openapi.json` describes the pages and leaves their assets out.
pub const ASSETS_ROUTE: &str = "/dashboard/{file:.*}";

/// Leads to the page. `/openapi.json` leaves it out as well.
pub const DESK_SLASH_ROUTE: &str = "/desk/";

const PAGE: &str = "index.html";
const DESK: &str = "desk.html";

/// Scripts, styles and requests of this origin only, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The same for the desk, which also shows the images of questions and answers: they come in JSON.
const DESK_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                           img-src 'self' blob:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The resources of this file.
pub fn resources() -> Vec<Resource> {
    vec![
        Resource::at("/dashboard").on(Method::GET, web::to(page)),
        Resource::at(ASSETS_ROUTE).on(Method::GET, web::to(asset)),
        Resource::at(paths::DESK).on(Method::GET, web::to(desk)),
        Resource::at(DESK_SLASH_ROUTE).on(Method::GET, web::to(desk_with_slash)),
        Resource::at("/desk/q/{question_id}").on(Method::GET, web::to(question)),
    ]
}

/// The operators' page.
#[utoipa::path(get, path = "/dashboard", operation_id = "get_dashboard", tag = "broker", security(()), responses(
    (status = 200, description = "The page", body = String, content_type = "text/html",
        headers(
            ("Content-Security-Policy" = String, description = "Allows nothing from other hosts"),
            ("ETag" = String, description = "Changes with the page"),
        )),
    (status = 304, description = "The client has this version of the page"),
))]
pub async fn page(known: web::Header<IfNoneMatch>) -> HttpResponse {
    answer(PAGE, POLICY, &known.into_inner())
}

/// The page on which people answer the questions of agents.
#[utoipa::path(get, path = "/desk", operation_id = "get_desk_page", tag = "broker", security(()), responses(
    (status = 200, description = "The page", body = String, content_type = "text/html",
        headers(
            ("Content-Security-Policy" = String, description = "Allows nothing from other hosts"),
            ("ETag" = String, description = "Changes with the page"),
        )),
    (status = 304, description = "The client has this version of the page"),
))]
pub async fn desk(known: web::Header<IfNoneMatch>) -> HttpResponse {
    answer(DESK, DESK_POLICY, &known.into_inner())
}

/// The page with one question open: the address in notifications. The page keeps its place in the fragment of the address.
#[utoipa::path(get, path = "/desk/q/{question_id}", operation_id = "get_desk_question", tag = "broker", security(()),
    params(("question_id" = String, Path, description = "The id of the question")), responses(
    (status = 303, description = "The place of the question in the page",
        headers(("Location" = String, description = "Relative, with a fragment"))),
))]
pub async fn question(id: web::Path<String>) -> HttpResponse {
    // The page is the same for every id. A text that is no id leads to the list.
    let place = QuestionId::parse(&id).map_or_else(String::new, |id| format!("#/q/{id}"));
    redirect(StatusCode::SEE_OTHER, &format!("../../desk{place}"))
}

/// What the page names is relative to its address without the slash.
async fn desk_with_slash() -> HttpResponse {
    redirect(StatusCode::PERMANENT_REDIRECT, "../desk")
}

/// A redirection. The address is relative, so that a prefix that a proxy took away stays.
fn redirect(status: StatusCode, address: &str) -> HttpResponse {
    HttpResponse::build(status).insert_header((LOCATION, address)).finish()
}

async fn asset(path: web::Path<String>, known: web::Header<IfNoneMatch>) -> HttpResponse {
    if path.is_empty() {
        return redirect(StatusCode::PERMANENT_REDIRECT, "../dashboard");
    }
    answer(&path, POLICY, &known.into_inner())
}

fn answer(name: &str, policy: &'static str, known: &IfNoneMatch) -> HttpResponse {
    let found = media_type(name).zip(Assets::get(name));
    let Some((media_type, file)) = found else {
        let detail = "the dashboard has no such file; the page is at /dashboard";
        return Problem::new(StatusCode::NOT_FOUND, "invalid_argument", detail).into_response();
    };
    let tag = entity_tag(&file);
    let is_known = match known {
        IfNoneMatch::Any => true,
        IfNoneMatch::Items(tags) => tags.iter().any(|one| one.weak_eq(&tag)),
    };
    let mut response = if is_known {
        HttpResponse::NotModified()
    } else {
        HttpResponse::Ok()
    };
    response
        .insert_header((ETAG, tag.to_string()))
        // A new version of the broker must not run with scripts of the old one.
        .insert_header((CACHE_CONTROL, "no-cache"))
        .insert_header((CONTENT_SECURITY_POLICY, policy))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((REFERRER_POLICY, "no-referrer"))
        .insert_header((CROSS_ORIGIN_OPENER_POLICY, "same-origin"))
        .insert_header((CROSS_ORIGIN_RESOURCE_POLICY, "same-origin"));
    if is_known {
        return response.finish();
    }
    response.content_type(media_type).body(file.data.into_owned())
}

/// A strong tag: the hash of the content.
fn entity_tag(file: &EmbeddedFile) -> EntityTag {
    let hash = file.metadata.sha256_hash();
    EntityTag::new_strong(URL_SAFE_NO_PAD.encode(&hash[..16]))
}

/// The media type of an asset; `None` for a name that is not served.
fn media_type(name: &str) -> Option<&'static str> {
    let (_, extension) = name.rsplit_once('.')?;
    Some(match extension {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(name: &str, known: IfNoneMatch) -> StatusCode {
        answer(name, POLICY, &known).status()
    }

    #[test]
    fn every_asset_is_served_under_its_media_type() {
        let names: Vec<_> = Assets::iter().collect();
        assert!(names.iter().any(|name| name == PAGE) && names.len() > 10, "{names:?}");
        for name in names {
            assert_eq!(
                status_of(&name, IfNoneMatch::Items(Vec::new())),
                StatusCode::OK,
                "{name}"
            );
        }
    }

    #[test]
    fn a_client_with_the_current_version_gets_no_body() {
        let file = Assets::get(PAGE).unwrap();
        let (current, other) = (entity_tag(&file), EntityTag::new_strong("other".to_owned()));
        assert_eq!(
            status_of(PAGE, IfNoneMatch::Items(vec![current])),
            StatusCode::NOT_MODIFIED
        );
        assert_eq!(status_of(PAGE, IfNoneMatch::Items(vec![other])), StatusCode::OK);
    }

    #[test]
    fn nothing_but_assets_is_served() {
        for name in [
            "../dashboard/index.html",
            "../../Cargo.toml",
            "/etc/passwd",
            "lib",
            "index.html/",
            "none.js",
        ] {
            let status = status_of(name, IfNoneMatch::Items(Vec::new()));
            let is_page = name.ends_with("index.html") && status == StatusCode::OK;
            assert!(status == StatusCode::NOT_FOUND || is_page, "{name}: {status}");
        }
    }

    /// The policy refuses inline scripts and styles, and addresses that are not relative break behind a prefix.
    #[test]
    fn the_pages_have_nothing_inline_and_only_relative_addresses() {
        for name in [PAGE, DESK] {
            let page = Assets::get(name).unwrap();
            let page = std::str::from_utf8(&page.data).unwrap();
            for forbidden in ["<style", " style=", " on", "=\"/", "http:", "https:"] {
                let found = page.lines().find(|line| line.contains(forbidden) && line.contains('<'));
                assert_eq!(found, None, "{name}: {forbidden}");
            }
            assert!(!page.contains("<script>"), "{name}");
        }
    }

    #[actix_web::test]
    async fn the_address_of_a_question_leads_to_its_place_in_the_page() {
        let id = QuestionId::generate().to_string();
        for (given, expected) in [
            (id.as_str(), format!("../../desk#/q/{id}")),
            ("%22%0d%0ax", "../../desk".to_owned()),
            ("", "../../desk".to_owned()),
        ] {
            let response = question(web::Path::from(given.to_owned())).await;
            assert_eq!(response.status(), StatusCode::SEE_OTHER);
            assert_eq!(response.headers().get(LOCATION).unwrap(), expected.as_str());
        }
    }
}
