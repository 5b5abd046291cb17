//! Posts a message to a service of the operator.
//!
//! It has a transport of its own, because its addresses are checked after they were resolved: nothing is sent to an
//! address at which a cloud offers the credentials of the machine, whatever the name service says. Rules: no redirect is
//! followed, no proxy is asked, the answer is read only up to its head, and its connection is not used again.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Uri};
use tokio::time::Instant;

use super::service_calls::{JSON, ServiceCall, ServiceCallError};
use super::transport::{Transport, TransportError, TransportSettings};

/// The longest wait for a name, a connection, and the head of the answer together (our choice).
const TIMEOUT: Duration = Duration::from_secs(15);

/// Posts messages.
#[derive(Debug)]
pub(crate) struct WebhookClient(Transport);

// === impl WebhookClient ===

impl WebhookClient {
    /// Prepares the client; opens no connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the settings of the transport cannot be used.
    pub(crate) fn new(allows_link_local: bool) -> Result<Self, TransportError> {
        checked_transport(allows_link_local).map(Self)
    }

    /// Posts a JSON body, and returns the status of the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if there was no answer.
    pub(crate) async fn post(&self, url: &Uri, mut headers: HeaderMap, body: String) -> Result<u16, ServiceCallError> {
        headers.insert(CONTENT_TYPE, JSON);
        let call = ServiceCall { log_name: "webhook", method: Method::POST, headers, body, max_bytes: 0 };
        let response = call.send(&self.0, &url.to_string(), Instant::now() + TIMEOUT).await?;
        Ok(response.status().as_u16())
    }
}

/// Returns a transport that keeps no connection, and refuses link-local addresses unless they are allowed.
pub(super) fn checked_transport(allows_link_local: bool) -> Result<Transport, TransportError> {
    Transport::new(TransportSettings {
        refuses_address: if allows_link_local { |_| false } else { is_link_local_or_unusual },
        max_idle_per_origin: 0,
        ..TransportSettings::default()
    })
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
                || embedded_v4(address).is_some_and(refuses_v4)
        }
    }
}

/// The IPv4 address in an IPv6 address that stands for one: mapped, compatible, or of a translation (RFC 6052, RFC 3056).
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [first, second, third, .., seventh, eighth] = address.segments();
    let v4 = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match (first, second) {
        (0x64, 0xff9b) => Some(v4(seventh, eighth)),
        (0x2002, _) => Some(v4(second, third)),
        _ => address.to_ipv4(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses_are_refused_in_every_form() {
        for address in [
            "169.254.169.254",
            "169.254.0.1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::a9fe:a9fe",
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
            assert!(is_link_local_or_unusual(address.parse().unwrap()), "{address}");
        }
        // Services of an operator are often in the network of the operator.
        for address in
            ["127.0.0.1", "::1", "10.0.0.7", "192.168.1.9", "172.16.0.1", "fd12::1", "203.0.113.7", "2001:db8::1"]
        {
            assert!(!is_link_local_or_unusual(address.parse().unwrap()), "{address}");
        }
    }

    #[tokio::test]
    async fn an_address_is_checked_after_it_was_resolved_and_nothing_is_sent_to_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let settings = TransportSettings { refuses_address: |address| address.is_loopback(), ..Default::default() };
        let client = WebhookClient(Transport::new(settings).unwrap());
        let url: Uri = format!("http://localhost:{port}/hook").parse().unwrap();
        let refused = client.post(&url, HeaderMap::new(), "{}".to_owned()).await;
        assert_eq!(refused, Err(ServiceCallError::Unreachable));
        assert!(listener.accept().is_err(), "a connection was made");
    }
}
