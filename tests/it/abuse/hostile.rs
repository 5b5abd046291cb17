//! A connection of a hostile caller: it sends its bytes as far as the gateway reads them, and then stays open.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// The deadline for connecting, which passes only if the gateway accepts no connections.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

static FILLER: [u8; 64 << 10] = [b' '; 64 << 10];

/// A non-blocking connection from an address of this machine.
pub(super) struct HostileConnection {
    stream: Option<TcpStream>,
    unsent: Vec<u8>,
    /// The number of filler bytes to send after `unsent`.
    filler: usize,
}

// === impl HostileConnection ===

impl HostileConnection {
    /// Connects from 127.0.0.1 or one of a few neighbouring addresses, to send these bytes and then `filler` more.
    pub(super) fn connect(number: usize, address: SocketAddr, unsent: Vec<u8>, filler: usize) -> Self {
        Self { stream: connect(number, address).ok(), unsent, filler }
    }

    /// True if the gateway has closed the connection or never accepted it.
    pub(super) fn is_gone(&self) -> bool {
        self.stream.is_none()
    }

    pub(super) fn advance(&mut self) {
        let Some(stream) = &mut self.stream else { return };
        let alive = send(stream, &mut self.unsent, &mut self.filler).and_then(|()| read(stream)).is_ok();
        if !alive {
            self.stream = None;
        }
    }
}

fn connect(number: usize, address: SocketAddr) -> std::io::Result<TcpStream> {
    let last = u8::try_from(1 + number % 8).unwrap_or(1);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), 0).into())?;
    socket.connect_timeout(&address.into(), CONNECT_TIMEOUT)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Sends a piece of the remaining bytes, as far as the gateway reads it.
fn send(stream: &mut TcpStream, unsent: &mut Vec<u8>, filler: &mut usize) -> std::io::Result<()> {
    let piece = if unsent.is_empty() { &FILLER[..FILLER.len().min(*filler)] } else { unsent.as_slice() };
    if piece.is_empty() {
        return Ok(());
    }
    let sent = match stream.write(piece) {
        Ok(sent) => sent,
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        Err(error) => return Err(error),
    };
    if unsent.is_empty() {
        *filler -= sent;
    } else {
        unsent.drain(..sent);
    }
    Ok(())
}

/// Reads and drops what has arrived of an answer. The end of the connection is an error.
fn read(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut answer = [0; 4096];
    match stream.read(&mut answer) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}
