//! The HTTP server: an accept loop in front of the routes. Its stop has a time limit.
//!
//! Only HTTP/1 is supported: a connection that begins with HTTP/2 is refused as an unsupported version.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::connections::ConnectionTable;
use super::cors::CorsSettings;
use super::dispatch::RequestDispatcher;
use super::listener;
use super::request_id::new_request_id;
use super::response::error_response;
use super::route::Route;
use super::served_connection::{refuse, serve};
use crate::error::Error;

/// The pause after a failed `accept`, which usually means that descriptors or memory are short (our choice).
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// The maximum number of connections that are accepted after a stop was requested (our choice): more than the system
/// keeps in its queue.
const LAST_CONNECTIONS_MAX: usize = 4096;

/// A running server. After it is dropped, it accepts no more connections.
pub(crate) struct HttpServer {
    address: SocketAddr,
    connections: Arc<ConnectionTable>,
    stop: oneshot::Sender<()>,
    accept_task: JoinHandle<()>,
}

/// The reason why the server could not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// The routes contradict each other, which is a defect of the gateway.
    #[error("the routes contradict each other: {0}")]
    Routes(String),
    /// The gateway cannot listen on the address, for example because the address is in use.
    #[error("cannot listen: failed to bind to {address}")]
    Listen {
        /// The address to listen on.
        address: SocketAddr,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
}

/// The loop that accepts connections.
struct ConnectionAcceptor<C: CorsSettings> {
    connections: Arc<ConnectionTable>,
    dispatcher: Arc<RequestDispatcher<C>>,
}

/// Starts a server for these routes, whose handlers get `server`.
///
/// # Errors
///
/// Returns an error if two routes contradict each other, or the gateway cannot listen on the address.
pub(crate) fn start<C: CorsSettings>(
    routes: Vec<Route<C>>,
    server: C,
    listen: SocketAddr,
    connections: Arc<ConnectionTable>,
) -> Result<HttpServer, ServerError> {
    let dispatcher = Arc::new(RequestDispatcher::new(routes, server)?);
    let listen_error = |source| ServerError::Listen { address: listen, source };
    let listener = listener::bind(listen).map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    let acceptor = ConnectionAcceptor { connections: Arc::clone(&connections), dispatcher };
    let (stop, stopped) = oneshot::channel();
    let accept_task = Handle::current().spawn(acceptor.run(listener, stopped));
    Ok(HttpServer { address, connections, stop, accept_task })
}

// === impl HttpServer ===

impl HttpServer {
    /// The address that the server listens on, with the port that the system chose if port 0 was requested.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections at once, and waits at most `time_limit` for running requests. Returns `false` if the
    /// time limit is reached first.
    pub(crate) async fn stop(self, time_limit: Duration) -> bool {
        let Self { connections, stop, accept_task, .. } = self;
        drop(stop);
        let stopped = async {
            if let Err(error) = accept_task.await {
                tracing::error!(%error, "the accept loop has failed");
            }
            connections.shut_down().await;
        };
        timeout(time_limit, stopped).await.is_ok()
    }
}

// === impl ConnectionAcceptor ===

impl<C: CorsSettings> ConnectionAcceptor<C> {
    /// Accepts connections until the sender of `stop` is dropped, and then closes the port.
    async fn run(self, listener: TcpListener, mut stop: oneshot::Receiver<()>) {
        loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut stop => return self.accept_last(listener).await,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, remote)) => self.handle_connection(stream, remote).await,
                Err(error) if is_peer_error(&error) => {}
                Err(error) => {
                    self.connections.accept_failed(&error);
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Accepts the connections that the system has completed already, and closes the port: their clients have sent their
    /// requests, or are about to, and could not know whether a reset connection was served.
    async fn accept_last(&self, listener: TcpListener) {
        // The system knows of connections of which the asynchronous listener does not know yet.
        let Ok(listener) = listener.into_std() else { return };
        for _ in 0..LAST_CONNECTIONS_MAX {
            let Ok((stream, remote)) = listener.accept() else { return };
            if stream.set_nonblocking(true).is_ok()
                && let Ok(stream) = TcpStream::from_std(stream)
            {
                self.handle_connection(stream, remote).await;
            }
        }
    }

    async fn handle_connection(&self, stream: TcpStream, remote: SocketAddr) {
        match self.connections.admit(remote) {
            Some(slot) => {
                drop(Handle::current().spawn(serve(stream, remote, slot, Arc::clone(&self.dispatcher))));
            }
            None => {
                let slot = self.connections.slot_for_refusal(remote);
                drop(Handle::current().spawn(refuse(stream, slot, unavailable_response())));
            }
        }
        // A connection that was just accepted gets time to read its request before another one can evict it.
        tokio::task::yield_now().await;
        self.connections.wait_for_evicted().await;
    }
}

/// True if only the connection failed, before it was accepted.
fn is_peer_error(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// The complete HTTP answer to a connection that cannot be admitted.
fn unavailable_response() -> String {
    let answer = error_response(&Error::Unavailable);
    let mut text =
        format!("HTTP/1.1 {}\r\nconnection: close\r\ncontent-length: {}\r\n", answer.status(), answer.body().len());
    for (name, value) in answer.headers() {
        text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap_or_default()));
    }
    text.push_str(&format!("{}: {}\r\n\r\n", dropshot::HEADER_REQUEST_ID, new_request_id()));
    text.push_str(&String::from_utf8_lossy(answer.body()));
    text
}

#[cfg(test)]
mod tests;
