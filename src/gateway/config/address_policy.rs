//! The addresses to which the gateway connects. A name can resolve to any address, so the transport asks again for the
//! address that it connects to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::IpNet;

/// Which addresses may be connected to.
#[derive(Clone, Debug, Default)]
pub(crate) enum AddressPolicy {
    /// All, because the settings file allows link-local addresses.
    Any,
    /// All but those at which a cloud offers the credentials of a machine, and those that belong to no single other
    /// machine. Services of an operator may be in the network of the operator.
    #[default]
    NoLinkLocal,
    /// Those of the public Internet, and of these networks.
    PublicAnd(Arc<[IpNet]>),
}

// === impl AddressPolicy ===

impl AddressPolicy {
    /// Returns the policy for the services of an operator.
    pub(crate) const fn for_services(allows_link_local: bool) -> Self {
        if allows_link_local { Self::Any } else { Self::NoLinkLocal }
    }

    /// True if a connection to this host of a URL may be made, as far as its text tells: a name is allowed.
    pub(crate) fn allows_host(&self, host: &str) -> bool {
        let text = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let address = text.parse().ok().or_else(|| parse_numbers(host).map(IpAddr::V4));
        address.is_none_or(|address| self.allows(address))
    }

    /// True if a connection to this address may be made.
    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::NoLinkLocal => !is_link_local_or_unusual(address),
            Self::PublicAnd(networks) => {
                let canonical = address.to_canonical();
                networks.iter().any(|network| network.contains(&canonical)) || is_public(address)
            }
        }
    }
}

/// Returns the IPv4 address of a host in a notation that resolvers accept besides four decimal numbers: at most four
/// decimal, octal or hexadecimal numbers, of which the last fills the bytes that are left, such as `0xa9fea9fe` (the host
/// parser of the WHATWG URL standard).
fn parse_numbers(host: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = host.strip_suffix('.').unwrap_or(host).split('.').collect();
    let number = |part: &&str| {
        let lowercase = part.to_ascii_lowercase();
        match (lowercase.strip_prefix("0x"), lowercase.strip_prefix('0')) {
            (Some(""), _) => Some(0),
            (Some(digits), _) => u32::from_str_radix(digits, 16).ok(),
            (None, Some(digits)) if !digits.is_empty() => u32::from_str_radix(digits, 8).ok(),
            _ => lowercase.parse().ok(),
        }
    };
    let numbers: Vec<u32> = parts.iter().map(number).collect::<Option<_>>()?;
    let (last, first) = numbers.split_last().filter(|(_, first)| first.len() < 4)?;
    let places = 24_u32.checked_sub(8 * u32::try_from(first.len()).ok()?);
    let is_too_large = places.is_none_or(|places| places < 24 && last >> (places + 8) != 0);
    if is_too_large || first.iter().any(|number| *number > 255) {
        return None;
    }
    let bytes = first.iter().zip([24, 16, 8]).fold(*last, |address, (number, place)| address | number << place);
    Some(Ipv4Addr::from(bytes))
}

/// True for a link-local address, in any of its forms, and for addresses that belong to no single other machine. Clouds
/// offer the credentials of a machine at link-local addresses, and at the two further ones.
fn is_link_local_or_unusual(address: IpAddr) -> bool {
    const CLOUD_V4: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
    const CLOUD_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    let refuses_v4 = |address: Ipv4Addr| {
        let is_this_network = address.octets()[0] == 0;
        address.is_link_local()
            || is_this_network
            || address.is_multicast()
            || address.is_broadcast()
            || address == CLOUD_V4
    };
    match address {
        IpAddr::V4(address) => refuses_v4(address),
        IpAddr::V6(address) if address.is_loopback() => false,
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || address.is_unspecified()
                || address.is_multicast()
                || address == CLOUD_V6
                || is_local_translation(address)
                || embedded_v4(address).is_some_and(refuses_v4)
        }
    }
}

