//! The listening socket, and the number of descriptors that the process may have.

use std::net::{SocketAddr, TcpListener};
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;
#[cfg(target_os = "linux")]
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;

#[cfg(target_os = "linux")]
use crate::tables::CLIENT_WRITE_STALL_SECONDS;

/// The number of connections that may wait to be accepted; the kernel lowers it to its own limit.
const BACKLOG: i32 = 4096;
/// The most unsent bytes of an answer that the kernel buffers per connection (our choice). By default it would buffer
/// megabytes, and report the socket as writable only when much of the buffer is free: a caller that reads at the lowest
/// permitted rate would look stalled, and the kernel would go on sending an answer for minutes after it was cut off.
#[cfg(target_os = "linux")]
const UNSENT_MAX: u32 = 128 * 1024;
/// The number of seconds for which the kernel holds back a connection that has sent nothing (our choice). A connection
/// is then accepted together with its request, so it cannot be closed for a newer one before its request arrives; and a
/// connection that never sends anything uses no descriptor for this time. The option takes whole seconds.
#[cfg(target_os = "linux")]
const DEFER_SECONDS: libc::c_int = 1;
/// The maximum number of descriptors that is requested (our choice).
const DESCRIPTORS_MAX: u64 = 65_536;
/// Requested if the system refuses the number above without reporting a lower limit, as macOS does (its `OPEN_MAX`).
const DESCRIPTORS_FALLBACK: u64 = 10_240;

/// Listens at an address, with the options that every accepted connection inherits.
pub(super) fn bind(address: SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
    let listener = TcpListener::bind(address)?;
    let socket = SockRef::from(&listener);
    // Without this option an answer that is sent in several writes waits 40 ms.
    socket.set_tcp_nodelay(true)?;
    // The connection of a caller that stops reading is cut, so that the account's slot and the record do not wait for
    // it.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(CLIENT_WRITE_STALL_SECONDS)))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT_MAX)?;
    #[cfg(target_os = "linux")]
    if let Err(error) = defer_accept(&socket) {
        tracing::debug!(%error, "connections are accepted before they send anything");
    }
    // With a short backlog, clients wait for seconds if many connect at once.
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

/// Raises the soft limit of open descriptors to the hard limit, but at most to `DESCRIPTORS_MAX`, and returns it. A
/// higher limit is not lowered.
pub(crate) fn raise_descriptor_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let target = maximum.unwrap_or(DESCRIPTORS_MAX).min(DESCRIPTORS_MAX);
    let current_limit = current.unwrap_or(DESCRIPTORS_MAX);
    for wanted in [target, DESCRIPTORS_FALLBACK.min(target)] {
        if wanted > current_limit && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).is_ok() {
            tracing::debug!(from = current_limit, to = wanted, "the limit of open files has been raised");
            return wanted;
        }
    }
    current_limit
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    #[cfg(target_os = "linux")]
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn accepted_sockets_inherit_what_is_set() {
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
    async fn a_connection_is_accepted_when_it_sends_something_or_after_a_second() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let connect = || std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (silent, mut used) = (connect(), connect());
        used.write_all(b"G").unwrap();
        let (_, first) = listener.accept().await.unwrap();
        assert_eq!(first, used.local_addr().unwrap(), "the one that sent something, although it is the newer one");
        let (_, second) = timeout(Duration::from_secs(30), listener.accept()).await.unwrap().unwrap();
        assert_eq!(second, silent.local_addr().unwrap());
    }

    #[test]
    fn the_limit_is_raised_as_far_as_possible_and_never_lowered() {
        let before = getrlimit(Resource::Nofile);
        let raised = raise_descriptor_limit();
        let most = before.current.unwrap_or(u64::MAX);
        assert!(raised >= most.min(DESCRIPTORS_MAX), "{most} {raised}");
        // One below the limit, which harms no test that runs at the same time.
        let most = raised.min(DESCRIPTORS_MAX);
        setrlimit(Resource::Nofile, Rlimit { current: Some(most - 1), ..before }).unwrap();
        assert_eq!(raise_descriptor_limit(), most);
        assert_eq!(getrlimit(Resource::Nofile).current, Some(most));
        assert_eq!(raise_descriptor_limit(), most);
        setrlimit(Resource::Nofile, before).unwrap();
    }
}
