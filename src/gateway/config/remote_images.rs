//! The web addresses from which the gateway fetches the input images of edits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use super::address;

/// The port of `https`.
const HTTPS_PORT: u16 = 443;

/// The default of `remote_images.timeout` (our choice): a large image from a slow host.
pub(super) const DEFAULT_FETCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The addresses from which images are fetched, and the time limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteImageConfig {
    /// At least one.
    pub(crate) hosts: Vec<HostPattern>,
    /// The networks to which a connection may be made besides the public Internet.
    pub(crate) networks: Arc<[IpNet]>,
    /// The limit for the images of one request, with all redirects.
    pub(crate) timeout: Duration,
}

/// A host, or all hosts below a name, with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPattern {
    names: HostNames,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostNames {
    /// Every name, but no bare address.
    All,
    /// The names that end with this text, which begins with a dot.
    Below(String),
    /// This name or address.
    Exactly(String),
}

// === impl RemoteImageConfig ===

impl RemoteImageConfig {
    /// Returns the addresses from which the images of answers are fetched: the hosts and networks that the settings name
    /// for callers, and every name on the port of `https`.
    pub(crate) fn for_answers(named: Option<&Self>) -> Self {
        let mut config = named.cloned().unwrap_or_else(|| Self {
            hosts: Vec::new(),
            networks: Arc::default(),
            timeout: DEFAULT_FETCH_TIMEOUT,
        });
        config.hosts.push(HostPattern { names: HostNames::All, port: HTTPS_PORT });
        config
    }
}

// === impl HostPattern ===

impl HostPattern {
    /// Parses a pattern, such as `*.example.com:8443`.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str =
            "must be a host such as `images.example.com`, `*.example.com` or `*`, with or without a port";
        let (wildcard, host) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None if text == "*" => return Ok(Self { names: HostNames::All, port: HTTPS_PORT }),
            None => (false, text),
        };
        let url = address::base_url(&format!("https://{host}"), false).map_err(|_| EXPECTED)?;
        let name =
            url.host().filter(|_| url.path() == "/" && !host.contains('/')).ok_or(EXPECTED)?.to_ascii_lowercase();
        let names = if wildcard { HostNames::Below(format!(".{name}")) } else { HostNames::Exactly(name) };
        Ok(Self { names, port: url.port_u16().unwrap_or(HTTPS_PORT) })
    }

    /// Parses the pattern of a test.
    #[cfg(test)]
    pub(crate) fn parse_for_test(text: &str) -> Self {
        Self::parse(text).expect("the test gives a valid pattern")
    }

    /// True if the pattern has this host, in lower case and with the brackets of an IPv6 address, and this port.
    pub(crate) fn matches(&self, host: &str, is_name: bool, port: u16) -> bool {
        self.port == port
            && match &self.names {
                HostNames::All => is_name,
                HostNames::Below(suffix) => is_name && host.len() > suffix.len() && host.ends_with(suffix.as_str()),
                HostNames::Exactly(name) => host == name,
            }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.names {
            HostNames::All => formatter.write_str("*")?,
            HostNames::Below(suffix) => write!(formatter, "*{suffix}")?,
            HostNames::Exactly(name) => formatter.write_str(name)?,
        }
        if self.port == HTTPS_PORT { Ok(()) } else { write!(formatter, ":{}", self.port) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, host: &str, is_name: bool, port: u16, expected: bool) {
        let pattern = HostPattern::parse(pattern).unwrap();
        assert_eq!(pattern.matches(host, is_name, port), expected, "{pattern} {host}:{port}");
    }

    #[test]
    fn a_pattern_has_exactly_its_hosts() {
        check("images.example.com", "images.example.com", true, 443, true);
        check("images.example.com", "images.example.com", true, 8443, false);
        check("Images.Example.com:8443", "images.example.com", true, 8443, true);
        check("images.example.com", "a.images.example.com", true, 443, false);
        check("*.example.com", "a.b.example.com", true, 443, true);
        check("*.example.com", "example.com", true, 443, false);
        check("*.example.com", "evilexample.com", true, 443, false);
        check("*", "anything.example", true, 443, true);
        check("*", "anything.example", true, 80, false);
        check("*", "1.1.1.1", false, 443, false);
        check("1.1.1.1", "1.1.1.1", false, 443, true);
        check("[::1]:8443", "[::1]", false, 8443, true);
    }

    #[test]
    fn a_pattern_is_shown_as_it_is_written() {
        for text in ["images.example.com", "*.example.com:8443", "*", "[::1]:8443"] {
            assert_eq!(HostPattern::parse(text).unwrap().to_string(), text);
        }
        for bad in ["", "*.", "a.*.example.com", "https://a.example", "a.example/x", "u@a.example", "a b", "**", "a:0"]
        {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
    }
}
