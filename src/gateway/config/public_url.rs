//! The address under which people and callers reach the gateway.

use super::address;

/// An origin: scheme, host and port, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublicUrl {
    text: String,
    scheme_end: usize,
}

/// The text between the scheme and the host.
const SEPARATOR: &str = "://";

// === impl PublicUrl ===

impl PublicUrl {
    /// Parses the address. Plain http is allowed: a private network may have no TLS, and the gateway sends no
    /// credentials to this address.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let uri = address::base_url(text, true)?;
        if uri.path() != "/" {
            return Err("must not have a path");
        }
        let (scheme, host) = (uri.scheme_str().unwrap_or_default(), uri.host().unwrap_or_default());
        let default_port = if scheme == "https" { 443 } else { 80 };
        let port = uri.port_u16().filter(|port| *port != default_port);
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        Ok(Self { text: format!("{scheme}{SEPARATOR}{host}{port}"), scheme_end: scheme.len() })
    }

    /// The address without a `/` at its end, which is also the origin of its pages.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Host and port as the `Host` header of a browser spells them: a default port is left out.
    pub(crate) fn host(&self) -> &str {
        &self.text[self.scheme_end + SEPARATOR.len()..]
    }

    /// True if connections are encrypted.
    pub(crate) fn is_https(&self) -> bool {
        self.text.starts_with("https:")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str, host: &str, https: bool) {
        let url = PublicUrl::parse(text).unwrap();
        assert_eq!((url.as_str(), url.host(), url.is_https()), (expected, host, https), "{text}");
    }

    #[test]
    fn a_public_url_consists_of_scheme_host_and_port() {
        check("https://Images.Example.com/", "https://images.example.com", "images.example.com", true);
        check("https://images.example.com:443", "https://images.example.com", "images.example.com", true);
        check("https://images.example.com:80", "https://images.example.com:80", "images.example.com:80", true);
        check("http://10.0.0.7:80", "http://10.0.0.7", "10.0.0.7", false);
        check("http://[::1]:8080", "http://[::1]:8080", "[::1]:8080", false);
    }

    #[test]
    fn a_url_that_is_no_origin_is_refused() {
        for bad in
            ["https://a.example/images", "https://u:p@a.example", "https://a.example?x", "a.example", "ftp://a", ""]
        {
            assert!(PublicUrl::parse(bad).is_err(), "{bad}");
        }
    }
}
