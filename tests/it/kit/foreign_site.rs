//! A web site of another origin, on another port of this machine: for tests of what the pages of an attacker can do.

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::http::{read_headers, read_line};

/// The header lines and the body of a page.
pub(crate) type SitePage = (&'static str, String);

/// The site. Dropping it closes the port.
pub(crate) struct ForeignSite {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
}

// === impl ForeignSite ===

impl ForeignSite {
    /// Serves the page that `find` returns for a path; every other path is a 404.
    pub(crate) fn start(find: impl Fn(&str) -> Option<SitePage> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let closed = Arc::<AtomicBool>::default();
        let ending = Arc::clone(&closed);
        std::thread::spawn(move || {
            let mut streams = listener.incoming().flatten().take_while(|_| !ending.load(Ordering::SeqCst));
            // A browser that hangs up in the middle wants nothing more.
            streams.by_ref().for_each(|stream| drop(answer(stream, &find)));
        });
        Self { address, closed }
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for ForeignSite {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then ends and closes the port.
        drop(TcpStream::connect(self.address));
    }
}

fn answer(stream: TcpStream, find: &impl Fn(&str) -> Option<SitePage>) -> std::io::Result<()> {
    // A browser opens connections in advance and says nothing on them.
    stream.set_read_timeout(Some(std::time::Duration::from_millis(500)))?;
    let mut reader = BufReader::new(stream);
    let line = read_line(&mut reader)?;
    read_headers(&mut reader)?;
    let path = line.split(' ').nth(1).unwrap_or_default();
    let (status, headers, body) = match find(path) {
        Some((headers, body)) => ("200 OK", headers, body),
        None => ("404 Not Found", "content-type: text/plain", String::new()),
    };
    let head = format!("HTTP/1.1 {status}\r\n{headers}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    reader.get_mut().write_all((head + &body).as_bytes())
}
