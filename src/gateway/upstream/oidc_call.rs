//! The calls to a provider of OpenID Connect: its metadata, its keys, and its token endpoint.
//!
//! The transport is like that of webhooks, because the provider's metadata names the further addresses.

use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Uri};
use tokio::time::Instant;

use super::service_calls::{FORM, ServiceCall, ServiceCallError};
use super::transport::{Transport, TransportError};
use super::webhook_call::checked_transport;

/// The longest wait for a whole answer (our choice): a person waits for it.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of an answer (our choice). Metadata, keys and tokens are usually much smaller.
const MAX_BYTES: usize = 256 * 1024;

/// Calls a provider.
#[derive(Debug)]
pub(crate) struct OidcClient(Transport);

// === impl OidcClient ===

impl OidcClient {
    /// Prepares the client; opens no connection.
    ///
    /// # Errors
    ///
    /// Returns an error if the settings of the transport cannot be used.
    pub(crate) fn new(allows_link_local: bool) -> Result<Self, TransportError> {
        checked_transport(allows_link_local).map(Self)
    }

    /// Returns the body of a successful answer.
    ///
    /// # Errors
    ///
    /// Returns an error if there was no answer, or none with status 200.
    pub(crate) async fn get(&self, url: &str) -> Result<Bytes, ServiceCallError> {
        let call = ServiceCall {
            log_name: "sign-in provider",
            method: Method::GET,
            headers: HeaderMap::new(),
            body: String::new(),
            max_bytes: MAX_BYTES,
        };
        match call.send_and_read(&self.0, url, Instant::now() + TIMEOUT).await? {
            (200, body) => Ok(body),
            (status, _) => Err(ServiceCallError::Status(status)),
        }
    }

    /// Posts a form, and returns the status and the body of the answer.
    ///
    /// # Errors
    ///
    /// Returns an error if there was no answer.
    pub(crate) async fn post_form(
        &self,
        url: &Uri,
        form: String,
        authorization: Option<HeaderValue>,
    ) -> Result<(u16, Bytes), ServiceCallError> {
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, FORM)]);
        headers.extend(authorization.map(|value| (AUTHORIZATION, value)));
        let call = ServiceCall {
            log_name: "sign-in provider",
            method: Method::POST,
            headers,
            body: form,
            max_bytes: MAX_BYTES,
        };
        call.send_and_read(&self.0, &url.to_string(), Instant::now() + TIMEOUT).await
    }
}
