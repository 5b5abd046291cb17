//! Detects hosts that are not publicly reachable.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::Host;

/// Suffixes of host names that have a different meaning in each network.
const LOCAL_SUFFIXES: [&str; 7] = [".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa", ".test"];

pub(super) fn is_private(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            !name.contains('.') || LOCAL_SUFFIXES.iter().any(|ending| name.ends_with(ending))
        }
        Host::Ipv4(address) => is_private_v4(*address),
        Host::Ipv6(address) => is_private_v6(*address),
    }
}

/// Returns true for link-local addresses, among them the metadata services of clouds, however they are embedded.
pub(super) fn is_link_local(host: &Host<&str>) -> bool {
    match host {
        // The names by which clouds serve the same metadata.
        Host::Domain(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            ["metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"]
                .contains(&&*name)
        }
        Host::Ipv4(address) => is_link_local_v4(*address),
        Host::Ipv6(address) => is_link_local_v6(*address),
    }
}

/// Returns true for the link-local networks and for the metadata addresses outside of them: `fd00:ec2::254` (AWS) and
/// `100.100.100.200` (Alibaba Cloud).
fn is_link_local_v4(address: Ipv4Addr) -> bool {
    address.is_link_local() || address == Ipv4Addr::new(100, 100, 100, 200)
}

fn is_link_local_v6(address: Ipv6Addr) -> bool {
    let is_metadata = address == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    embedded_v4(address).map_or(address.is_unicast_link_local() || is_metadata, is_link_local_v4)
}

pub(super) fn is_private_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    let is_benchmark = first == 198 && (18..20).contains(&second);
    let is_protocol = (first, second, third) == (192, 0, 0);
    // 0/8 is this host on some systems; from 224 on, addresses are multicast or reserved.
    let is_special = first == 0 || first >= 224;
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || is_shared
        || is_benchmark
        || is_protocol
        || is_special
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = embedded_v4(address) {
        return is_private_v4(inner);
    }
    let [first, second, ..] = address.segments();
    address.is_loopback()
        || address.is_unspecified()
        || address.is_unique_local()
        || address.is_unicast_link_local()
        || address.is_multicast()
        // Old site-local addresses, and documentation addresses.
        || first & 0xffc0 == 0xfec0
        || (first, second) == (0x2001, 0xdb8)
}

/// Returns the IPv4 address that this address contains if it is an IPv4-mapped, IPv4-compatible, NAT64 or 6to4 address:
/// its packets may be sent to that IPv4 address.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let from_words = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => Some(from_words(high, low)),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => Some(from_words(high, low)),
        _ => address.to_ipv4_mapped(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    fn is_private_host(host: &str) -> bool {
        is_private(&Url::parse(&format!("https://{host}/")).unwrap().host().unwrap())
    }

    #[test]
    fn private_hosts_are_detected() {
        for host in [
            "localhost",
            "LOCALHOST.",
            "git",
            "a.local",
            "a.internal",
            "10.1.2.3",
            "192.168.0.1",
            "172.16.0.1",
            "127.9.9.9",
            "2130706433",
            "0.0.0.0",
            "169.254.1.1",
            "100.64.0.1",
            "[::1]",
            "[fd00::1]",
            "[fe80::1]",
            "[::ffff:10.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:a00:1::]",
            "[::10.0.0.1]",
            "[ff02::1]",
            "[fec0::1]",
            "[2001:db8::1]",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.0.8",
        ] {
            assert!(is_private_host(host), "{host}");
        }
        for host in [
            "github.com",
            "8.8.8.8",
            "100.128.0.1",
            "[2606:4700::1]",
            "local.example.com",
            "172.32.0.1",
            "[64:ff9b::808:808]",
        ] {
            assert!(!is_private_host(host), "{host}");
        }
    }
}
