//! The listening socket, which dropshot makes and does not hand out.
//!
//! dropshot leaves Nagle's algorithm on and asks for a short backlog: the first costs 40 ms on every answer sent in
//! several writes, the second makes clients wait seconds when many connect at once. Accepted sockets inherit the flag
//! from the listener, so it is enough to find the listener once.
//!
//! The only `unsafe` of the crate is here.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use socket2::SockRef;

/// Connections that may wait to be accepted; the kernel lowers it to its own limit.
const BACKLOG: i32 = 4096;

/// Sets what every accepted connection inherits. `false` where the listener was not found, which costs speed only.
pub(super) fn tune(local: SocketAddr) -> bool {
    let Ok(open) = std::fs::read_dir("/dev/fd") else { return false };
    let numbers: Vec<RawFd> = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let found = numbers.into_iter().filter_map(duplicate).find(|socket| is_listener_at(socket, local));
    found.is_some_and(|socket| set(&SockRef::from(&socket)).is_ok())
}

fn is_listener_at(socket: &OwnedFd, local: SocketAddr) -> bool {
    let socket = SockRef::from(socket);
    socket.is_listener().unwrap_or(false)
        && socket.local_addr().ok().and_then(|address| address.as_socket()) == Some(local)
}

fn set(socket: &SockRef<'_>) -> std::io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    socket.listen(BACKLOG)
}

/// A second handle to whatever the number stands for right now.
fn duplicate(number: RawFd) -> Option<OwnedFd> {
    if number < 0 {
        return None;
    }
    // SAFETY: the number was just listed as open. Should it have been closed meanwhile, duplicating fails; should it have
    // been given to another file, what we then hold is our own valid handle, which `is_listener_at` turns away.
    #[expect(unsafe_code, reason = "a descriptor known only by its number cannot be borrowed otherwise")]
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    borrowed.as_fd().try_clone_to_owned().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_sockets_inherit_the_flag() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let accept = || {
            let client = std::net::TcpStream::connect(local).unwrap();
            let (server, _) = listener.accept().unwrap();
            drop(client);
            server.nodelay().unwrap()
        };
        assert!(!accept(), "without the tuning the flag is off, else this test shows nothing");
        assert!(tune(local));
        assert!(accept());
    }

    #[test]
    fn another_address_is_left_alone() {
        assert!(!tune("127.0.0.1:1".parse().unwrap()));
    }
}
