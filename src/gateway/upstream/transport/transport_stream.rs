//! The bytes of one connection as the HTTP reader sees them: plain or TLS, and at most as many as the buffer budget
//! allows.
//!
//! The module decides how much is read at once. It must not know HTTP. Rules: one read returns as much as the buffer
//! and the budget allow, with and without TLS. A TLS record holds at most 16 KiB, so the TLS session decrypts further
//! records until the buffer is full or no more bytes have arrived; a test checks this.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use super::buffer_budget::ExchangeState;
use super::socket::UpstreamSocket;

/// One connection.
#[derive(Debug)]
pub(super) enum TransportStream {
    Plain(UpstreamSocket),
    Tls(Box<TlsStream<UpstreamSocket>>),
}

/// Reads and writes a plain or a TLS connection, through one trait object.
trait DuplexIo: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> DuplexIo for T {}

// === impl TransportStream ===

impl TransportStream {
    /// Sets the state of the exchange that begins, or `None` when an exchange has ended.
    pub(super) fn set_exchange(&mut self, exchange_state: Option<Arc<ExchangeState>>) {
        match self {
            Self::Plain(socket) => socket.set_exchange(exchange_state),
            Self::Tls(stream) => stream.get_mut().0.set_exchange(exchange_state),
        }
    }

    /// True if nothing has arrived on an idle connection, not even its end.
    pub(super) fn is_quiet(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_quiet(),
            // A session that wants to read holds no decrypted bytes.
            Self::Tls(stream) => stream.get_ref().1.wants_read() && stream.get_ref().0.is_quiet(),
        }
    }

    fn duplex(&mut self) -> Pin<&mut dyn DuplexIo> {
        match self {
            Self::Plain(socket) => Pin::new(socket),
            Self::Tls(stream) => Pin::new(&mut **stream),
        }
    }

    fn poll_read_allowance(&self, cx: &mut Context<'_>) -> Poll<usize> {
        let socket = match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.get_ref().0,
        };
        socket.exchange_state().map_or(Poll::Ready(usize::MAX), |state| state.poll_read_allowance(cx))
    }
}

impl AsyncRead for TransportStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let allowance = ready!(this.poll_read_allowance(cx));
        Pin::new(&mut this.duplex().take(allowance as u64)).poll_read(cx, buf)
    }
}

impl AsyncWrite for TransportStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().duplex().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().duplex().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().duplex().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().duplex().poll_shutdown(cx)
    }
}
