//! Manifests behind an address: https and nothing else, where it is allowed, and no more than is read.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::NamedTempFile;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{DONE, Done, FOUND, USAGE, case, done, program};

/// A server for `localhost`, and the root that vouches for it.
struct Server {
    address: SocketAddr,
    root: NamedTempFile,
}

// === impl Server ===

impl Server {
    /// Gives the same answer to the first caller, again and again: a head, and a part as often as it is taken.
    fn start(head: &str, part: Vec<u8>, times: usize) -> Self {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("a root");
        let key = KeyPair::generate().expect("a key");
        let names = CertificateParams::new(["localhost".to_owned()]).expect("a name");
        let leaf = names.signed_by(&key, &issuer).expect("a certificate");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).expect("a key"))
            .expect("a configuration");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (config, head) = (Arc::new(config), head.to_owned());
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
                answer(StreamOwned::new(connection, socket), &head, &part, times);
            }
        });
        let mut root = NamedTempFile::new().expect("a file");
        root.write_all(issuer.pem().as_bytes()).expect("written");
        Self { address, root }
    }

    fn validate(&self, arguments: &[&str]) -> Done {
        let address = format!("https://localhost:{}/skills.json", self.address.port());
        let mut command = program(&[&["validate", &address], arguments].concat());
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "SSL_CERT_DIR"] {
            command.env_remove(name);
        }
        done(command.env("SSL_CERT_FILE", self.root.path()), None)
    }
}

/// What goes wrong here is that the caller left, which the caller's own test judges.
fn answer(
    mut stream: StreamOwned<ServerConnection, std::net::TcpStream>,
    head: &str,
    part: &[u8],
    times: usize,
) -> Option<()> {
    let mut request = Vec::new();
    let mut byte = [0; 1];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    stream.write_all(head.as_bytes()).ok()?;
    for _ in 0..times {
        stream.write_all(part).ok()?;
    }
    stream.conn.send_close_notify();
    stream.flush().ok()
}

const OK: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";

#[test]
fn a_manifest_is_downloaded_where_that_is_allowed() {
    let server = Server::start(OK, std::fs::read(case("M036/build-metadata")).expect("a case"), 1);
    let done = server.validate(&["--allow-network"]);
    assert!(done.code == FOUND && done.stdout.contains("/skills.json:43:18"), "{done:?}");
    let server = Server::start(OK, std::fs::read(case("good/full")).expect("a case"), 1);
    assert_eq!(server.validate(&["--allow-network"]).code, DONE);
    let refused = server.validate(&[]);
    assert!(refused.code == USAGE && refused.stderr.contains("--allow-network"), "{refused:?}");
}

#[test]
fn a_server_that_nobody_vouches_for_is_not_believed() {
    let server = Server::start(OK, std::fs::read(case("good/full")).expect("a case"), 1);
    let address = format!("https://localhost:{}/skills.json", server.address.port());
    let mut command = program(&["validate", &address, "--allow-network"]);
    let done = done(command.env_remove("SSL_CERT_FILE"), None);
    assert!(done.code == FOUND && done.stdout.is_empty(), "{done:?}");
}

#[test]
fn a_download_is_never_sent_to_http() {
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port");
    plain.set_nonblocking(true).expect("it does not wait");
    let port = plain.local_addr().expect("an address").port();
    let head = format!("HTTP/1.1 302 Found\r\nlocation: http://localhost:{port}/x\r\nconnection: close\r\n\r\n");
    let done = Server::start(&head, Vec::new(), 0).validate(&["--allow-network"]);
    assert!(done.code == FOUND && done.stdout.is_empty(), "{done:?}");
    assert!(plain.accept().is_err(), "it was called without TLS");
}

#[test]
fn an_answer_that_is_no_manifest_is_a_failure() {
    let head = "HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n";
    let done = Server::start(head, b"{}".to_vec(), 1).validate(&["--allow-network"]);
    assert!(done.code == FOUND && done.stderr.contains("404"), "{done:?}");
}

#[test]
fn a_download_without_an_end_is_ended() {
    let done = Server::start(OK, vec![b' '; 1 << 20], usize::MAX).validate(&["--allow-network"]);
    assert!(done.code == FOUND && done.stderr.contains("67108864 bytes"), "{done:?}");
}
