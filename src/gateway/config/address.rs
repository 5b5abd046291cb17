//! The addresses of the gateway's listeners and of upstreams.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use http::Uri;
use http::uri::{Authority, Scheme};

use crate::service_settings::split_operation;

/// A host and a port to listen on. The host may be a name; it is looked up when the socket is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress {
    host: String,
    port: u16,
}

impl ListenAddress {
    pub(super) const fn new(host: String, port: u16) -> Self {
        Self { host, port }
    }

    /// The name or address; an IPv6 address has no brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// The port; with 0 the system chooses a free one.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }
}

impl FromStr for ListenAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORMAT: &str = "must be `host:port`, such as \"127.0.0.1:8080\"";
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Self::new(address.ip().to_string(), address.port()));
        }
        let (host, port) = text.rsplit_once(':').ok_or(FORMAT)?;
        if !is_host_name(host) {
            return Err(FORMAT);
        }
        let port = port.parse().map_err(|_| "must end in a port from 0 to 65535")?;
        Ok(Self::new(host.to_owned(), port))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// Returns the address of an upstream, rebuilt from its checked parts; its path does not end in `/`, unless it is `/`.
pub(super) fn base_url(text: &str, allow_http: bool) -> Result<Uri, &'static str> {
    parse_uri(check_url(text, allow_http)?.trim_end_matches('/'))
}

/// Returns the address of a service, to which the gateway adds the paths of operations.
pub(super) fn service_url(text: &str, allow_http: bool) -> Result<Uri, String> {
    let uri = base_url(text, allow_http)?;
    let Some((path, operation)) = split_operation(uri.path()) else { return Ok(uri) };
    let (scheme, authority) = (uri.scheme_str().unwrap_or_default(), uri.authority().map_or("", Authority::as_str));
    Err(format!("must end before `{operation}`, which the gateway adds: write \"{scheme}://{authority}{path}\""))
}

/// Returns the address of a token endpoint, rebuilt from its checked parts; a `/` at the end of
/// its path is kept.
pub(super) fn token_url(text: &str, allow_http: bool) -> Result<Uri, &'static str> {
    parse_uri(&check_url(text, allow_http)?)
}

fn parse_uri(text: &str) -> Result<Uri, &'static str> {
    text.parse().map_err(|_| "must be a URL, such as \"https://api.openai.com/v1\"")
}

/// Checks an address, and returns it in normalized form. The address decides who gets the credentials, so text that two
/// parsers may interpret differently is refused.
fn check_url(text: &str, allow_http: bool) -> Result<String, &'static str> {
    if text.contains('#') {
        return Err("must not have a fragment (`#`)");
    }
    let uri = parse_uri(text)?;
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
        return Err("must begin with `https://`");
    };
    let encrypted = *scheme == Scheme::HTTPS;
    if !encrypted && *scheme != Scheme::HTTP {
        return Err("must begin with `https://`");
    }
    if authority.as_str().contains('@') {
        return Err("must not contain a user or password; use the settings for credentials");
    }
    if uri.query().is_some() {
        return Err("must not have a query (`?`)");
    }
    let host = authority.host();
    if !is_host_name(host) && parse_bracketed_ipv6(host).is_none() {
        return Err("must name a host of letters, digits, `.` and `-`, or an IP address");
    }
    if authority.as_str().len() > host.len() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err("must have a port from 1 to 65535 after the `:`");
    }
    if !encrypted && !allow_http && !is_loopback(host) {
        return Err(
            "must begin with `https://`, because plain http sends credentials unencrypted (`allow_http = true` accepts that)",
        );
    }
    let path = uri.path();
    let mut segments = path.strip_suffix('/').unwrap_or(path).split('/').skip(1);
    if segments.any(|segment| matches!(segment, "" | "." | "..") || segment.contains('%')) {
        return Err("must have a plain path, without empty parts, `.`, `..` or `%`");
    }
    Ok(format!("{scheme}://{}{path}", authority.as_str().to_ascii_lowercase()))
}

