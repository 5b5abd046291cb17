//! Lets pages of declared origins call the API from a browser (CORS, as the Fetch standard defines it).
//!
//! A browser shows a page the answer to a request to another origin only if the answer names the origin of the page.
//! The gateway names an origin only if `cors_origins` has exactly this one. Cookies are never allowed: the only
//! credential is the key that the page itself sends. Without the setting, nothing here changes an answer, and the admin
//! API and the pages never take part.

use bytes::Bytes;
use dropshot::Body;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};

use super::request::AdmittingServer;
use super::request_head::is_canonical_path;
use super::response::ResponseCounter;
use crate::gateway::config::CorsOrigins;

/// The path prefixes of the operations that a key may call.
const API_PREFIXES: [&str; 3] = ["/v1/", "/openai/", "/mcp"];
/// The methods of these operations.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, DELETE");
/// Every header. The Fetch standard does not count `Authorization` to the `*`.
const REQUEST_HEADERS: HeaderValue = HeaderValue::from_static("authorization, *");
const ANSWER_HEADERS: HeaderValue = HeaderValue::from_static("*");
/// The time in seconds for which a browser may remember the answer to a preflight: the most that Chromium keeps.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
const VARY_ORIGIN: HeaderValue = HeaderValue::from_static("origin");

/// A server that knows from which origins pages may call its API.
pub(crate) trait CorsSettings: ResponseCounter + AdmittingServer {
    /// The origins in force.
    fn cors_origins(&self) -> CorsOrigins;
}

/// The part that CORS has in the answer to one request.
pub(super) struct CorsAnswer {
    /// The origin of the page, if it is allowed.
    allowed_origin: Option<HeaderValue>,
    is_preflight: bool,
}

// === impl CorsAnswer ===

impl CorsAnswer {
    /// Returns `None` if the request is none of the API, or if no origin is allowed.
    pub(super) fn new(origins: &CorsOrigins, request: &Request<Body>) -> Option<Self> {
        let path = request.uri().path();
        let is_api = is_canonical_path(path) && API_PREFIXES.iter().any(|prefix| path.starts_with(prefix));
        if origins.is_empty() || !is_api {
            return None;
        }
        let allowed_origin =
            request.headers().get(ORIGIN).filter(|origin| origins.contains(origin.as_bytes())).cloned();
        let is_preflight =
            request.method() == Method::OPTIONS && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        Some(Self { allowed_origin, is_preflight })
    }

    /// Returns the answer to a preflight of a page that may call the API. Such a request has no key, and no handler.
    pub(super) fn preflight_response(&self) -> Option<Response<Body>> {
        if !self.is_preflight || self.allowed_origin.is_none() {
            return None;
        }
        let mut response = Response::new(Bytes::new().into());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        Some(response)
    }

    /// Adds the headers of the answer. A cache must not give the answer for one origin to a page of another.
    pub(super) fn add_headers(self, headers: &mut HeaderMap) {
        headers.append(VARY, VARY_ORIGIN);
        let Some(origin) = self.allowed_origin else { return };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if !self.is_preflight {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, ANSWER_HEADERS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(method: &str, path: &str, headers: &[(&str, &str)]) -> Option<(Option<u16>, HeaderMap)> {
        let origins = CorsOrigins::from_origins(&["https://studio.example.com"]);
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let cors = CorsAnswer::new(&origins, &request.body(Body::empty()).expect("a request"))?;
        let response = cors.preflight_response();
        let status = response.as_ref().map(|response| response.status().as_u16());
        let mut answer_headers = response.map(|response| response.headers().clone()).unwrap_or_default();
        cors.add_headers(&mut answer_headers);
        Some((status, answer_headers))
    }

    #[test]
    fn only_a_preflight_of_an_allowed_origin_is_answered_here() {
        let (allowed, method) = (("origin", "https://studio.example.com"), ("access-control-request-method", "POST"));
        let (status, headers) = answer("OPTIONS", "/v1/images/edits", &[allowed, method]).expect("an API path");
        assert_eq!(status, Some(204));
        assert_eq!(headers["access-control-allow-headers"], "authorization, *");
        for (verb, given) in [
            ("OPTIONS", &[allowed][..]),
            ("OPTIONS", &[("origin", "https://other.example"), method]),
            ("OPTIONS", &[method]),
            ("POST", &[allowed, method]),
        ] {
            let (status, _) = answer(verb, "/v1/images/edits", given).expect("an API path");
            assert_eq!(status, None, "{verb} {given:?}");
        }
    }

    #[test]
    fn an_answer_names_an_allowed_origin_and_no_other() {
        let (_, headers) =
            answer("POST", "/v1/models", &[("origin", "https://studio.example.com")]).expect("an API path");
        assert_eq!(headers["access-control-allow-origin"], "https://studio.example.com");
        assert_eq!(
            (&headers["access-control-expose-headers"], &headers["vary"]),
            (&"*".parse().unwrap(), &"origin".parse().unwrap())
        );
        let (_, headers) = answer("POST", "/v1/models", &[("origin", "https://other.example")]).expect("an API path");
        assert_eq!((headers.len(), &headers["vary"]), (1, &"origin".parse().unwrap()));
        for path in ["/admin/v1/keys", "/", "/v10/x", "/keys", "/v1//models", "/v1/%6Dodels"] {
            assert!(answer("POST", path, &[("origin", "https://studio.example.com")]).is_none(), "{path}");
        }
    }
}
