//! The proxies in front of the gateway, and the client addresses that they report.
//!
//! A proxy appends the address of its client to `X-Forwarded-For`, after the entries that the client sent. Therefore
//! the header is read from its end, and only as far as trusted proxies wrote it.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

/// The addresses of the proxies whose `X-Forwarded-For` is trusted; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrustedProxies(Vec<IpNet>);

// === impl TrustedProxies ===

impl TrustedProxies {
    pub(super) const fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// Returns the address of the client: the connected peer, or the address that a chain of trusted proxies reports.
    ///
    /// `forwarded` are the values of `X-Forwarded-For`, in their order.
    pub(crate) fn client_address<'a>(
        &self,
        connected: IpAddr,
        forwarded: impl DoubleEndedIterator<Item = &'a str>,
    ) -> IpAddr {
        let mut client = connected.to_canonical();
        for entry in forwarded.rev().flat_map(|value| value.rsplit(',')) {
            if !self.trusts(client) {
                break;
            }
            // An unreadable entry names no address, and everything before it is untrusted.
            let Some(address) = parse_address(entry.trim()) else { break };
            client = address;
        }
        client
    }

    /// Returns proxies in these networks.
    #[cfg(test)]
    pub(crate) fn from_networks(texts: &[&str]) -> Self {
        Self(texts.iter().map(|text| parse_network(text).expect("the test gives a valid network")).collect())
    }

    /// True if the address belongs to a trusted proxy.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Parses an address or a network, such as `10.0.0.0/8`.
pub(super) fn parse_network(text: &str) -> Result<IpNet, &'static str> {
    let network = match text.parse::<IpAddr>() {
        Ok(address) => IpNet::from(address.to_canonical()),
        Err(_) => text.parse().map_err(|_| "must be an IP address or a network such as `10.0.0.0/8`")?,
    };
    if network.prefix_len() == 0 {
        return Err("contains every address, so any client could claim any address");
    }
    Ok(network.trunc())
}

/// Parses an address as proxies write it, with or without the port.
fn parse_address(entry: &str) -> Option<IpAddr> {
    let bare = entry.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(entry);
    let address = bare.parse().or_else(|_| entry.parse().map(|address: SocketAddr| address.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(connected: &str, forwarded: &[&str], expected: &str) {
        let proxies = TrustedProxies::new(
            ["127.0.0.1", "10.0.0.0/8", "fd00::/8"].map(|text| parse_network(text).unwrap()).to_vec(),
        );
        let client = proxies.client_address(connected.parse().unwrap(), forwarded.iter().copied());
        assert_eq!(client.to_string(), expected, "{connected} {forwarded:?}");
    }

    #[test]
    fn only_trusted_proxies_can_report_an_address() {
        check("203.0.113.9", &["198.51.100.1"], "203.0.113.9");
        check("127.0.0.1", &["198.51.100.1"], "198.51.100.1");
        check("::ffff:127.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1");
        check("127.0.0.1", &[], "127.0.0.1");
    }

    #[test]
    fn entries_sent_by_the_client_are_ignored() {
        check("127.0.0.1", &["1.1.1.1, 198.51.100.1, 10.1.2.3"], "198.51.100.1");
        check("127.0.0.1", &["1.1.1.1", "198.51.100.1,10.1.2.3"], "198.51.100.1");
        check("127.0.0.1", &["10.9.9.9, 198.51.100.1"], "198.51.100.1");
        check("127.0.0.1", &["198.51.100.1, nonsense"], "127.0.0.1");
        check("127.0.0.1", &["198.51.100.1, "], "127.0.0.1");
        check("fd00::1", &["10.0.0.2, 10.0.0.1"], "10.0.0.2");
    }

    #[test]
    fn ports_are_ignored() {
        check("127.0.0.1", &["198.51.100.1:4711"], "198.51.100.1");
        check("127.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1");
        check("127.0.0.1", &["[2001:db8::1]"], "2001:db8::1");
    }

    #[test]
    fn an_invalid_network_is_refused() {
        assert_eq!(parse_network("10.1.2.3/8").unwrap().to_string(), "10.0.0.0/8");
        for bad in ["", "proxy.example", "10.0.0.0/33", "0.0.0.0/0", "::/0", "10.0.0.1:80"] {
            assert!(parse_network(bad).is_err(), "{bad}");
        }
    }
}
