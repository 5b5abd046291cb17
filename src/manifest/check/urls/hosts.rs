//! Which hosts only some can reach.

use std::net::{Ipv4Addr, Ipv6Addr};

use url::Host;

/// Endings of names that mean something else in every network.
const LOCAL: [&str; 7] = [".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa", ".test"];

pub(super) fn is_private(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            !name.contains('.') || LOCAL.iter().any(|ending| name.ends_with(ending))
        }
        Host::Ipv4(address) => is_private_v4(*address),
        Host::Ipv6(address) => is_private_v6(*address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    let is_shared = first == 100 && (64..128).contains(&second);
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_broadcast()
        || address.is_documentation()
        || is_shared
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    match address.to_ipv4_mapped() {
        Some(mapped) => is_private_v4(mapped),
        None => {
            address.is_loopback()
                || address.is_unspecified()
                || address.is_unique_local()
                || address.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    fn private(host: &str) -> bool {
        is_private(&Url::parse(&format!("https://{host}/")).unwrap().host().unwrap())
    }

    #[test]
    fn hosts_that_only_some_can_reach_are_known() {
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
        ] {
            assert!(private(host), "{host}");
        }
        for host in ["github.com", "8.8.8.8", "100.128.0.1", "[2606:4700::1]", "local.example.com", "172.32.0.1"] {
            assert!(!private(host), "{host}");
        }
    }
}
