//! Addresses at which no upstream can be reached until the test opens them.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::FakeUpstream;

/// A port that is taken and refuses every connection.
pub(crate) struct RefusingPort(Socket);

/// A port whose queue is full: a connection is neither taken nor refused.
pub(crate) struct UnresponsivePort {
    listener: TcpListener,
    /// The connections that fill the queue.
    held: Vec<TcpStream>,
}

// === impl RefusingPort ===

impl RefusingPort {
    pub(crate) fn new() -> Self {
        Self(bound())
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", local(&self.0))
    }

    /// From now on an upstream listens there.
    pub(crate) fn open(self) -> FakeUpstream {
        self.0.listen(128).expect("it listens");
        FakeUpstream::on(self.0.into())
    }
}

// === impl UnresponsivePort ===

impl UnresponsivePort {
    pub(crate) fn new() -> Self {
        let socket = bound();
        // The shortest queue that there is.
        socket.listen(0).expect("it listens");
        let address = local(&socket);
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(100));
        let held: Vec<TcpStream> = std::iter::from_fn(|| connect().ok()).take(64).collect();
        assert!(held.len() < 64, "the queue does not fill");
        Self { listener: socket.into(), held }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.listener.local_addr().expect("an address"))
    }

    /// From now on an upstream answers there.
    pub(crate) fn open(self) -> FakeUpstream {
        drop(self.held);
        FakeUpstream::on(self.listener)
    }
}

fn bound() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    socket
}

fn local(socket: &Socket) -> SocketAddr {
    socket.local_addr().ok().and_then(|address| address.as_socket()).expect("an address")
}
