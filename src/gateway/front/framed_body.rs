//! Bodies in frames of any size, for the tests of their readers.

use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use dropshot::Body;
use http_body::Frame;

use crate::image::ByteSource;

/// One byte, about as much as one read of a socket returns, and more than a used connection reads at once.
pub(super) const FRAME_SIZES: [usize; 5] = [1, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 1024 * 1024];

/// A body that is made while it is read, and counted.
pub(super) struct FramedBody {
    pub(super) pieces: Box<dyn Iterator<Item = Bytes> + Send + Sync>,
    pub(super) pulled_bytes: Arc<AtomicU64>,
    pub(super) is_waiting: bool,
}

impl http_body::Body for FramedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    /// Like a socket: a frame is available at once, or comes a little later.
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.is_waiting = !self.is_waiting;
        if self.is_waiting {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = self.pieces.next();
        self.pulled_bytes.fetch_add(next.as_ref().map_or(0, |piece| piece.len() as u64), Ordering::Relaxed);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }
}

/// A body in frames of `frame` bytes, and the count of its bytes that were pulled. The first frame is available at
/// once, as if it had come with the head.
pub(super) fn framed(whole: &Bytes, frame: usize) -> (Body, Arc<AtomicU64>) {
    let (whole, pulled) = (whole.clone(), Arc::<AtomicU64>::default());
    let cuts = (0..whole.len()).step_by(frame);
    let pieces = cuts.map(move |start| whole.slice(start..whole.len().min(start + frame)));
    let body = FramedBody { pieces: Box::new(pieces), pulled_bytes: Arc::clone(&pulled), is_waiting: true };
    (Body::wrap(body), pulled)
}

/// Bytes that do not compress, with the beginning of a boundary now and then.
pub(super) fn incompressible_bytes(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut noise = Vec::with_capacity(length + 8);
    while noise.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
        if state.is_multiple_of(1024) {
            noise.extend_from_slice(b"\r\n--x\r\n--");
        }
    }
    noise.truncate(length);
    noise
}

/// The same body in each coding that is read.
pub(super) fn in_each_coding(body: &[u8]) -> [(&'static str, Bytes); 3] {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(body).expect("packed");
    let gzip = gzip.finish().expect("packed");
    let zstd = zstd::stream::encode_all(body, 1).expect("packed");
    [("identity", Bytes::copy_from_slice(body)), ("gzip", gzip.into()), ("zstd", zstd.into())]
}

/// All bytes of a source.
pub(super) fn contents(source: &impl ByteSource) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(source.len()).expect("a length")];
    let mut at = 0;
    while at < bytes.len() {
        let count = source.read_at(at as u64, &mut bytes[at..]).expect("bytes");
        assert!(count > 0, "it is as long as it says");
        at += count;
    }
    bytes
}
