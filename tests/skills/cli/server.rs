//! An HTTPS server on `localhost` with a certificate of its own root, and a list of the requests that it got.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::NamedTempFile;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A response: its head, and a part of the body that is sent `times` times.
#[derive(Clone)]
pub(crate) struct Answer {
    head: String,
    chunk: Vec<u8>,
    repetitions: usize,
}

impl Answer {
    pub(crate) fn ok(bytes: impl Into<Vec<u8>>) -> Self {
        Self { chunk: bytes.into(), repetitions: 1, ..Self::status("200 OK") }
    }

    pub(crate) fn endless() -> Self {
        Self { chunk: vec![b' '; 1 << 20], repetitions: usize::MAX, ..Self::status("200 OK") }
    }

    pub(crate) fn status(status: &str) -> Self {
        Self { head: format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n"), chunk: Vec::new(), repetitions: 0 }
    }

    pub(crate) fn redirect(target: &str) -> Self {
        Self::status(&format!("302 Found\r\nlocation: {target}"))
    }
}

/// A running server.
pub(crate) struct Server {
    address: SocketAddr,
    root: NamedTempFile,
    requests: Arc<Mutex<Vec<String>>>,
}

// === impl Server ===

impl Server {
    /// Starts a server. `answer` gets method and path of each request, such as `GET /path`.
    pub(crate) fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
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
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (config, seen, answer) = (Arc::new(config), Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let connection = ServerConnection::new(Arc::clone(&config)).expect("a connection");
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                std::thread::spawn(move || serve(StreamOwned::new(connection, socket), &seen, &*answer));
            }
        });
        let mut root = NamedTempFile::new().expect("a file");
        root.write_all(issuer.pem().as_bytes()).expect("written");
        Self { address, root, requests }
    }

    /// The URL `https://localhost:PORT` followed by `path`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.address.port())
    }

    /// The requests so far, sorted.
    pub(crate) fn requests(&self) -> Vec<String> {
        let mut asked = self.requests.lock().expect("no thread panicked").clone();
        asked.sort_unstable();
        asked
    }

    /// The file with the root certificate.
    pub(crate) fn root_path(&self) -> &Path {
        self.root.path()
    }

    /// Makes a program trust the root certificate and use no proxy.
    pub(crate) fn trusted_by<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "SSL_CERT_DIR"] {
            command.env_remove(name);
        }
        command.env("SSL_CERT_FILE", self.root_path())
    }
}

/// Answers one request. A failure means that the client has left; the test of that client notices it.
fn serve(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    asked: &Mutex<Vec<String>>,
    answer: &dyn Fn(&str) -> Answer,
) -> Option<()> {
    let mut request = Vec::new();
    let mut byte = [0; 1];
    while !request.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        request.push(byte[0]);
    }
    let text = String::from_utf8(request).ok()?;
    let request_line = text.split(" HTTP/").next()?.to_owned();
    let Answer { head, chunk: part, repetitions: times } = answer(&request_line);
    asked.lock().ok()?.push(request_line);
    stream.write_all(head.as_bytes()).ok()?;
    for _ in 0..times {
        stream.write_all(&part).ok()?;
    }
    stream.conn.send_close_notify();
    stream.flush().ok()
}
