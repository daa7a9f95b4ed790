//! A path with its methods, as a table from which routes are registered.

use std::borrow::Cow;

use actix_web::{
    FromRequest, Handler, HttpResponse, Responder, Route, guard,
    http::{
        Method, StatusCode,
        header::{ALLOW, HeaderValue},
    },
    middleware::from_fn,
    web,
};

use super::{backpressure, extract::NoQuery};

use api::problem::Problem;

/// The methods at one path. HEAD is GET without a body, OPTIONS lists the methods, and any other method is refused (RFC
/// 9110, sections 9.3 and 15.5.6).
pub struct Resource {
    pub path: Cow<'static, str>,
    methods: Vec<(Method, Route)>,
}

impl Resource {
    /// A resource at a path; segments in braces match anything but `/`.
    pub fn at(path: impl Into<Cow<'static, str>>) -> Self {
        Self {
            path: path.into(),
            methods: Vec::new(),
        }
    }

    /// Adds a method.
    #[must_use]
    pub fn on(mut self, method: Method, route: Route) -> Self {
        self.methods.push((method, route));
        self
    }

    /// Adds GET by a handler that reads the query.
    #[must_use]
    pub fn get_with_query<F: Handler<A, Output: Responder + 'static>, A: FromRequest + 'static>(
        self,
        handler: F,
    ) -> Self {
        self.on(Method::GET, web::to(handler))
    }

    /// Adds DELETE by a handler that reads the query.
    #[must_use]
    pub fn delete_with_query<F: Handler<A, Output: Responder + 'static>, A: FromRequest + 'static>(
        self,
        handler: F,
    ) -> Self {
        self.on(Method::DELETE, web::to(handler))
    }

    /// Adds GET, which takes no query.
    #[must_use]
    pub fn get<F: Handler<A, Output: Responder + 'static>, A: FromRequest + 'static>(self, handler: F) -> Self {
        self.on(Method::GET, without_query(handler))
    }

    /// Adds POST, which takes no query.
    #[must_use]
    pub fn post<F: Handler<A, Output: Responder + 'static>, A: FromRequest + 'static>(self, handler: F) -> Self {
        self.on(Method::POST, without_query(handler))
    }

    /// Adds PUT, which takes no query.
    #[must_use]
    pub fn put<F: Handler<A, Output: Responder + 'static>, A: FromRequest + 'static>(self, handler: F) -> Self {
        self.on(Method::PUT, without_query(handler))
    }

    /// Adds PATCH, which takes no query.
    #[must_use]
    pub fn patch<F: Handler<A, Output: Responder + 'static>, A: FromRequest + 'static>(self, handler: F) -> Self {
        self.on(Method::PATCH, without_query(handler))
    }

    /// Adds DELETE, which takes no query.
    #[must_use]
    pub fn delete<F: Handler<A, Output: Responder + 'static>, A: FromRequest + 'static>(self, handler: F) -> Self {
        self.on(Method::DELETE, without_query(handler))
    }

    /// The methods of the resource.
    #[cfg(test)]
    pub fn methods(&self) -> impl Iterator<Item = &Method> {
        self.methods.iter().map(|(method, _)| method)
    }

    /// Registers the routes, and the answers to HEAD, OPTIONS and other methods.
    pub fn register(self, config: &mut web::ServiceConfig) {
        let allowed = self.allowed();
        let refused = allowed.clone();
        let mut resource = web::resource(&*self.path);
        for (method, route) in self.methods {
            resource = resource.route(route.guard(guard::fn_guard(move |asked| {
                let asked = &asked.head().method;
                *asked == method || (method == Method::GET && *asked == Method::HEAD)
            })));
        }
        let options = web::method(Method::OPTIONS).to(move || std::future::ready(options(&allowed)));
        let others = web::to(move || std::future::ready(not_allowed(&refused)));
        let resource = resource.route(options).default_service(others);
        config.service(resource.wrap(from_fn(backpressure::limit_answers)));
    }

    fn allowed(&self) -> HeaderValue {
        let mut names = Vec::new();
        for (method, _) in &self.methods {
            names.push(method.as_str());
            if method == Method::GET {
                names.push("HEAD");
            }
        }
        names.push("OPTIONS");
        HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static("OPTIONS"))
    }
}

fn without_query<F: Handler<A, Output: Responder + 'static>, A: FromRequest + 'static>(handler: F) -> Route {
    web::to(move |_: NoQuery, arguments: A| handler.call(arguments))
}

fn options(allowed: &HeaderValue) -> HttpResponse {
    HttpResponse::NoContent()
        .insert_header((ALLOW, allowed.clone()))
        .finish()
}

fn not_allowed(allowed: &HeaderValue) -> HttpResponse {
    let detail = "this path does not support the method; see /openapi.json";
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_argument", detail);
    let mut response = problem.into_response();
    response.headers_mut().insert(ALLOW, allowed.clone());
    response
}
