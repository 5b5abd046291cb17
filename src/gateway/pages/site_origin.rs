//! The hosts that a browser may name, and the gateway's own address for each.
//!
//! If a browser can be made to look up the gateway under a foreign name (DNS rebinding), the owner of that name could
//! read its pages. Therefore only known names are accepted: that of `public_url` if it is set, else only `localhost`
//! and literal addresses, which cannot be pointed elsewhere. The host that a proxy reports is ignored.

use std::net::Ipv6Addr;

use http::uri::Authority;

/// The address of the gateway in the settings.
#[derive(Debug, Clone)]
pub(super) struct PublicAddress {
    /// Scheme, host and port.
    pub(super) origin: String,
    /// Host and port; a default port is left out.
    pub(super) host: String,
    pub(super) is_https: bool,
}

/// The address under which a browser has reached the gateway, such as `http://127.0.0.1:8080`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SiteOrigin {
    origin: String,
    is_secure: bool,
}

// === impl SiteOrigin ===

impl SiteOrigin {
    /// The address for the host of a request; `None` if the host is not one of the gateway.
    pub(super) fn from_host(host: Option<&str>, public: Option<&PublicAddress>) -> Option<Self> {
        let requested = HostAndPort::parse(host?)?;
        match public {
            None => requested
                .is_local()
                .then(|| Self { origin: format!("http://{}", requested.to_authority(80)), is_secure: false }),
            Some(public) => {
                let default_port = if public.is_https { 443 } else { 80 };
                let is_ours = requested.to_authority(default_port) == public.host;
                is_ours.then(|| Self { origin: public.origin.clone(), is_secure: public.is_https })
            }
        }
    }

    /// Scheme, host and port, as a browser sends them in `Origin`.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// True if cookies may require an encrypted connection.
    pub(super) const fn is_secure(&self) -> bool {
        self.is_secure
    }
}

/// A host with its port.
struct HostAndPort {
    host: String,
    port: Option<u16>,
}

// === impl HostAndPort ===

impl HostAndPort {
    fn parse(text: &str) -> Option<Self> {
        let authority: Authority = text.parse().ok()?;
        // Only a port or nothing may follow the host, and nothing may precede it.
        let port = match text.strip_prefix(authority.host())? {
            "" => None,
            rest => Some(
                rest.strip_prefix(':').filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()?,
            ),
        };
        Some(Self { host: authority.host().to_ascii_lowercase(), port })
    }

    /// True if the name cannot be pointed to another machine.
    fn is_local(&self) -> bool {
        let bracketed = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match bracketed {
            Some(v6) => v6.parse::<Ipv6Addr>().is_ok(),
            // Only the strict spelling: browsers read `127.1` and `0x7f000001` as addresses and then send them in full.
            None => self.host == "localhost" || self.host.parse::<std::net::Ipv4Addr>().is_ok(),
        }
    }

    /// The host and port; the default port is left out.
    fn to_authority(&self, default_port: u16) -> String {
        match self.port.filter(|port| *port != default_port) {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(host: &str, public: Option<&PublicAddress>) -> Option<String> {
        SiteOrigin::from_host(Some(host), public).map(|home| home.origin)
    }

    fn public(origin: &str) -> PublicAddress {
        let (scheme, host) = origin.split_once("://").unwrap();
        PublicAddress { origin: origin.to_owned(), host: host.to_owned(), is_https: scheme == "https" }
    }

    #[test]
    fn without_a_public_address_only_what_nobody_can_point_elsewhere_is_ours() {
        for (host, origin) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost:1", "http://localhost:1"),
            ("LOCALHOST", "http://localhost"),
            ("192.168.1.5:80", "http://192.168.1.5"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("[fe80::1]", "http://[fe80::1]"),
        ] {
            assert_eq!(home(host, None).as_deref(), Some(origin), "{host}");
        }
        for foreign in [
            "",
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "localhost.",
            "127.0.0.1.evil.example",
            "127.0.0.1.",
            "127.1",
            "0x7f000001",
            "user@127.0.0.1",
            "127.0.0.1:99999",
            "127.0.0.1:",
            "127.0.0.1:8080:1",
            "127.0.0.1/x",
            "[::1",
            "[not-six]",
            "local host",
        ] {
            assert_eq!(home(foreign, None), None, "{foreign}");
        }
        assert_eq!(SiteOrigin::from_host(None, None), None);
    }

    #[test]
    fn with_a_public_address_only_that_one_is_ours() {
        let https = public("https://images.example");
        for good in ["images.example", "images.example:443", "IMAGES.example"] {
            assert_eq!(home(good, Some(&https)).as_deref(), Some("https://images.example"), "{good}");
        }
        for foreign in
            ["127.0.0.1:8080", "localhost", "images.example:8080", "x.images.example", "images.example.evil", ""]
        {
            assert_eq!(home(foreign, Some(&https)), None, "{foreign}");
        }
        assert!(SiteOrigin::from_host(Some("images.example"), Some(&https)).unwrap().is_secure());
        let plain = public("http://images.example:8080");
        assert_eq!(home("images.example:8080", Some(&plain)).as_deref(), Some("http://images.example:8080"));
        assert_eq!(home("images.example", Some(&plain)), None);
        assert!(!SiteOrigin::from_host(Some("images.example:8080"), Some(&plain)).unwrap().is_secure());
    }
}
