//! Makes connections to origins. Each is ready for a request: with https, its TLS session is established.
//!
//! The module decides which address is tried when, and which certificates TLS trusts. It must not know requests. Rules:
//! connecting and the handshake each have a time limit (U01 to U03); certificates are always verified, against the
//! machine's own trust store and the additional roots of the settings, and no switch disables this (U03).

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, crypto::aws_lc_rs};

use super::error::{SendError, SendErrorKind, SendProgress};
use super::origin::UpstreamOrigin;
use super::resolver::Resolver;
use super::socket::UpstreamSocket;
use super::transport_stream::TransportStream;
use super::{TransportError, TransportSettings};

/// The delay after which the next address is tried in parallel if no attempt has ended (RFC 8305, section 5).
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);
/// The most addresses of a name that are tried (our choice).
const MAX_ADDRESSES: usize = 8;

/// Connects to origins, with TLS if the scheme is https.
pub(super) struct Dialer {
    settings: TransportSettings,
    resolver: Resolver,
    tls_connector: OnceLock<TlsConnector>,
    connector_loader: ConnectorLoader,
}

/// Makes the TLS connector; reads the machine's certificates.
type ConnectorLoader = fn(&TransportSettings) -> Result<TlsConnector, rustls::Error>;

type ConnectFuture = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

// === impl Dialer ===

impl Dialer {
    pub(super) fn new(settings: TransportSettings) -> Self {
        Self {
            settings,
            resolver: Resolver::default(),
            tls_connector: OnceLock::new(),
            connector_loader: build_tls_connector,
        }
    }

    pub(super) async fn dial(&self, origin: &UpstreamOrigin) -> Result<TransportStream, SendError> {
        let connect = timeout(self.settings.connect_timeout, self.connect(origin));
        let tcp = connect.await.map_err(|_| SendError::timeout(SendProgress::Nothing))??;
        let socket = UpstreamSocket::new(tcp, self.settings.write_timeout, origin.is_tls())
            .map_err(|error| SendError::before_first_byte(SendErrorKind::Connect, error))?;
        if !origin.is_tls() {
            return Ok(TransportStream::Plain(socket));
        }
        let handshake = timeout(self.settings.tls_timeout, self.handshake(origin, socket));
        handshake.await.map_err(|_| SendError::timeout(SendProgress::Nothing))?
    }

    async fn connect(&self, origin: &UpstreamOrigin) -> Result<TcpStream, SendError> {
        let mut addresses = self
            .resolver
            .resolve(origin.host(), origin.port())
            .await
            .map_err(|error| SendError::before_first_byte(SendErrorKind::Resolve, error))?;
        // The check is here, because the address that was checked must be the one that is connected to.
        addresses.retain(|address| self.settings.addresses.allows(address.ip()));
        if addresses.is_empty() {
            let error = io::Error::new(io::ErrorKind::PermissionDenied, "no allowed address was found");
            return Err(SendError::before_first_byte(SendErrorKind::Resolve, error));
        }
        addresses.truncate(MAX_ADDRESSES);
        connect_first(addresses).await.map_err(|error| SendError::before_first_byte(SendErrorKind::Connect, error))
    }

    async fn handshake(&self, origin: &UpstreamOrigin, socket: UpstreamSocket) -> Result<TransportStream, SendError> {
        let connector =
            self.tls_connector().map_err(|error| SendError::before_first_byte(SendErrorKind::Tls, error))?;
        let name = ServerName::try_from(origin.host().to_owned())
            .map_err(|error| SendError::before_first_byte(SendErrorKind::Resolve, error))?;
        let stream = connector.connect(name, socket).await;
        stream
            .map(|stream| TransportStream::Tls(Box::new(stream)))
            .map_err(|error| SendError::before_first_byte(SendErrorKind::Tls, error))
    }

    /// Returns the TLS connector. Reads the machine's certificates on first use only: an installation without https
    /// upstreams needs none. A failure is not kept, because it may pass, such as a lack of file descriptors.
    pub(super) fn tls_connector(&self) -> Result<TlsConnector, TransportError> {
        if let Some(connector) = self.tls_connector.get() {
            return Ok(connector.clone());
        }
        let connector = (self.connector_loader)(&self.settings).map_err(TransportError::Roots)?;
        Ok(self.tls_connector.get_or_init(|| connector).clone())
    }
}

fn build_tls_connector(settings: &TransportSettings) -> Result<TlsConnector, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let roots = settings.extra_roots.iter().cloned();
    let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&provider))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        // `dangerous` warns of verifiers that are too lax. The machine's own verifier is as strict as the default one,
        // and can be set together with additional roots in no other way.
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Returns the first connection that is accepted. The next address is tried if an attempt fails, or if none has ended
/// within [`NEXT_ADDRESS_DELAY`].
async fn connect_first(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut remaining = addresses.into_iter();
    let mut attempts: Vec<ConnectFuture> = Vec::new();
    let mut last_error = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(address) = remaining.next() {
            attempts.push(Box::pin(TcpStream::connect(address)));
        } else if attempts.is_empty() {
            return Err(last_error);
        }
        let result = if remaining.len() == 0 {
            next_finished(&mut attempts).await
        } else {
            let Ok(result) = timeout(NEXT_ADDRESS_DELAY, next_finished(&mut attempts)).await else { continue };
            result
        };
        match result {
            Ok(tcp) => return Ok(tcp),
            Err(error) => last_error = error,
        }
    }
}

/// Waits until one of the attempts ends, and removes it from the list.
async fn next_finished(attempts: &mut Vec<ConnectFuture>) -> io::Result<TcpStream> {
    poll_fn(|cx| {
        for index in 0..attempts.len() {
            if let Poll::Ready(result) = attempts[index].as_mut().poll(cx) {
                drop(attempts.swap_remove(index));
                return Poll::Ready(result);
            }
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn certificates_that_could_not_be_read_are_read_again_and_then_kept() {
        static LOADS: AtomicUsize = AtomicUsize::new(0);
        let fails_once = |settings: &TransportSettings| match LOADS.fetch_add(1, Ordering::SeqCst) {
            0 => Err(rustls::Error::General("no file descriptor is left".to_owned())),
            _ => build_tls_connector(settings),
        };
        let dialer = Dialer { connector_loader: fails_once, ..Dialer::new(TransportSettings::default()) };
        assert!(matches!(dialer.tls_connector(), Err(TransportError::Roots(_))));
        for _ in 0..3 {
            drop(dialer.tls_connector().unwrap());
        }
        assert_eq!(LOADS.load(Ordering::SeqCst), 2);
    }
}
