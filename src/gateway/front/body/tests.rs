//! Tests of JSON bodies: frames of any size, and the memory limit of each API key.

use http_body::Frame;
use tempfile::TempDir;

use super::*;
use crate::gateway::front::framed_body::{FRAME_SIZES, contents, framed, in_each_coding, incompressible_bytes};

struct AnonymousPrincipal;

impl AuthPrincipal for AnonymousPrincipal {
    fn key(&self) -> Option<&str> {
        None
    }
}

fn json_body(coding: &str, body: Body, max_bytes: usize) -> JsonBody<()> {
    let request = hyper::Request::post("/").header("content-type", "application/json");
    let request = request.header("content-encoding", coding).body(body).unwrap();
    JsonBody { request, unread: UnreadBody::default(), max_bytes, described: PhantomData }
}

/// Reads a body with `read` and `read_to_spool`, in frames of each of these sizes. Each call must return the bytes
/// `expected`, or an error with the status 413 if `expected` is `None`.
async fn assert_read(encoded: &(&str, Bytes), max_bytes: usize, frame_sizes: &[usize], expected: Option<&[u8]>) {
    let folder = TempDir::new().unwrap();
    let spool = Spool::new(folder.path()).unwrap();
    for frame_size in frame_sizes {
        assert_read_with_frame_size(&spool, encoded, max_bytes, *frame_size, expected).await;
    }
}

async fn assert_read_with_frame_size(
    spool: &Spool,
    encoded: &(&str, Bytes),
    max_bytes: usize,
    frame_size: usize,
    expected: Option<&[u8]>,
) {
    let (coding, body) = encoded;
    let case = format!("{coding}, {} bytes in frames of {frame_size}, at most {max_bytes}", body.len());
    let in_memory = json_body(coding, framed(body, frame_size).0, max_bytes).read(&AnonymousPrincipal, spool).await;
    let spooled =
        json_body(coding, framed(body, frame_size).0, max_bytes).read_to_spool(&AnonymousPrincipal, spool).await;
    for result in [in_memory.map(|bytes| bytes.to_vec()), spooled.map(|bytes| contents(&bytes))] {
        match expected {
            Some(expected) => assert!(result.unwrap_or_else(|error| panic!("{case}: {error}")) == expected, "{case}"),
            None => assert_eq!(result.err().map(|error| error.code().status()), Some(413), "{case}"),
        }
    }
}

#[tokio::test]
async fn a_body_up_to_its_limit_is_read_in_frames_of_any_size() {
    for (length, frame_sizes) in [(40_000, &FRAME_SIZES[..]), (3_000_000, &FRAME_SIZES[1..])] {
        let text = incompressible_bytes(length);
        for encoded in in_each_coding(&text) {
            // The encoded bytes count against the limit as well, and incompressible bytes grow when they are encoded.
            assert_read(&encoded, length.max(encoded.1.len()), frame_sizes, Some(&text)).await;
            assert_read(&encoded, length - 1, frame_sizes, None).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_decodes_to_too_much_is_refused_in_frames_of_any_size() {
    let zeros = vec![0; usize::try_from(ALWAYS_ALLOWED_BYTES).unwrap() + 1];
    for encoded in in_each_coding(&zeros).into_iter().skip(1) {
        // gzip does not reach an expansion ratio that is refused, so only the size limit stops it.
        let max_bytes = if encoded.0 == "gzip" { zeros.len() - 1 } else { zeros.len() };
        assert_read(&encoded, max_bytes, &FRAME_SIZES, None).await;
    }
}

/// A caller with this key.
struct KeyPrincipal(&'static str);

impl AuthPrincipal for KeyPrincipal {
    fn key(&self) -> Option<&str> {
        Some(self.0)
    }
}

/// A body that stalls after this part.
struct UnfinishedBody(Option<Bytes>);

impl http_body::Body for UnfinishedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
    }
}

/// Reads a body for an API key, to the spool or into memory, and returns the status of the error if it is refused.
async fn refusal_status(body: Body, key: &'static str, to_spool: bool, spool: &Spool) -> Option<u16> {
    let body = json_body("identity", body, 1000);
    let error = if to_spool {
        body.read_to_spool(&KeyPrincipal(key), spool).await.err()
    } else {
        body.read(&KeyPrincipal(key), spool).await.err()
    };
    error.map(|error| error.code().status())
}

#[tokio::test]
async fn a_body_counts_against_the_memory_of_its_key_until_it_is_read() {
    for to_spool in [false, true] {
        let folder = TempDir::new().unwrap();
        let spool = Spool::with_memory_per_key(folder.path(), 100).unwrap();
        let complete_body = |length: usize| framed(&vec![b' '; length].into(), 10).0;
        let unfinished = Body::wrap(UnfinishedBody(Some(vec![b' '; 60].into())));
        let mut unfinished = Box::pin(refusal_status(unfinished, "key_a", to_spool, &spool));
        assert!(poll_fn(|cx| Poll::Ready(unfinished.as_mut().poll(cx))).await.is_pending());
        assert_eq!(spool.usage().memory, 60, "to_spool: {to_spool}");
        assert_eq!(
            refusal_status(complete_body(41), "key_a", to_spool, &spool).await,
            Some(429),
            "to_spool: {to_spool}"
        );
        assert_eq!(refusal_status(complete_body(40), "key_a", to_spool, &spool).await, None, "to_spool: {to_spool}");
        assert_eq!(refusal_status(complete_body(41), "key_b", to_spool, &spool).await, None, "to_spool: {to_spool}");
        drop(unfinished);
        assert_eq!(refusal_status(complete_body(41), "key_a", to_spool, &spool).await, None, "to_spool: {to_spool}");
        assert_eq!(spool.usage().memory, 0, "to_spool: {to_spool}");
    }
}
