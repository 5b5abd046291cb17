//! The addresses to which the gateway connects. A name can resolve to any address, so the transport asks again for the
//! address that it connects to.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use url::Host;

use crate::net::{destination, is_link_local, is_public};

/// The addresses that may be connected to.
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

    /// True if a connection to this host of a URL may be made, as far as its text tells: a name is allowed. The notations
    /// that resolvers accept besides four decimal numbers, such as `0xa9fea9fe`, are addresses too.
    pub(crate) fn allows_host(&self, host: &str) -> bool {
        match Host::parse(host) {
            Ok(Host::Ipv4(address)) => self.allows(address.into()),
            Ok(Host::Ipv6(address)) => self.allows(address.into()),
            Ok(Host::Domain(_)) | Err(_) => true,
        }
    }

    /// True if a connection to this address may be made.
    pub(crate) fn allows(&self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::NoLinkLocal => !is_link_local(address) && !is_unusual(destination(address)),
            Self::PublicAnd(networks) => {
                let canonical = address.to_canonical();
                networks.iter().any(|network| network.contains(&canonical)) || is_public(address)
            }
        }
    }
}

/// True for an address that belongs to no single machine.
const fn is_unusual(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] == 0 || address.is_multicast() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_multicast(),
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
    fn a_network_of_the_operator_is_allowed_besides() {
        let policy = AddressPolicy::PublicAnd(["10.1.0.0/16".parse().unwrap()].into());
        for (address, is_allowed) in
            [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("10.2.0.1", false), ("1.1.1.1", true)]
        {
            check(&policy, address, is_allowed);
        }
    }
}
