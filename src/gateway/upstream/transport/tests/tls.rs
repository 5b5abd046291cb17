//! Tests of TLS: trusted and untrusted certificates, handshakes that fail, the sizes of frames, and connections that
//! the upstream closes.

use std::net::SocketAddr;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use super::*;

/// A TLS server for one name, and the root that signed its certificate.
struct TlsUpstream {
    upstream: Upstream,
    acceptor: TlsAcceptor,
    root: CertificateDer<'static>,
}

impl TlsUpstream {
    async fn start(name: &str) -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
            .unwrap();
        // The server prefers another protocol, which must not be used.
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (acceptor, root) = (TlsAcceptor::from(Arc::new(config)), issuer.der().clone());
        Self { upstream: Upstream::start().await, acceptor, root }
    }

    fn uri(&self, name: &str) -> String {
        let address: SocketAddr = self.upstream.0.local_addr().unwrap();
        format!("https://{name}:{}/v1/images", address.port())
    }

    async fn accept(&self) -> std::io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(self.upstream.accept().await).await
    }

    fn trusting_transport(&self) -> Transport {
        Transport::new(TransportSettings { extra_roots: vec![self.root.clone()], ..TransportSettings::default() })
            .unwrap()
    }
}

/// Returns the sizes of an answer's frames.
async fn frame_sizes(transport: &Transport, uri: &str) -> Vec<usize> {
    let (mut body, mut sizes) = (send(transport, uri).await.unwrap().into_body(), Vec::new());
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.iter().all(|byte| *byte == b'x'));
        sizes.push(data.len());
    }
    sizes
}

#[tokio::test]
async fn the_connection_of_a_trusted_upstream_is_reused() {
    let (secure, length) = (TlsUpstream::start("localhost").await, 3 << 20);
    let (transport, uri) = (secure.trusting_transport(), secure.uri("localhost"));
    let server = async {
        let mut stream = secure.accept().await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(stream.get_ref().1.server_name(), Some("localhost"));
        for _ in 0..2 {
            request(&mut stream).await;
            stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes()).await.unwrap();
            stream.write_all(&vec![b'x'; length]).await.unwrap();
            stream.flush().await.unwrap();
        }
        stream
    };
    let client = async {
        let (first, second) = (frame_sizes(&transport, &uri).await, frame_sizes(&transport, &uri).await);
        assert_eq!((first.iter().sum(), second.iter().sum(), transport.0.pool.len()), (length, length, 1));
        let largest = first.into_iter().chain(second).max().unwrap();
        println!("the largest frame {largest}");
        assert!(largest > 16 * 1024, "a frame holds more than one TLS record: {largest}");
    };
    let _open = tokio::join!(server, client);
}

#[tokio::test]
async fn an_untrusted_upstream_receives_no_request() {
    let secure = TlsUpstream::start("localhost").await;
    // The root is unknown, or the certificate is for another name.
    for (transport, name) in [(transport(), "localhost"), (secure.trusting_transport(), "127.0.0.1")] {
        let uri = secure.uri(name);
        let (accepted, answer) = tokio::join!(secure.accept(), send(&transport, &uri));
        let error = answer.unwrap_err();
        assert_eq!((error.kind, error.sent), (SendErrorKind::Tls, SendProgress::Nothing));
        assert!(!error.to_string().contains("localhost"));
        assert!(accepted.is_err());
    }
}

#[tokio::test]
async fn nothing_is_sent_if_the_handshake_stalls_or_breaks_off() {
    let upstream = Upstream::start().await;
    let uri = upstream.uri().replace("http:", "https:");
    let tls_timeout = Duration::from_millis(50);
    let transport = Transport::new(TransportSettings { tls_timeout, ..TransportSettings::default() }).unwrap();
    let (_open, answer) = tokio::join!(upstream.accept(), send(&transport, &uri));
    let error = answer.unwrap_err();
    assert_eq!((error.kind, error.sent), (SendErrorKind::Timeout, SendProgress::Nothing));

    let ((), answer) = tokio::join!(async { drop(upstream.accept().await) }, send(&transport, &uri));
    let error = answer.unwrap_err();
    assert_eq!((error.kind, error.sent), (SendErrorKind::Tls, SendProgress::Nothing));
}

#[tokio::test]
async fn a_close_without_close_notify_truncates_the_body() {
    let secure = TlsUpstream::start("localhost").await;
    let (transport, uri) = (secure.trusting_transport(), secure.uri("localhost"));
    let server = async {
        let mut stream = secure.accept().await.unwrap();
        request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nhalf").await.unwrap();
        stream.flush().await.unwrap();
    };
    let ((), body) = tokio::join!(server, fetch(&transport, &uri));
    assert_eq!(body.unwrap_err().kind, BodyErrorKind::Truncated);
}

#[tokio::test]
async fn a_session_closed_while_idle_fails_no_request() {
    let secure = TlsUpstream::start("localhost").await;
    let (transport, uri) = (secure.trusting_transport(), secure.uri("localhost"));
    for _ in 0..10 {
        let server = async {
            let mut stream = secure.accept().await.unwrap();
            request(&mut stream).await;
            stream.write_all(OK.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let ((), body) = tokio::join!(server, fetch(&transport, &uri));
        assert_eq!(body.unwrap(), "ok");
    }
}
