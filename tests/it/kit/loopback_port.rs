//! A port of the loopback address for the servers of the kit that serve each connection on a thread.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The port. Dropping it closes it.
pub(crate) struct LoopbackPort {
    address: SocketAddr,
    is_closed: Arc<AtomicBool>,
}

// === impl LoopbackPort ===

impl LoopbackPort {
    /// Serves each connection to an unused port on a thread. An I/O error means that the peer has closed the connection,
    /// so it is ignored.
    pub(crate) fn serve(serve: impl Fn(TcpStream) -> std::io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (is_closed, serve) = (Arc::<AtomicBool>::default(), Arc::new(serve));
        let closed = Arc::clone(&is_closed);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten().take_while(|_| !closed.load(Ordering::SeqCst)) {
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || drop(serve(stream)));
            }
        });
        Self { address, is_closed }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for an account or a client, `/v1` included.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

impl Drop for LoopbackPort {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then ends and closes the port.
        drop(TcpStream::connect(self.address));
    }
}
