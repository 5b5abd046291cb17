//! The origins of the pages that may call the API from a browser.

use std::sync::Arc;

use super::PublicUrl;

/// Exact origins, such as `https://studio.example.com`, as browsers spell them; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CorsOrigins(Arc<[String]>);

// === impl CorsOrigins ===

impl CorsOrigins {
    pub(super) fn new(origins: Vec<String>) -> Self {
        Self(origins.into())
    }

    /// True if no page of another origin may call the API.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if pages of this origin, as in the header `Origin`, may call the API.
    pub(crate) fn contains(&self, origin: &[u8]) -> bool {
        self.0.iter().any(|allowed| allowed.as_bytes() == origin)
    }

    /// Returns these origins, which must be valid.
    #[cfg(test)]
    pub(crate) fn from_origins(texts: &[&str]) -> Self {
        Self::new(texts.iter().map(|text| parse_origin(text).expect("the test gives a valid origin")).collect())
    }
}

/// Parses an origin, and returns it as browsers spell it: in lower case, without a default port.
///
/// Programs in an embedded browser have origins with schemes of their own, such as `tauri://localhost`; they are taken
/// as they are.
pub(super) fn parse_origin(text: &str) -> Result<String, &'static str> {
    if text == "*" {
        return Err("must be an exact origin; `*` would let every page on the web use a key that it has got");
    }
    match text.split_once("://") {
        None => Err("must be an origin, such as \"https://studio.example.com\""),
        Some(("http" | "https", _)) => match PublicUrl::parse(text) {
            Ok(url) if url.as_str().eq_ignore_ascii_case(text) || !text.ends_with('/') => Ok(url.as_str().to_owned()),
            Ok(_) => Err("must end after the host or port, without a `/`"),
            Err(fault) => Err(fault),
        },
        Some((scheme, host)) if is_scheme(scheme) && is_opaque_host(host) => Ok(text.to_owned()),
        Some(_) => Err("must be scheme, host and port in lower case, such as \"tauri://localhost\""),
    }
}

fn is_scheme(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
    text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase()) && text.bytes().all(is_part)
}

fn is_opaque_host(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._:".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_compared_as_browsers_spell_it() {
        let origins = CorsOrigins::from_origins(&[
            "https://Studio.Example.com:443",
            "http://localhost:5173",
            "tauri://localhost",
            "chrome-extension://abcdefghijklmnop",
        ]);
        for allowed in [
            "https://studio.example.com",
            "http://localhost:5173",
            "tauri://localhost",
            "chrome-extension://abcdefghijklmnop",
        ] {
            assert!(origins.contains(allowed.as_bytes()), "{allowed}");
        }
        for other in [
            "http://studio.example.com",
            "https://studio.example.com.evil.example",
            "https://studio.example.com:444",
            "https://a.studio.example.com",
            "http://localhost",
            "null",
            "*",
            "",
        ] {
            assert!(!origins.contains(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_text_that_is_no_exact_origin_is_refused() {
        for bad in [
            "*",
            "null",
            "",
            "https://*.example.com",
            "https://a.example/",
            "https://a.example/page",
            "https://u:p@a.example",
            "studio.example.com",
            "Tauri://localhost",
            "tauri://",
            "tauri://localhost/x",
        ] {
            assert!(parse_origin(bad).is_err(), "{bad}");
        }
    }
}
