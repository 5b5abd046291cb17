//! Reachability of IP addresses: which of them the public Internet has, and which lead to the credentials of a machine.
//!
//! This module is pure. The gateway and the checks of manifests share it, so that both give the same answer. It follows
//! the registries of special-purpose addresses of IANA (RFC 6890); where a registry states that an anycast address of a
//! protocol is global, such as `192.0.0.9`, the whole block counts as special, because no web server has such an address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true if an address is publicly reachable: it is not in a private, local, reserved or documentation network.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match destination(address) {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// True for a link-local address, in any of its forms, for the two further addresses at which clouds offer the
/// credentials of a machine, and for the local translations that can lead to one of these.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    /// The metadata service of Alibaba Cloud.
    const CLOUD_V4: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
    /// The metadata service of AWS.
    const CLOUD_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    match destination(address) {
        IpAddr::V4(address) => address.is_link_local() || address == CLOUD_V4,
        IpAddr::V6(address) => {
            address.is_unicast_link_local()
                || address == CLOUD_V6
                // A translation within a network (RFC 8215): the IPv4 address may stand anywhere in it.
                || address.segments().starts_with(&[0x64, 0xff9b, 1])
        }
    }
}

/// Returns the address to which packets for this address are sent: the IPv4 address if it is an IPv4-mapped,
/// IPv4-compatible, NAT64 (RFC 6052) or 6to4 (RFC 3056) address, else the address itself.
pub(crate) fn destination(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    match v6.segments() {
        [0x64, 0xff9b, 0, .., high, low] | [0x2002, high, low, ..] => {
            Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into()
        }
        _ if v6.is_loopback() => address,
        _ => v6.to_ipv4().map_or(address, IpAddr::V4),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each address with its answers: is it public, and is it link-local?
    const ADDRESSES: &[(&str, bool, bool)] = &[
        // IPv4: each row of the registry, with its last and first neighbour.
        ("0.0.0.0", false, false),
        ("0.1.2.3", false, false),
        ("1.0.0.0", true, false),
        ("1.1.1.1", true, false),
        ("8.8.8.8", true, false),
        ("9.255.255.255", true, false),
        ("10.0.0.0", false, false),
        ("10.255.255.255", false, false),
        ("11.0.0.0", true, false),
        ("100.63.255.255", true, false),
        ("100.64.0.0", false, false),
        ("100.100.100.200", false, true),
        ("100.127.255.255", false, false),
        ("100.128.0.0", true, false),
        ("126.255.255.255", true, false),
        ("127.0.0.1", false, false),
        ("127.255.255.255", false, false),
        ("128.0.0.0", true, false),
        ("169.253.255.255", true, false),
        ("169.254.0.0", false, true),
        ("169.254.169.254", false, true),
        ("169.255.0.0", true, false),
        ("172.15.255.255", true, false),
        ("172.16.0.0", false, false),
        ("172.31.255.255", false, false),
        ("172.32.0.0", true, false),
        ("191.255.255.255", true, false),
        ("192.0.0.0", false, false),
        ("192.0.0.9", false, false),
        ("192.0.0.170", false, false),
        ("192.0.1.0", true, false),
        ("192.0.2.1", false, false),
        ("192.0.3.0", true, false),
        ("192.31.196.1", true, false),
        ("192.52.193.1", true, false),
        ("192.88.98.255", true, false),
        ("192.88.99.1", false, false),
        ("192.88.100.0", true, false),
        ("192.167.255.255", true, false),
        ("192.168.0.0", false, false),
        ("192.168.255.255", false, false),
        ("192.169.0.0", true, false),
        ("192.175.48.1", true, false),
        ("198.17.255.255", true, false),
        ("198.18.0.0", false, false),
        ("198.19.255.255", false, false),
        ("198.20.0.0", true, false),
        ("198.51.99.255", true, false),
        ("198.51.100.7", false, false),
        ("198.51.101.0", true, false),
        ("203.0.112.255", true, false),
        ("203.0.113.7", false, false),
        ("203.0.114.0", true, false),
        ("223.255.255.255", true, false),
        ("224.0.0.1", false, false),
        ("239.255.255.255", false, false),
        ("240.0.0.1", false, false),
        ("255.255.255.255", false, false),
        // IPv6 without an IPv4 address.
        ("::", false, false),
        ("::1", false, false),
        ("::ffff:0:1.1.1.1", false, false),
        ("64:ff9b:1::", false, true),
        ("64:ff9b:1::1", false, true),
        ("64:ff9b:1::a00:1", false, true),
        ("64:ff9b:1::7f00:1", false, true),
        ("64:ff9b:1:a00:1:0:101:101", false, true),
        ("64:ff9b:1:a9fe:a9:fe00:101:101", false, true),
        ("64:ff9b:1:ffff:ffff:ffff:ffff:ffff", false, true),
        ("64:ff9b:2::101:101", false, false),
        ("100::1", false, false),
        ("100:0:0:1::1", false, false),
        ("1fff:ffff::1", false, false),
        ("2000::1", true, false),
        ("2001::1", false, false),
        ("2001:1::1", false, false),
        ("2001:2::1", false, false),
        ("2001:3::1", false, false),
        ("2001:4:112::1", false, false),
        ("2001:10::1", false, false),
        ("2001:20::1", false, false),
        ("2001:30::1", false, false),
        ("2001:1ff:ffff::1", false, false),
        ("2001:200::1", true, false),
        ("2001:4860:4860::8888", true, false),
        ("2001:db7:ffff::1", true, false),
        ("2001:db8::1", false, false),
        ("2001:db9::1", true, false),
        ("2606:4700::1111", true, false),
        ("2620:4f:8000::1", true, false),
        ("2a00::1", true, false),
        ("3ffe:ffff::1", true, false),
        ("3fff::1", false, false),
        ("3fff:fff:ffff::1", false, false),
        ("3fff:1000::1", true, false),
        ("4000::1", false, false),
        ("5f00::1", false, false),
        ("fc00::1", false, false),
        ("fd00:ec2::254", false, true),
        ("fd12::1", false, false),
        ("fe80::1", false, true),
        ("febf::1", false, true),
        ("fec0::1", false, false),
        ("ff02::1", false, false),
        ("ff0e::1", false, false),
        // IPv4 addresses in IPv6 addresses: mapped, compatible, NAT64 and 6to4.
        ("::ffff:1.1.1.1", true, false),
        ("::ffff:0.0.0.0", false, false),
        ("::ffff:10.0.0.1", false, false),
        ("::ffff:127.0.0.1", false, false),
        ("::ffff:169.254.169.254", false, true),
        ("::ffff:100.100.100.200", false, true),
        ("::ffff:192.88.99.1", false, false),
        ("::2", false, false),
        ("::7f00:1", false, false),
        ("::10.0.0.1", false, false),
        ("::169.254.169.254", false, true),
        ("64:ff9b::101:101", true, false),
        ("64:ff9b::808:808", true, false),
        ("64:ff9b::", false, false),
        ("64:ff9b::7f00:1", false, false),
        ("64:ff9b::a00:1", false, false),
        ("64:ff9b::a9fe:a9fe", false, true),
        ("64:ff9b:0:1::7f00:1", false, false),
        ("2002:101:101::1", true, false),
        ("2002::1", false, false),
        ("2002:7f00:1::1", false, false),
        ("2002:a00:1::", false, false),
        ("2002:a9fe:a9fe::1", false, true),
    ];

    #[test]
    fn addresses_have_the_answers_of_the_registries() {
        for (text, public, link_local) in ADDRESSES {
            let address = text.parse().unwrap();
            assert_eq!((is_public(address), is_link_local(address)), (*public, *link_local), "{text}");
        }
    }
}
