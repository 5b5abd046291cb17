//! The endpoint of the first account: its upstream, or a port that cannot be reached or does not speak TLS.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::kit::{FakeUpstream, RefusingPort, UnresponsivePort};

/// The kind of the first account's endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointKind {
    /// The upstream itself.
    Upstream,
    /// No process listens on the port.
    Refusing,
    /// The accept queue is full: a SYN gets no answer.
    Unresponsive,
    /// Reads the TLS `ClientHello` and sends nothing.
    SilentTls,
    /// Answers the TLS `ClientHello` with plain HTTP.
    PlainHttp,
}

/// The endpoint of the first account.
pub(super) struct FirstEndpoint {
    base_url: Option<String>,
    state: Mutex<PortState>,
    /// Every byte that the endpoint received in place of TLS.
    received: Arc<Mutex<Vec<u8>>>,
}

enum PortState {
    Nothing,
    Refusing(RefusingPort),
    Unresponsive(UnresponsivePort),
    Opened(FakeUpstream),
}

// === impl FirstEndpoint ===

impl FirstEndpoint {
    pub(super) fn new(kind: EndpointKind) -> Self {
        let received = Arc::<Mutex<Vec<u8>>>::default();
        let https = |address: SocketAddr| Some(format!("https://{address}/v1"));
        let (base_url, state) = match kind {
            EndpointKind::Upstream => (None, PortState::Nothing),
            EndpointKind::Refusing => {
                let shut = RefusingPort::new();
                (Some(shut.base_url()), PortState::Refusing(shut))
            }
            EndpointKind::Unresponsive => {
                let deaf = UnresponsivePort::new();
                (Some(deaf.base_url()), PortState::Unresponsive(deaf))
            }
            EndpointKind::SilentTls => (https(start_raw_endpoint(&received, b"")), PortState::Nothing),
            EndpointKind::PlainHttp => (
                https(start_raw_endpoint(&received, b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")),
                PortState::Nothing,
            ),
        };
        Self { base_url, state: Mutex::new(state), received }
    }

    pub(super) fn base_url(&self) -> Option<String> {
        self.base_url.clone()
    }

    /// Replaces a refusing or unresponsive port by an upstream on the same port.
    pub(super) fn replace_by_upstream(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match std::mem::replace(&mut *state, PortState::Nothing) {
            PortState::Refusing(shut) => PortState::Opened(shut.open()),
            PortState::Unresponsive(deaf) => PortState::Opened(deaf.open()),
            unchanged => unchanged,
        };
    }

    /// The number of attempts since the call of `open`.
    pub(super) fn attempt_count(&self) -> usize {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            PortState::Opened(upstream) => upstream.attempt_count(),
            _ => 0,
        }
    }

    /// True if the endpoint received this text unencrypted.
    pub(super) fn received_text(&self, text: &str) -> bool {
        let heard = self.received.lock().unwrap_or_else(PoisonError::into_inner);
        heard.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// Accepts every connection, stores the received bytes, sends `reply` once and waits until the peer closes.
fn start_raw_endpoint(heard: &Arc<Mutex<Vec<u8>>>, reply: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let heard = Arc::clone(heard);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let heard = Arc::clone(&heard);
            std::thread::spawn(move || record_connection(stream, &heard, reply));
        }
    });
    address
}

fn record_connection(mut stream: TcpStream, heard: &Mutex<Vec<u8>>, reply: &[u8]) {
    drop(stream.set_read_timeout(Some(Duration::from_secs(20))));
    let mut buffer = [0; 4096];
    let mut reply = Some(reply).filter(|reply| !reply.is_empty());
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        heard.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
        if let Some(reply) = reply.take() {
            drop(stream.write_all(reply));
        }
    }
}
