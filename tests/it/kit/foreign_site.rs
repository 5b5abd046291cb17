//! A web site of another origin, on another port of this machine: for tests of what the pages of an attacker can do.

use std::io::{BufReader, Write};
use std::net::TcpStream;

use super::LoopbackPort;
use super::http::{read_headers, read_line};

/// The header lines and the body of a page.
pub(crate) type SitePage = (&'static str, String);

/// The site. Dropping it closes the port.
pub(crate) struct ForeignSite(LoopbackPort);

// === impl ForeignSite ===

impl ForeignSite {
    /// Serves the page that `find` returns for a path; every other path is a 404.
    pub(crate) fn start(find: impl Fn(&str) -> Option<SitePage> + Send + Sync + 'static) -> Self {
        Self(LoopbackPort::serve(move |stream| answer(stream, &find)))
    }

    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.0.address())
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
