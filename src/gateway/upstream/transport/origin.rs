//! The origin of a request, and the form in which the request is written.
//!
//! The module decides which URIs are accepted, and how the target, host and length of a request are stated in its head.
//! It must not know connections.

use http::header::{CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Uri, Version};

use super::body::RequestBody;
use super::error::{SendError, SendErrorKind};

/// Scheme, host and port: connections to the same origin are interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UpstreamOrigin {
    is_tls: bool,
    authority: Authority,
}

// === impl UpstreamOrigin ===

impl UpstreamOrigin {
    /// Returns the origin of a request, and changes the request to its form on the wire.
    pub(super) fn take_from(request: &mut Request<RequestBody>) -> Result<Self, SendError> {
        let origin = Self::from_uri(request.uri())?;
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path);
        *request.version_mut() = Version::HTTP_11;
        let host =
            HeaderValue::from_str(origin.authority.as_str()).map_err(|error| invalid_uri_error(error.to_string()))?;
        let headers = request.headers_mut();
        headers.entry(HOST).or_insert(host);
        // The writer states the length of the body; a second statement would allow request smuggling.
        headers.remove(CONTENT_LENGTH);
        headers.remove(TRANSFER_ENCODING);
        Ok(origin)
    }

    fn from_uri(uri: &Uri) -> Result<Self, SendError> {
        let is_tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(invalid_uri_error("the scheme is neither http nor https")),
        };
        let authority = uri.authority().cloned().ok_or_else(|| invalid_uri_error("there is no host"))?;
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(invalid_uri_error("the host is empty, or the URI contains user information"));
        }
        Ok(Self { is_tls, authority })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Returns the host; an IPv6 address has no brackets.
    pub(super) fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    pub(super) fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_tls { 443 } else { 80 })
    }
}

fn invalid_uri_error(reason: impl Into<super::error::ErrorSource>) -> SendError {
    SendError::before_first_byte(SendErrorKind::Resolve, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_origin(uri: &str) -> Result<(UpstreamOrigin, Request<RequestBody>), SendError> {
        let mut request =
            Request::post(uri).header(CONTENT_LENGTH, "7").body(RequestBody::from(bytes::Bytes::new())).unwrap();
        UpstreamOrigin::take_from(&mut request).map(|origin| (origin, request))
    }

    #[test]
    fn a_request_is_written_in_the_form_of_its_origin() {
        let (origin, request) = take_origin("https://images.example/v1/images?x=1").unwrap();
        assert_eq!((origin.is_tls(), origin.host(), origin.port()), (true, "images.example", 443));
        assert_eq!(request.uri(), "/v1/images?x=1");
        assert_eq!(request.headers()[HOST], "images.example");
        assert!(!request.headers().contains_key(CONTENT_LENGTH));
        let (origin, request) = take_origin("http://[::1]:8080").unwrap();
        assert_eq!((origin.is_tls(), origin.host(), origin.port()), (false, "::1", 8080));
        assert_eq!((request.uri().path(), &request.headers()[HOST]), ("/", &HeaderValue::from_static("[::1]:8080")));
    }

    #[test]
    fn an_error_for_an_invalid_uri_does_not_repeat_it() {
        for uri in ["/v1/images", "ftp://secret.example/", "http://user@secret.example/"] {
            let error = take_origin(uri).unwrap_err();
            assert_eq!(error.kind, SendErrorKind::Resolve);
            assert!(!error.to_string().contains("secret"));
        }
    }
}
