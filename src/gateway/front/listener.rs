//! The listening socket, which dropshot makes and does not hand out.
//!
//! dropshot leaves Nagle's algorithm on and asks for a short backlog: the first costs 40 ms on every answer sent in
//! several writes, the second makes clients wait seconds when many connect at once. Accepted sockets inherit the flag
//! from the listener, so it is enough to find the listener once. At the end dropshot keeps the port open until its last
//! request is done; here it can be closed at once.
//!
//! Only the listener is ever duplicated. Closing any descriptor of a file gives up all the locks that the process holds
//! on it, so a duplicate of the database's would let another process delete its log under us.
//!
//! The only `unsafe` of the crate is here.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::SockRef;

use crate::tables::CLIENT_WRITE_STALL_SECONDS;

/// Connections that may wait to be accepted; the kernel lowers it to its own limit.
const BACKLOG: i32 = 4096;

/// The listening socket, found and tuned.
#[derive(Debug)]
pub(super) struct Listener(OwnedFd);

// === impl Listener ===

impl Listener {
    /// Finds the socket that listens at this address, and sets what every accepted connection inherits.
    pub(super) fn find(local: SocketAddr) -> Option<Self> {
        let open = std::fs::read_dir("/dev/fd").ok()?;
        let numbers: Vec<RawFd> = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        let found = numbers.into_iter().find_map(|number| duplicate_if_listener(number, local))?;
        tune(&SockRef::from(&found)).ok()?;
        Some(Self(found))
    }

    /// New connections are refused from now on; those that were accepted are not touched.
    pub(super) fn close_port(&self) {
        if let Err(error) = SockRef::from(&self.0).shutdown(std::net::Shutdown::Both) {
            tracing::warn!(%error, "the port stays open until the last request is done");
        }
    }
}

fn tune(socket: &SockRef<'_>) -> std::io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    // A caller who stops reading is cut, so that the account's place and the record do not wait for it.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(CLIENT_WRITE_STALL_SECONDS)))?;
    socket.listen(BACKLOG)
}

fn is_listener_at(socket: &SockRef<'_>, local: SocketAddr) -> bool {
    socket.is_listener().unwrap_or(false)
        && socket.local_addr().ok().and_then(|address| address.as_socket()) == Some(local)
}

/// A second handle to the listener, if that is what the number stands for.
fn duplicate_if_listener(number: RawFd, local: SocketAddr) -> Option<OwnedFd> {
    if number < 0 {
        return None;
    }
    // SAFETY: the number was just listed as open, and it is only asked questions that have no effect on a file. Should it
    // have been given to another socket before it is duplicated, the handle that we then own is asked once more.
    #[expect(unsafe_code, reason = "a descriptor known only by its number cannot be borrowed otherwise")]
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if !is_listener_at(&SockRef::from(&borrowed), local) {
        return None;
    }
    let owned = borrowed.as_fd().try_clone_to_owned().ok()?;
    is_listener_at(&SockRef::from(&owned), local).then_some(owned)
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
        let found = Listener::find(local).unwrap();
        assert!(accept());
        found.close_port();
        assert!(std::net::TcpStream::connect(local).is_err(), "the port is closed");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn looking_for_it_gives_up_no_locks() {
        use std::io::Write as _;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"locked").unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let locks = || std::fs::read_to_string("/proc/locks").unwrap().lines().filter(|line| ours(line, &file)).count();
        // As the database does it: a lock of the process, not of the descriptor.
        rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert_eq!(locks(), 1);
        Listener::find(listener.local_addr().unwrap()).unwrap();
        assert_eq!(locks(), 1, "the lock is gone");
    }

    #[cfg(target_os = "linux")]
    fn ours(line: &str, file: &std::fs::File) -> bool {
        use std::os::unix::fs::MetadataExt as _;
        let inode = file.metadata().unwrap().ino().to_string();
        let process = std::process::id().to_string();
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.contains(&process.as_str())
            && fields.iter().any(|field| field.rsplit(':').next() == Some(inode.as_str()))
    }

    #[test]
    fn another_address_is_left_alone() {
        assert!(Listener::find("127.0.0.1:1".parse().unwrap()).is_none());
    }
}
