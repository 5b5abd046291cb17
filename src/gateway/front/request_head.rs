//! Decides whether the head of a request has one meaning only, before anything reads it.
//!
//! A proxy in front of the gateway decides by the head too: which host is meant, where the body ends, and whether a path
//! may be reached. So a head that two readers may understand differently is refused: HTTP/1.1 has exactly one `Host`, a
//! body is framed by its length or by `chunked` alone, and a path has one spelling. The rules are those of RFC 9112
//! (sections 3.2 and 6.1) and RFC 3986 (section 6.2.2). The module knows no routes. A request with both a length and a
//! transfer coding does not get here with both: hyper reads the coding, drops the length, and closes the connection
//! after the answer, as RFC 9112 (section 6.1) demands.

use http::header::{HOST, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, Version};
use percent_encoding::percent_decode_str;

use crate::error::{Error, Rejection, RejectionReason};

/// The reason why a head is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadFault {
    /// There is no `Host`, more than one, or one that names no host.
    Host,
    /// The body has a transfer coding other than `chunked`.
    TransferCoding,
}

// === impl HeadFault ===

impl HeadFault {
    /// Returns the status of the answer, and its error.
    pub(super) fn error(self) -> (StatusCode, Error) {
        let (status, header, message) = match self {
            Self::Host => {
                (StatusCode::BAD_REQUEST, HOST, "The request must have exactly one 'Host' header, which names a host.")
            }
            Self::TransferCoding => {
                (StatusCode::NOT_IMPLEMENTED, TRANSFER_ENCODING, "The only supported transfer coding is 'chunked'.")
            }
        };
        (status, Rejection::new(header.as_str(), RejectionReason::InvalidValue, message).into())
    }
}

/// Checks a head. A target in absolute form is replaced by its path, and its authority becomes the `Host`, so that all
/// readers find both in one place (RFC 9112, section 3.2.2).
pub(super) fn check_head<B>(request: &mut Request<B>) -> Result<(), HeadFault> {
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    if codings.next().is_some_and(|coding| !is_chunked(coding)) || codings.next().is_some() {
        return Err(HeadFault::TransferCoding);
    }
    check_host(request.version(), request.headers())?;
    let Some(authority) = request.uri().authority().cloned() else { return Ok(()) };
    let host = HeaderValue::try_from(authority.as_str()).ok().filter(|host| is_host(host.as_bytes()));
    request.headers_mut().insert(HOST, host.ok_or(HeadFault::Host)?);
    if let Some(target) = std::mem::take(request.uri_mut()).into_parts().path_and_query {
        *request.uri_mut() = Uri::from(target);
    }
    Ok(())
}

/// Checks that there is one `Host`, and that it is a host with or without a port. HTTP/1.0 does not have the header.
fn check_host(version: Version, headers: &HeaderMap) -> Result<(), HeadFault> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) if version < Version::HTTP_11 => Ok(()),
        (Some(host), None) if is_host(host.as_bytes()) => Ok(()),
        _ => Err(HeadFault::Host),
    }
}

fn is_host(text: &[u8]) -> bool {
    Authority::try_from(text).is_ok_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'))
}

/// True if a path has the one spelling that names its segments: no empty segment, no dot segment, and no escape of a
/// character that needs none. A slash may be escaped in a segment, such as the name of a model; an escaped slash beside
/// dots would be a dot segment for a reader that decodes first.
pub(super) fn is_canonical_path(path: &str) -> bool {
    let Some(segments) = path.strip_prefix('/') else { return false };
    segments.is_empty() || segments.split('/').all(is_canonical_segment)
}

fn is_canonical_segment(segment: &str) -> bool {
    let has_plain_escapes = segment.split('%').skip(1).all(|escape| {
        let digits = escape.get(..2).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        byte.is_some_and(|byte| !is_unreserved(byte) && byte != 0)
    });
    let decoded: Vec<u8> = percent_decode_str(segment).collect();
    let mut parts = decoded.split(|byte| matches!(byte, b'/' | b'\\'));
    !segment.is_empty() && has_plain_escapes && !parts.any(|part| matches!(part, b"." | b".."))
}

