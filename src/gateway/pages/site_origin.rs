//! The hosts under which browsers may reach the gateway, and the origin of the gateway for each.
//!
//! If an attacker's host name resolves to the gateway's address (DNS rebinding), a script of the attacker's site could
//! read the pages. Therefore only known hosts are accepted: the host of `public_url` if it is set, else only
//! `localhost` and IP addresses, which DNS cannot redirect. A host that a proxy states in another header is ignored.

use std::net::Ipv6Addr;

use http::uri::Authority;

/// The parts of `public_url`.
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
    port: u16,
}

// === impl SiteOrigin ===

impl SiteOrigin {
    /// The origin for the host of a request; `None` if the host is not accepted.
    pub(super) fn from_host(host: Option<&str>, public: Option<&PublicAddress>) -> Option<Self> {
        let requested = HostAndPort::parse(host?)?;
        match public {
            None => requested.is_independent_of_dns().then(|| Self {
                origin: format!("http://{}", requested.to_authority(80)),
                is_secure: false,
                port: requested.port.unwrap_or(80),
            }),
            Some(public) => {
                let default_port = if public.is_https { 443 } else { 80 };
                let is_public_host = requested.to_authority(default_port) == public.host;
                is_public_host.then(|| Self {
                    origin: public.origin.clone(),
                    is_secure: public.is_https,
                    port: requested.port.unwrap_or(default_port),
                })
            }
        }
    }

    /// Scheme, host and port, as browsers send them in `Origin`.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The port, also if it is the default.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// True if the origin uses HTTPS, so that cookies can be restricted to HTTPS.
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
        // Nothing may precede the host, and only a port may follow it.
        let port = match text.strip_prefix(authority.host())? {
            "" => None,
            suffix => Some(
                suffix.strip_prefix(':').filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()?,
            ),
        };
        Some(Self { host: authority.host().to_ascii_lowercase(), port })
    }

    /// True for `localhost` and IP addresses, which DNS cannot point to another machine.
    fn is_independent_of_dns(&self) -> bool {
        let bracketed = self.host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        match bracketed {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            // Forms such as `127.1` and `0x7f000001` need no support: browsers convert them to the full form.
            None => self.host == "localhost" || self.host.parse::<std::net::Ipv4Addr>().is_ok(),
        }
    }

    /// The host and port, without the default port.
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

    fn origin_of(host: &str, public: Option<&PublicAddress>) -> Option<String> {
        SiteOrigin::from_host(Some(host), public).map(|site| site.origin)
    }

    fn public(origin: &str) -> PublicAddress {
        let (scheme, host) = origin.split_once("://").unwrap();
        PublicAddress { origin: origin.to_owned(), host: host.to_owned(), is_https: scheme == "https" }
    }

    #[test]
    fn without_a_public_url_only_localhost_and_addresses_are_accepted() {
        for (host, origin) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost:1", "http://localhost:1"),
            ("LOCALHOST", "http://localhost"),
            ("192.168.1.5:80", "http://192.168.1.5"),
            ("[::1]:8080", "http://[::1]:8080"),
            ("[fe80::1]", "http://[fe80::1]"),
        ] {
            assert_eq!(origin_of(host, None).as_deref(), Some(origin), "{host}");
        }
        for host in [
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
            assert_eq!(origin_of(host, None), None, "{host}");
        }
        assert_eq!(SiteOrigin::from_host(None, None), None);
    }

    #[test]
    fn with_a_public_url_only_its_host_is_accepted() {
        let https = public("https://images.example");
        for host in ["images.example", "images.example:443", "IMAGES.example"] {
            assert_eq!(origin_of(host, Some(&https)).as_deref(), Some("https://images.example"), "{host}");
        }
        for host in
            ["127.0.0.1:8080", "localhost", "images.example:8080", "x.images.example", "images.example.evil", ""]
        {
            assert_eq!(origin_of(host, Some(&https)), None, "{host}");
        }
        assert!(SiteOrigin::from_host(Some("images.example"), Some(&https)).unwrap().is_secure());
        let http = public("http://images.example:8080");
        assert_eq!(origin_of("images.example:8080", Some(&http)).as_deref(), Some("http://images.example:8080"));
        assert_eq!(origin_of("images.example", Some(&http)), None);
        assert!(!SiteOrigin::from_host(Some("images.example:8080"), Some(&http)).unwrap().is_secure());
    }
}
