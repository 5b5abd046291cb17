//! A stub server for tests of programs that call image APIs: scripted answers, faults, and a ledger of what it would
//! have billed.
//!
//! It speaks plain HTTP on a loopback address, so it works with every client and needs no runtime. Each request gets the
//! next [`Answer`] of the script, in the order in which requests have arrived whole; after the script, the default.
//! Nothing depends on time unless an answer asks for a delay.
//!
//! ```
//! use imagate::Client;
//! use imagate::testing::{Answer, StubServer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The first answer breaks off after its image was paid for.
//! let server = StubServer::start([Answer::images(1).break_off(20), Answer::images(1)])?;
//! let client = Client::new(&server.base_url(), "sk-test")?;
//!
//! let error = client.images().generate("A red fox").await.unwrap_err();
//!
//! assert!(!error.is_retryable());
//! assert_eq!(server.completions(), 1, "it was paid for once");
//! assert_eq!(server.requests()[0].json()["prompt"], "A red fox");
//! # Ok(())
//! # }
//! ```

mod answer;
mod form;
mod png;
mod request;
#[cfg(test)]
mod tests;

pub use answer::Answer;
pub use form::FormPart;
pub use png::png;
pub use request::ReceivedRequest;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::iter;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;

/// A server of an image API whose answers are scripted. It ends when it is dropped: the address then refuses connections,
/// and open ones are closed.
pub struct StubServer {
    address: SocketAddr,
    shared: Arc<SharedState>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct SharedState {
    state: Mutex<ServerState>,
    /// Wakes the waits of delayed answers at the end of the server.
    stop_signal: Condvar,
}

#[derive(Default)]
struct ServerState {
    script: VecDeque<Answer>,
    default_answer: Answer,
    requests: Vec<ReceivedRequest>,
    completions: usize,
    /// The open connections, by their numbers.
    connections: HashMap<u64, TcpStream>,
    is_stopped: bool,
}

// === impl StubServer ===

impl StubServer {
    /// Starts a server on an unused port of the loopback address, with these answers for the first requests.
    ///
    /// # Errors
    ///
    /// Returns an error if the system gives no port or no thread.
    pub fn start(script: impl IntoIterator<Item = Answer>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(SharedState::default());
        shared.lock().script.extend(script);
        let accepted = Arc::clone(&shared);
        let acceptor = thread::Builder::new().name("stub server".to_owned());
        let acceptor = acceptor.spawn(move || accepted.accept_all(&listener))?;
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// Sets the answer to requests after the script. Without one, they are answered with status 500 and the code
    /// `stub_script_ended`.
    pub fn set_default(&self, answer: Answer) {
        self.shared.lock().default_answer = answer;
    }

    /// Returns the base URL for a client, which ends with `/v1`. The server does not look at the path of a request.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns the requests that have arrived whole, in order. A request is there before anything of its answer is sent.
    #[must_use]
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.lock().requests.clone()
    }

    /// Returns how many completions a service would have billed for the answers so far: one for each answer with images,
    /// counted before it is sent, so also if it then breaks off. [`Answer::completions`] changes the count of an answer.
    #[must_use]
    pub fn completions(&self) -> usize {
        self.shared.lock().completions
    }
}

impl Drop for StubServer {
    fn drop(&mut self) {
        self.shared.stop();
        // The connection ends the wait for one.
        if TcpStream::connect(self.address).is_ok()
            && let Some(acceptor) = self.acceptor.take()
        {
            drop(acceptor.join());
        }
    }
}

impl fmt::Debug for StubServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StubServer").field("address", &self.address).finish_non_exhaustive()
    }
}

// === impl SharedState ===

impl SharedState {
    fn lock(&self) -> MutexGuard<'_, ServerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves each connection on a thread of its own until the server ends; returns when all of them are closed.
    fn accept_all(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            for (number, stream) in (0..).zip(iter::from_fn(|| self.accept(listener))) {
                scope.spawn(move || self.serve(number, stream));
            }
        });
    }

    /// Returns the next connection; `None` if the server ends.
    fn accept(&self, listener: &TcpListener) -> Option<TcpStream> {
        loop {
            let connection = listener.accept();
            if self.lock().is_stopped {
                return None;
            }
            if let Ok((stream, _)) = connection {
                return Some(stream);
            }
        }
    }

    /// Serves one request of a connection, which is closed after that.
    fn serve(&self, number: u64, mut stream: TcpStream) {
        if self.register(number, &stream).is_ok()
            && let Ok(request) = ReceivedRequest::read(&stream)
        {
            let (answer, body) = self.decide(request);
            // An error means that the client or the server has ended.
            drop(self.perform(&answer, &body, &mut stream));
        }
        self.lock().connections.remove(&number);
    }

    /// Adds the connection to those that the end of the server closes.
    fn register(&self, number: u64, stream: &TcpStream) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_stopped {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        state.connections.insert(number, stream.try_clone()?);
        Ok(())
    }

    /// Takes the next answer of the script, and records it with its request.
    fn decide(&self, request: ReceivedRequest) -> (Answer, Bytes) {
        let mut state = self.lock();
        let answer = state.script.pop_front().unwrap_or_else(|| state.default_answer.clone());
        let body = answer.body_for(&request);
        state.completions += answer.completions;
        state.requests.push(request);
        (answer, body)
    }

    fn perform(&self, answer: &Answer, body: &[u8], stream: &mut TcpStream) -> io::Result<()> {
        self.wait(answer.delay)?;
        if let Some(body_to_send) = answer.part_to_send(body) {
            stream.write_all(answer.head(body.len()).as_bytes())?;
            self.send_pieces(answer, body_to_send, stream)?;
        }
        if answer.keeps_open {
            // It returns when the client closes the connection, or when the server ends.
            stream.read_to_end(&mut Vec::new())?;
        }
        Ok(())
    }

    fn send_pieces(&self, answer: &Answer, body: &[u8], stream: &mut TcpStream) -> io::Result<()> {
        for (index, piece) in body.chunks(answer.piece_bytes).enumerate() {
            if index > 0 {
                self.wait(answer.pause)?;
            }
            stream.write_all(piece)?;
        }
        Ok(())
    }

    /// Waits; returns an error if the server ends before.
    fn wait(&self, duration: Duration) -> io::Result<()> {
        let waiting = self.stop_signal.wait_timeout_while(self.lock(), duration, |state| !state.is_stopped);
        let (state, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        if state.is_stopped { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.is_stopped = true;
        for stream in state.connections.values() {
            // An error means that the connection is closed already.
            drop(stream.shutdown(Shutdown::Both));
        }
        self.stop_signal.notify_all();
    }
}