/// True for the characters that mean the same with and without an escape (RFC 3986, section 2.3).
const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(version: Version, target: &str, headers: &[(&str, &str)]) -> Result<Request<()>, HeadFault> {
        let mut request = Request::builder().version(version).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).expect("a request");
        check_head(&mut request).map(|()| request)
    }

    fn fault(headers: &[(&str, &str)]) -> Option<HeadFault> {
        checked(Version::HTTP_11, "/healthz", headers).err()
    }

    #[test]
    fn a_request_has_exactly_one_host() {
        for host in ["images.example", "images.example:8080", "127.0.0.1:80", "[::1]:8080", "a_b.example"] {
            assert_eq!(fault(&[("host", host)]), None, "{host}");
        }
        for hosts in [
            &[][..],
            &[("host", "a"), ("host", "b")],
            &[("host", "a"), ("host", "a")],
            &[("host", "")],
            &[("host", "a, b")],
            &[("host", "a b")],
            &[("host", "user@a")],
            &[("host", "a/b")],
            &[("host", ":80")],
        ] {
            assert_eq!(fault(hosts), Some(HeadFault::Host), "{hosts:?}");
        }
        assert!(checked(Version::HTTP_10, "/healthz", &[]).is_ok());
        let two = [("host", "a"), ("host", "b")];
        assert_eq!(checked(Version::HTTP_10, "/healthz", &two).err(), Some(HeadFault::Host));
    }

    #[test]
    fn the_only_transfer_coding_is_chunked() {
        let with = |codings: &[&'static str]| {
            let codings = codings.iter().map(|coding| ("transfer-encoding", *coding));
            fault(&[("host", "a")].into_iter().chain(codings).collect::<Vec<_>>())
        };
        for coding in ["chunked", "Chunked"] {
            assert_eq!(with(&[coding]), None, "{coding}");
        }
        for codings in [&["gzip, chunked"][..], &["gzip"], &["gzip", "chunked"], &["chunked", "chunked"], &[""]] {
            assert_eq!(with(codings), Some(HeadFault::TransferCoding), "{codings:?}");
        }
    }

    #[test]
    fn the_authority_of_an_absolute_target_is_the_host() {
        let request = checked(Version::HTTP_11, "http://b.example:81/v1/models?a=1", &[("host", "a.example")]);
        let request = request.expect("a valid head");
        assert_eq!(
            (request.uri().to_string().as_str(), request.headers()["host"].as_bytes()),
            ("/v1/models?a=1", &b"b.example:81"[..])
        );
        let request = checked(Version::HTTP_11, "/v1/models?a=1", &[("host", "a.example")]).expect("a valid head");
        assert_eq!(
            (request.uri().to_string().as_str(), request.headers()["host"].as_bytes()),
            ("/v1/models?a=1", &b"a.example"[..])
        );
    }

    #[test]
    fn a_path_has_one_spelling() {
        for path in
            ["/", "/v1/models", "/v1/models/a%2Fb", "/v1/models/a%3Ab", "/v1/models/a%3ab", "/keys/%D0%BA", "/a..b"]
        {
            assert!(is_canonical_path(path), "{path}");
        }
        for path in [
            "",
            "*",
            "//",
            "/v1/models/",
            "//admin/v1/keys",
            "/admin//v1/keys",
            "/%61dmin/v1/keys",
            "/v1/%6Dodels",
            "/v1/./models",
            "/x/../admin/v1/keys",
            "/x/%2e%2e/admin",
            "/x/%2E",
            "/x/..%2Fadmin",
            "/x/a%2f..%2fadmin",
            "/x/a%5C..",
            "/keys/a%00b",
            "/keys/%zz",
            "/keys/%4",
            "/keys/%+1",
            "/keys/%",
        ] {
            assert!(!is_canonical_path(path), "{path}");
        }
    }
}
