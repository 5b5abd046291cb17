//! The listening socket, and the limit on the file descriptors of the process.

use std::net::{SocketAddr, TcpListener};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
#[cfg(target_os = "linux")]
use std::time::Duration;

#[cfg(unix)]
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;

#[cfg(target_os = "linux")]
use crate::tables::CLIENT_WRITE_STALL_SECONDS;

/// The number of connections that may wait to be accepted; the kernel lowers it to its own limit.
const BACKLOG: i32 = 4096;
/// The maximum number of unsent bytes that the kernel buffers for each connection (our choice). By default, the kernel
/// buffers megabytes, and reports the socket as writable only when much of the buffer is free. Then a caller that reads
/// at the lowest permitted rate would look stalled, and the kernel would continue to send for minutes after the gateway
/// has ended an answer.
#[cfg(target_os = "linux")]
const UNSENT_MAX: u32 = 128 * 1024;
/// The time in whole seconds for which the kernel keeps a connection that has sent nothing out of `accept` (our
/// choice). Most connections are then accepted together with their request, so they are not evicted before the request
/// arrives. A connection that sends nothing uses no descriptor during this time.
#[cfg(target_os = "linux")]
const DEFER_SECONDS: libc::c_int = 1;
/// The number of file descriptors that the gateway requests, at most (our choice).
const DESCRIPTORS_MAX: u64 = 65_536;
/// The number that is requested if the system refuses [`DESCRIPTORS_MAX`] although it reports no lower limit. macOS
/// does so; this is its `OPEN_MAX`.
#[cfg(unix)]
const DESCRIPTORS_FALLBACK: u64 = 10_240;

/// Opens a listening socket with the options that accepted connections inherit.
pub(super) fn bind(address: SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
    let listener = TcpListener::bind(address)?;
    let socket = SockRef::from(&listener);
    // Without this option an answer that is sent in several writes waits 40 ms.
    socket.set_tcp_nodelay(true)?;
    // The kernel closes the connection of a caller that stops reading, so that the account's slot and the record do not
    // wait for that caller.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(CLIENT_WRITE_STALL_SECONDS)))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT_MAX)?;
    #[cfg(target_os = "linux")]
    if let Err(error) = defer_accept(&socket) {
        tracing::debug!(%error, "no TCP_DEFER_ACCEPT: connections are accepted before they send anything");
    }
    // With a short backlog, clients would have to wait for seconds if many connect at once.
    socket.listen(BACKLOG)?;
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Sets `TCP_DEFER_ACCEPT`, for which no crate has a safe function.
#[cfg(target_os = "linux")]
fn defer_accept(socket: &SockRef<'_>) -> std::io::Result<()> {
    let seconds = DEFER_SECONDS;
    let size = libc::socklen_t::try_from(size_of_val(&seconds)).map_err(std::io::Error::other)?;
    // SAFETY: the descriptor is open while `socket` borrows it, and the pointer is valid for `size` bytes, which the
    // call only reads.
    #[expect(unsafe_code, reason = "no crate has a safe function for this option")]
    let result = unsafe {
        let value = (&raw const seconds).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, value, size)
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Raises the soft limit of open file descriptors to the hard limit, but at most to [`DESCRIPTORS_MAX`], and returns
/// the limit in force. A higher limit is not lowered.
#[cfg(unix)]
pub(super) fn raise_descriptor_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let target = maximum.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    let current_limit = current.unwrap_or(DESCRIPTORS_MAX);
    for requested in [target, DESCRIPTORS_FALLBACK.min(target)] {
        if requested > current_limit
            && setrlimit(Resource::Nofile, Rlimit { current: Some(requested), maximum }).is_ok()
        {
            tracing::debug!(from = current_limit, to = requested, "the limit of open files has been raised");
            return requested;
        }
    }
    current_limit
}

/// Returns the number of descriptors that is assumed on a system without such a limit.
#[cfg(not(unix))]
pub(super) fn raise_descriptor_limit() -> u64 {
    DESCRIPTORS_MAX
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    #[cfg(target_os = "linux")]
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn accepted_sockets_inherit_the_options_of_the_listener() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"G").unwrap();
        let (server, _) = listener.accept().await.unwrap();
        assert!(server.nodelay().unwrap());
        #[cfg(target_os = "linux")]
        assert_eq!(SockRef::from(&server).tcp_notsent_lowat().unwrap(), UNSENT_MAX);
        drop(client);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_is_accepted_after_its_first_byte_or_a_second() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let connect = || std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (silent, mut sending) = (connect(), connect());
        sending.write_all(b"G").unwrap();
        let (_, first) = listener.accept().await.unwrap();
        assert_eq!(first, sending.local_addr().unwrap(), "the connection that sent a byte, although it is newer");
        let (_, second) = timeout(Duration::from_secs(30), listener.accept()).await.unwrap().unwrap();
        assert_eq!(second, silent.local_addr().unwrap());
    }

    #[cfg(unix)]
    #[test]
    fn the_descriptor_limit_is_raised_and_never_lowered() {
        let before = getrlimit(Resource::Nofile);
        let raised = raise_descriptor_limit();
        let initial = before.current.unwrap_or(u64::MAX);
        assert!(raised >= initial.min(DESCRIPTORS_MAX), "{initial} {raised}");
        // The limit is lowered by one only, which does not disturb tests that run at the same time.
        let limit = raised.min(DESCRIPTORS_MAX);
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit - 1), ..before }).unwrap();
        assert_eq!(raise_descriptor_limit(), limit);
        assert_eq!(getrlimit(Resource::Nofile).current, Some(limit));
        assert_eq!(raise_descriptor_limit(), limit);
        setrlimit(Resource::Nofile, before).unwrap();
    }
}
