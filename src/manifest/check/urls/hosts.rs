//! Detects hosts that are not publicly reachable.

use url::Host;

use crate::net;

/// Suffixes of host names that have a different meaning in each network.
const LOCAL_SUFFIXES: [&str; 7] = [".localhost", ".local", ".internal", ".intranet", ".lan", ".home.arpa", ".test"];

pub(super) fn is_private(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.').to_ascii_lowercase();
            !name.contains('.') || LOCAL_SUFFIXES.iter().any(|ending| name.ends_with(ending))
        }
        Host::Ipv4(address) => !net::is_public((*address).into()),
        Host::Ipv6(address) => !net::is_public((*address).into()),
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
        Host::Ipv4(address) => net::is_link_local((*address).into()),
        Host::Ipv6(address) => net::is_link_local((*address).into()),
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
            "2130706433",
            "0.0.0.0",
            "[::1]",
            "[::ffff:10.0.0.1]",
        ] {
            assert!(is_private_host(host), "{host}");
        }
        for host in ["github.com", "8.8.8.8", "[2606:4700::1]", "local.example.com"] {
            assert!(!is_private_host(host), "{host}");
        }
    }
}
