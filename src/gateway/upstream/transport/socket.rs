//! One TCP connection to an upstream, beneath TLS.
//!
//! The module decides when a write has stalled for too long, and whether an idle connection is still quiet. It must not
//! know HTTP, or the meaning of the bytes. Rules: a write that the kernel accepted is recorded at once, because
//! the request must not be sent again after it (U30).

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::buffer_budget::ExchangeState;

/// The most bytes that are read at once beneath TLS, which itself asks for 4 KiB at a time (our choice).
const READ_AHEAD: usize = 32 * 1024;
/// An upstream may send no byte for minutes. With these values, a peer that has vanished is detected after a minute.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_TRIES: u32 = 3;

/// A TCP connection that records what it has written, and limits how long a write may stall.
#[derive(Debug)]
pub(super) struct UpstreamSocket {
    tcp: TcpStream,
    exchange_state: Option<Arc<ExchangeState>>,
    write_timeout: Duration,
    stall_timer: Option<Pin<Box<Sleep>>>,
    read_ahead: Option<ReadAheadBuffer>,
}

/// Bytes read before TLS asked for them.
#[derive(Debug, Default)]
struct ReadAheadBuffer {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

// === impl UpstreamSocket ===

impl UpstreamSocket {
    pub(super) fn new(tcp: TcpStream, write_timeout: Duration, read_ahead: bool) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_EVERY);
        SockRef::from(&tcp).set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_TRIES))?;
        Ok(Self {
            tcp,
            exchange_state: None,
            write_timeout,
            stall_timer: None,
            read_ahead: read_ahead.then(ReadAheadBuffer::default),
        })
    }

    /// Sets the state of the exchange that begins, or `None` when an exchange has ended.
    pub(super) fn set_exchange(&mut self, exchange_state: Option<Arc<ExchangeState>>) {
        if let Some(ahead) = self.read_ahead.as_mut().filter(|ahead| ahead.is_empty()) {
            // A connection that is idle or waits for an answer needs no memory for a buffer.
            *ahead = ReadAheadBuffer::default();
        }
        self.exchange_state = exchange_state;
    }

    pub(super) fn exchange_state(&self) -> Option<&Arc<ExchangeState>> {
        self.exchange_state.as_ref()
    }

    /// True if nothing has arrived on an idle connection, not even its end.
    ///
    /// Asks the kernel, because tokio learns of arrived bytes only when it polls for I/O events again.
    pub(super) fn is_quiet(&self) -> bool {
        let nothing_ahead = self.read_ahead.as_ref().is_none_or(ReadAheadBuffer::is_empty);
        let peeked = SockRef::from(&self.tcp).peek(&mut [MaybeUninit::uninit()]);
        nothing_ahead && peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    fn after_write(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(count)) => {
                self.stall_timer = None;
                if let Some(state) = self.exchange_state.as_ref().filter(|_| count > 0) {
                    state.mark_written();
                }
            }
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                let limit = self.write_timeout;
                let timer = self.stall_timer.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + limit)));
                ready!(timer.as_mut().poll(cx));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        written
    }
}

impl AsyncRead for UpstreamSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(ahead) = &mut this.read_ahead else { return Pin::new(&mut this.tcp).poll_read(cx, buf) };
        if ahead.is_empty() {
            ready!(ahead.poll_fill(&mut this.tcp, cx))?;
        }
        ahead.copy_to(buf);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for UpstreamSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.tcp).poll_write(cx, buf);
        this.after_write(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.tcp).poll_write_vectored(cx, bufs);
        this.after_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

// === impl ReadAheadBuffer ===

impl ReadAheadBuffer {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn poll_fill(&mut self, tcp: &mut TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A buffer is allocated only if bytes have arrived: most connections wait most of the time.
        ready!(tcp.poll_read_ready(cx))?;
        self.buffer.resize(READ_AHEAD, 0);
        let mut buffer = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(tcp).poll_read(cx, &mut buffer))?;
        (self.start, self.end) = (0, buffer.filled().len());
        Poll::Ready(Ok(()))
    }

    fn copy_to(&mut self, buf: &mut ReadBuf<'_>) {
        let count = buf.remaining().min(self.end - self.start);
        buf.put_slice(&self.buffer[self.start..self.start + count]);
        self.start += count;
    }
}
