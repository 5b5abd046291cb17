//! Request bodies in frames of any size, for tests of the code that reads bodies.

use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use dropshot::Body;
use http_body::Frame;

use crate::image::ByteSource;

/// Frame sizes in bytes: 1, sizes around 16 KiB, which is a typical read of a socket, and 1 MiB, which is more than the
/// read buffer of a connection.
pub(super) const FRAME_SIZES: [usize; 5] = [1, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 1024 * 1024];

/// A body whose frames are made while it is read. It counts the bytes that were read.
pub(super) struct FramedBody {
    pub(super) frames: Box<dyn Iterator<Item = Bytes> + Send + Sync>,
    pub(super) read_bytes: Arc<AtomicU64>,
    pub(super) is_waiting: bool,
}

impl http_body::Body for FramedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    /// Behaves like a socket: `Pending` precedes each frame, except for the first one if `is_waiting` is true at the
    /// start.
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.is_waiting = !self.is_waiting;
        if self.is_waiting {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = self.frames.next();
        self.read_bytes.fetch_add(next.as_ref().map_or(0, |piece| piece.len() as u64), Ordering::Relaxed);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }
}

/// Splits a body into frames of `frame_size` bytes; the second result counts the bytes that were read. The first frame
/// is available at once, as if it had come with the head of the request.
pub(super) fn framed(bytes: &Bytes, frame_size: usize) -> (Body, Arc<AtomicU64>) {
    let (bytes, pulled) = (bytes.clone(), Arc::<AtomicU64>::default());
    let starts = (0..bytes.len()).step_by(frame_size);
    let pieces = starts.map(move |start| bytes.slice(start..bytes.len().min(start + frame_size)));
    let body = FramedBody { frames: Box::new(pieces), read_bytes: Arc::clone(&pulled), is_waiting: true };
    (Body::wrap(body), pulled)
}

/// Pseudo-random bytes, which cannot be compressed, with some text that looks like the beginning of a boundary.
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

/// The same body in each supported content coding.
pub(super) fn in_each_coding(body: &[u8]) -> [(&'static str, Bytes); 3] {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(body).expect("encoded");
    let gzip = gzip.finish().expect("encoded");
    let zstd = zstd::stream::encode_all(body, 1).expect("encoded");
    [("identity", Bytes::copy_from_slice(body)), ("gzip", gzip.into()), ("zstd", zstd.into())]
}

/// All bytes of a source.
pub(super) fn contents(source: &impl ByteSource) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(source.len()).expect("a length")];
    let mut offset = 0;
    while offset < bytes.len() {
        let count = source.read_at(offset as u64, &mut bytes[offset..]).expect("bytes");
        assert!(count > 0, "the source is as long as `len` states");
        offset += count;
    }
    bytes
}
