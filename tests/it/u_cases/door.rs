//! What stands where the first account's upstream should be.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::kit::{FakeUpstream, RefusingPort, UnresponsivePort};

/// As a row asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The upstream itself.
    Open,
    /// Nobody listens.
    Shut,
    /// A full queue: no answer to a SYN.
    Deaf,
    /// Takes a TLS greeting and says nothing.
    Mute,
    /// Answers a TLS greeting with plain HTTP.
    Plain,
}

/// As it stands there.
pub(super) struct Door {
    base_url: Option<String>,
    state: Mutex<State>,
    /// Every byte that a trap got.
    heard: Arc<Mutex<Vec<u8>>>,
}

enum State {
    Nothing,
    Shut(RefusingPort),
    Deaf(UnresponsivePort),
    Opened(FakeUpstream),
}

// === impl Door ===

impl Door {
    pub(super) fn new(kind: Kind) -> Self {
        let heard = Arc::<Mutex<Vec<u8>>>::default();
        let https = |address: SocketAddr| Some(format!("https://{address}/v1"));
        let (base_url, state) = match kind {
            Kind::Open => (None, State::Nothing),
            Kind::Shut => {
                let shut = RefusingPort::new();
                (Some(shut.base_url()), State::Shut(shut))
            }
            Kind::Deaf => {
                let deaf = UnresponsivePort::new();
                (Some(deaf.base_url()), State::Deaf(deaf))
            }
            Kind::Mute => (https(trap(&heard, b"")), State::Nothing),
            Kind::Plain => {
                (https(trap(&heard, b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")), State::Nothing)
            }
        };
        Self { base_url, state: Mutex::new(state), heard }
    }

    pub(super) fn base_url(&self) -> Option<String> {
        self.base_url.clone()
    }

    /// From now on there is a good upstream, where there can be one.
    pub(super) fn open(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = match std::mem::replace(&mut *state, State::Nothing) {
            State::Shut(shut) => State::Opened(shut.open()),
            State::Deaf(deaf) => State::Opened(deaf.open()),
            other => other,
        };
    }

    /// How many attempts came through it since it was opened.
    pub(super) fn attempts(&self) -> usize {
        match &*self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            State::Opened(upstream) => upstream.attempts(),
            _ => 0,
        }
    }

    /// Whether a trap behind TLS was told this.
    pub(super) fn heard(&self, text: &str) -> bool {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// Takes every connection, keeps what it hears, says one thing and waits for the other side to leave.
fn trap(heard: &Arc<Mutex<Vec<u8>>>, word: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let heard = Arc::clone(heard);
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let heard = Arc::clone(&heard);
            std::thread::spawn(move || listen(stream, &heard, word));
        }
    });
    address
}

fn listen(mut stream: TcpStream, heard: &Mutex<Vec<u8>>, word: &[u8]) {
    drop(stream.set_read_timeout(Some(Duration::from_secs(20))));
    let mut buffer = [0; 4096];
    let mut word = Some(word).filter(|word| !word.is_empty());
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        heard.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
        if let Some(word) = word.take() {
            drop(stream.write_all(word));
        }
    }
}