fn is_host_name(host: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

fn parse_bracketed_ipv6(host: &str) -> Option<Ipv6Addr> {
    host.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

/// True only for hosts whose connections cannot leave this machine. A name such as `127.0.0.1.example.com` is no
/// loopback address.
pub(super) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || parse_bracketed_ipv6(host).is_some_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let parsed = base_url(text, false).map(|uri| uri.to_string());
        match (parsed, expected) {
            (Ok(uri), Ok(expected)) => assert_eq!(uri.trim_end_matches('/'), expected, "{text}"),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{text}: {error}"),
            (parsed, expected) => panic!("{text}: {parsed:?}, not {expected:?}"),
        }
    }

    #[test]
    fn a_base_url_is_rebuilt_from_its_parts() {
        check("https://api.openai.com/v1", Ok("https://api.openai.com/v1"));
        check("https://api.openai.com/v1/", Ok("https://api.openai.com/v1"));
        check("HTTPS://API.OpenAI.com:8443/V1", Ok("https://api.openai.com:8443/V1"));
        check("https://10.0.0.7:9000", Ok("https://10.0.0.7:9000"));
        check("https://[2001:db8::1]/openai/v1", Ok("https://[2001:db8::1]/openai/v1"));
        check("https://my_host-2.internal", Ok("https://my_host-2.internal"));
    }

    #[test]
    fn a_token_url_keeps_the_end_of_its_path() {
        for (text, expected) in [
            ("https://auth.example.com/oauth/token", "https://auth.example.com/oauth/token"),
            ("https://Auth.example.com/oauth/token/", "https://auth.example.com/oauth/token/"),
            ("http://127.0.0.1:9/token", "http://127.0.0.1:9/token"),
        ] {
            assert_eq!(token_url(text, false).unwrap(), expected);
        }
        for bad in [
            "http://auth.example.com/token",
            "https://a/token//",
            "https://a/../token",
            "https://a/token?secret=1",
            "https://u:p@a/token",
        ] {
            assert!(token_url(bad, false).is_err(), "{bad}");
        }
        assert!(token_url("http://auth.example.com/token", true).is_ok());
    }

    #[test]
    fn plain_http_is_allowed_only_to_this_machine() {
        for host in ["127.0.0.1:9", "127.8.9.1", "localhost:8080", "LOCALHOST", "[::1]:80"] {
            assert!(base_url(&format!("http://{host}/v1"), false).is_ok(), "{host}");
        }
        let other_hosts = [
            "api.openai.com",
            "127.0.0.1.example.com",
            "localhost.example.com",
            "127.1",
            "2130706433",
            "0x7f000001",
            "0.0.0.0",
            "10.0.0.1",
            "169.254.169.254",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[fe80::1]",
            "0177.0.0.1",
        ];
        for host in other_hosts {
            check(&format!("http://{host}/v1"), Err("plain http"));
            assert!(base_url(&format!("http://{host}/v1"), true).is_ok(), "{host}");
        }
    }

    #[test]
    fn an_address_that_could_be_misread_is_refused() {
        check("https://user:pass@api.openai.com/v1", Err("user or password"));
        check("https://api.openai.com@evil.example/v1", Err("user or password"));
        check("https://@api.openai.com", Err("user or password"));
        check("https://api.openai.com/v1?key=1", Err("query"));
        check("https://api.openai.com?", Err("query"));
        check("https://api.openai.com/v1#x", Err("fragment"));
        check("https://evil.example#@api.openai.com", Err("fragment"));
        check("https://evil.example\\@api.openai.com", Err("must be a URL"));
        check("https://api.openai.com\u{2024}evil.example", Err("must be a URL"));
        check("https://münchen.example", Err("must be a URL"));
        check("https://ex%61mple.com", Err("must be a URL"));
        check("https:///v1", Err("must be a URL"));
        check("https://", Err("must be a URL"));
        check(" https://api.openai.com", Err("must be a URL"));
        check("https://api.openai.com/v 1", Err("must be a URL"));
        check("", Err("must be a URL"));
        check("https://:443/v1", Err("name a host"));
        check("https://a..b/v1", Err("name a host"));
        check("https://api.openai.com./v1", Err("name a host"));
        check("https://*/v1", Err("name a host"));
        check("https://a,b/v1", Err("name a host"));
        check("https://a;b/v1", Err("name a host"));
        check("https://-a.example/v1", Err("name a host"));
        check("https://[::1%25eth0]/v1", Err("name a host"));
        check("https://a:/v1", Err("port"));
        check("https://a:0/v1", Err("port"));
        check("https://a:99999/v1", Err("port"));
        check("https://a/v1/../admin", Err("plain path"));
        check("https://a/./v1", Err("plain path"));
        check("https://a/%2e%2e/v1", Err("plain path"));
        check("https://a//v1", Err("plain path"));
        check("ftp://a/v1", Err("https://"));
        check("file:///etc/passwd", Err(""));
        check("api.openai.com/v1", Err(""));
        check("//api.openai.com/v1", Err("https://"));
        check("/v1", Err("https://"));
        check("javascript:alert(1)", Err(""));
    }

    #[test]
    fn a_listen_address_is_an_ip_address_or_a_name() {
        let parse = |text: &str| {
            text.parse::<ListenAddress>().map(|listen| (listen.host().to_owned(), listen.port(), listen.to_string()))
        };
        let expected = |host: &str, port, shown: &str| Ok((host.to_owned(), port, shown.to_owned()));
        assert_eq!(parse("127.0.0.1:8080"), expected("127.0.0.1", 8080, "127.0.0.1:8080"));
        assert_eq!(parse("[::1]:0"), expected("::1", 0, "[::1]:0"));
        assert_eq!(parse("localhost:80"), expected("localhost", 80, "localhost:80"));
        for bad in [
            "",
            "8080",
            ":8080",
            "localhost",
            "::1:8080",
            "http://localhost:80",
            "localhost:http",
            "localhost:65536",
            "a b:1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
