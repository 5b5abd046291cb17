//! Posts a message to a service of the operator.
//!
//! It has a transport of its own, because its addresses are checked after they were resolved: nothing is sent to an
//! address at which a cloud offers the credentials of the machine, whatever the name service says. Rules: no redirect is
//! followed, no proxy is asked, the answer is read only up to its head, and its connection is not used again.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Uri};
use tokio::time::Instant;

use super::service_calls::{JSON, ServiceCall, ServiceCallError};
use super::transport::{Transport, TransportError, TransportSettings};
use crate::gateway::config::AddressPolicy;

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
        addresses: AddressPolicy::for_services(allows_link_local),
        max_idle_per_origin: 0,
        ..TransportSettings::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_is_checked_after_it_was_resolved_and_nothing_is_sent_to_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let settings = TransportSettings { addresses: AddressPolicy::PublicAnd([].into()), ..Default::default() };
        let client = WebhookClient(Transport::new(settings).unwrap());
        let url: Uri = format!("http://localhost:{port}/hook").parse().unwrap();
        let refused = client.post(&url, HeaderMap::new(), "{}".to_owned()).await;
        assert_eq!(refused, Err(ServiceCallError::Unreachable));
        assert!(listener.accept().is_err(), "a connection was made");
    }
}