/// True for an address that the registries of special addresses (RFC 6890) leave to the public Internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match embedded_v4(address) {
            Some(embedded) => is_public_v4(embedded),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_special = match (first, second) {
        // This network, private use, loopback, multicast, and the reserved rest.
        (0 | 10 | 127 | 224.., _) => true,
        // Addresses that a provider shares among its customers (RFC 6598).
        (100, 64..=127) => true,
        (169, 254) | (172, 16..=31) | (192, 168) => true,
        // Protocol assignments, the former 6to4 relays, and benchmarks (RFC 2544).
        (192, 0) => third == 0 || third == 2,
        (192, 88) => third == 99,
        (198, 18 | 19) => true,
        // Documentation (RFC 5737).
        (198, 51) => third == 100,
        (203, 0) => third == 113,
        _ => false,
    };
    !is_special
}

/// All addresses that are in use are in `2000::/3`; some parts of it are special.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let is_global_unicast = first & 0xe000 == 0x2000;
    // Protocol assignments such as Teredo (2001::/23), and documentation (RFC 3849 and RFC 9637).
    let is_special = (first == 0x2001 && (second < 0x200 || second == 0xdb8)) || (first == 0x3fff && second < 0x1000);
    is_global_unicast && !is_special
}

/// True for an address of a translation within a network (RFC 8215): its IPv4 address may stand anywhere in it.
fn is_local_translation(address: Ipv6Addr) -> bool {
    address.segments().starts_with(&[0x64, 0xff9b, 1])
}

/// The IPv4 address in an IPv6 address that stands for one: mapped, compatible, or of a translation (RFC 6052, RFC 3056).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [first, second, third, .., seventh, eighth] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match (first, second) {
        (0x64, 0xff9b) if third == 0 => Some(v4(seventh, eighth)),
        (0x2002, _) => Some(v4(second, third)),
        _ => address.to_ipv4(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(policy: &AddressPolicy, address: &str, is_allowed: bool) {
        assert_eq!(policy.allows(address.parse().unwrap()), is_allowed, "{address}");
    }

    #[test]
    fn link_local_addresses_are_refused_in_every_form() {
        for address in [
            "169.254.169.254",
            "169.254.0.1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00:101:101",
            "2002:a9fe:a9fe::1",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "::ffff:0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
        ] {
            check(&AddressPolicy::NoLinkLocal, address, false);
            check(&AddressPolicy::PublicAnd(Arc::default()), address, false);
        }
        // Services of an operator are often in the network of the operator.
        for address in
            ["127.0.0.1", "::1", "10.0.0.7", "192.168.1.9", "172.16.0.1", "fd12::1", "203.0.113.7", "2001:db8::1"]
        {
            check(&AddressPolicy::NoLinkLocal, address, true);
        }
    }

    #[test]
    fn a_host_of_numbers_is_the_address_that_resolvers_read() {
        for host in
            ["0xa9fea9fe", "2852039166", "169.254.43518", "0251.0376.0251.0376", "169.0xfe.1", "0", "169.254.1.1."]
        {
            assert!(!AddressPolicy::NoLinkLocal.allows_host(host), "{host}");
        }
        for host in ["127.1", "0x7f000001", "10.0.0.7", "a.example", "169.254.example", "1.2.3.4.5", "256.1", "[::1]"] {
            assert!(AddressPolicy::NoLinkLocal.allows_host(host), "{host}");
        }
        assert!(!AddressPolicy::NoLinkLocal.allows_host("[::ffff:169.254.169.254]"));
    }

    #[test]
    fn only_addresses_of_the_public_internet_are_public() {
        let policy = AddressPolicy::PublicAnd(Arc::default());
        for address in [
            "127.0.0.1",
            "127.255.0.1",
            "10.0.0.7",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.9",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.7",
            "240.0.0.1",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "64:ff9b:1:a00:1:0:101:101",
            "2002:7f00:1::1",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "fd12::1",
            "fec0::1",
            "100::1",
            "5f00::1",
        ] {
            check(&policy, address, false);
        }
        for address in [
            "1.1.1.1",
            "100.63.0.1",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.20.0.1",
            "223.255.255.1",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
            "2606:4700::1111",
            "2a00::1",
            "2001:4860:4860::8888",
        ] {
            check(&policy, address, true);
        }
    }

    #[test]
    fn a_network_of_the_operator_is_allowed_besides() {
        let policy = AddressPolicy::PublicAnd(["10.1.0.0/16".parse().unwrap()].into());
        for (address, is_allowed) in
            [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("10.2.0.1", false), ("1.1.1.1", true)]
        {
            check(&policy, address, is_allowed);
        }
    }
}
