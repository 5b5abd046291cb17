//! Tests of JSON bodies: frames of any size, and the memory limit of each API key.

use std::sync::Arc;

use http::HeaderValue;
use http::header::CONTENT_ENCODING;
use http_body::Frame;
use tempfile::TempDir;

use super::*;
use crate::gateway::admission::RequestBudgets;
use crate::gateway::front::framed_body::{FRAME_SIZES, contents, framed, in_each_coding, incompressible_bytes};

fn json_body(coding: &str, body: Body, max_bytes: usize) -> JsonBody<()> {
    let request = hyper::Request::post("/").header("content-type", "application/json");
    let request = request.header("content-encoding", coding).body(body).unwrap();
    JsonBody::new(request, max_bytes as u64).with_large_windows()
}

/// Reads a body with `read` and `read_to_spool`, in frames of each of these sizes. Each call must return the bytes
/// `expected`, or an error with the status 413 if `expected` is `None`.
async fn assert_read(encoded: &(&str, Bytes), max_bytes: usize, frame_sizes: &[usize], expected: Option<&[u8]>) {
    let folder = TempDir::new().unwrap();
    let budgets = RequestBudgets::default_for_test();
    let spool = (Arc::clone(&budgets), Spool::with_budgets(folder.path(), &budgets).unwrap());
    for frame_size in frame_sizes {
        assert_read_with_frame_size(&spool, encoded, max_bytes, *frame_size, expected).await;
    }
}

async fn assert_read_with_frame_size(
    (budgets, spool): &(Arc<RequestBudgets>, Spool),
    encoded: &(&str, Bytes),
    max_bytes: usize,
    frame_size: usize,
    expected: Option<&[u8]>,
) {
    let (coding, body) = encoded;
    let case = format!("{coding}, {} bytes in frames of {frame_size}, at most {max_bytes}", body.len());
    let admission = || budgets.admit_for_test("usr_a", "key_a");
    let in_memory = json_body(coding, framed(body, frame_size).0, max_bytes)
        .read(&admission())
        .await
        .map(|json| json.text().clone());
    let spooled = json_body(coding, framed(body, frame_size).0, max_bytes).read_to_spool(&admission(), spool).await;
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
    let zeros = vec![0; usize::try_from(EXPANSION_MAX + (EXPANSION_MAX >> 3)).unwrap()];
    for encoded in in_each_coding(&zeros).into_iter().skip(1) {
        // gzip does not reach an expansion ratio that is refused, so only the size limit stops it.
        let max_bytes = if encoded.0 == "gzip" { zeros.len() - 1 } else { zeros.len() };
        assert_read(&encoded, max_bytes, &FRAME_SIZES, None).await;
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

/// Reads a body into memory, and returns the status of the error if it is refused.
async fn refusal_status(body: Body, admission: &Admission) -> Option<u16> {
    json_body("identity", body, 1000).read(admission).await.err().map(|error| error.code().status())
}

fn body_of(length: usize) -> Body {
    framed(&vec![b' '; length].into(), 10).0
}

#[tokio::test]
async fn a_body_counts_against_the_memory_of_its_key_until_its_bytes_are_dropped() {
    let budgets = RequestBudgets::with_limits(|limits| limits.memory_per_key = 100);
    let [admission, other] = ["key_a", "key_b"].map(|key| budgets.admit_for_test("usr_a", key));
    let unfinished = Body::wrap(UnfinishedBody(Some(vec![b' '; 60].into())));
    let mut unfinished = Box::pin(refusal_status(unfinished, &admission));
    assert!(poll_fn(|cx| Poll::Ready(unfinished.as_mut().poll(cx))).await.is_pending());
    assert_eq!(budgets.usage().memory, 60);
    assert_eq!(refusal_status(body_of(41), &admission).await, Some(429));
    assert_eq!(refusal_status(body_of(41), &other).await, None);
    let read = json_body("identity", body_of(40), 1000).read(&admission).await.unwrap();
    drop(unfinished);
    let slice = read.text().slice(..1);
    drop(read);
    assert_eq!(refusal_status(body_of(61), &admission).await, Some(429), "a part of the body is still held");
    drop(slice);
    assert_eq!(refusal_status(body_of(61), &admission).await, None);
    assert_eq!(budgets.usage().memory, 0);
}

#[tokio::test]
async fn a_body_for_which_there_is_no_memory_is_written_to_the_spool() {
    let folder = TempDir::new().unwrap();
    let budgets = RequestBudgets::with_limits(|limits| limits.memory_per_key = 100);
    let spool = Spool::with_budgets(folder.path(), &budgets).unwrap();
    let admission = budgets.admit_for_test("usr_a", "key_a");
    let read = async |length| json_body("identity", body_of(length), 1000).read_to_spool(&admission, &spool).await;
    let (first, second) = (read(60).await.unwrap(), read(41).await.unwrap());
    assert!(matches!(first, SpooledBytes::Memory(_)) && matches!(second, SpooledBytes::Disk { .. }));
    assert_eq!((budgets.usage().memory, budgets.usage().disk), (60, 41));
    drop((first, second));
    assert_eq!((budgets.usage().memory, budgets.usage().disk), (0, 0));
}

/// A compressed body of few bytes, which decodes to this many and then stalls.
fn stalling_body(length: usize) -> Body {
    let encoded = zstd::bulk::compress(&vec![b' '; length], 19).unwrap();
    Body::wrap(UnfinishedBody(Some(encoded.into())))
}

#[tokio::test]
async fn compressed_bodies_of_a_user_share_what_they_expand_to() {
    let folder = TempDir::new().unwrap();
    let budgets = RequestBudgets::default_for_test();
    let spool = Spool::with_budgets(folder.path(), &budgets).unwrap();
    let read = |user: &str, key: &str, body: Body, max_bytes: usize| {
        let (admission, spool) = (budgets.admit_for_test(user, key), spool.clone());
        let body = json_body("zstd", body, max_bytes);
        async move { (body.read_to_spool(&admission, &spool).await.map(drop), admission) }
    };
    let large = usize::try_from(EXPANSION_MAX).unwrap();
    let mut first = Box::pin(read("usr_a", "key_a", stalling_body(large), large));
    // The last decoded bytes may not be written yet.
    while budgets.usage().disk < EXPANSION_MAX - (256 << 10) {
        assert!(poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx))).await.is_pending());
        tokio::task::yield_now().await;
    }
    let status = |(result, _): (Result<(), Error>, Admission)| result.err().map(|error| error.code().status());
    let whole = |length: usize| Body::from(Bytes::from(zstd::bulk::compress(&vec![b' '; length], 19).unwrap()));
    assert_eq!(status(read("usr_a", "key_b", whole(2 << 20), large).await), Some(429), "another key of the user");
    assert_eq!(status(read("usr_a", "key_b", whole(64 << 10), large).await), None, "a small body needs no room");
    assert_eq!(status(read("usr_b", "key_c", whole(2 << 20), large).await), None, "another user");
    assert_eq!(status(read("usr_b", "key_c", whole(2 * large), 2 * large).await), Some(413), "more than all of it");
    drop(first);
    let (result, admission) = read("usr_a", "key_a", whole(large), large).await;
    assert!(result.is_ok());
    assert_eq!(status(read("usr_a", "key_b", whole(2 << 20), large).await), Some(429), "the first request still runs");
    admission.end();
    assert_eq!(status(read("usr_a", "key_b", whole(2 << 20), large).await), None);
}

#[test]
fn only_a_single_supported_coding_is_accepted() {
    let admission = RequestBudgets::default_for_test().admit_for_test("usr_a", "key_a");
    let decoder_of = |values: &[&'static str]| {
        let headers = values.iter().map(|value| (CONTENT_ENCODING, HeaderValue::from_static(value))).collect();
        body_decoder(&headers, &admission)
    };
    for identity in [&[][..], &["identity"], &["Identity", ""]] {
        assert!(decoder_of(identity).expect("plain").is_none(), "{identity:?}");
    }
    assert!(decoder_of(&["identity, gzip"]).expect("encoded").is_some());
    for unsupported in [&["br"][..], &["deflate"], &["gzip, zstd"], &["gzip", "gzip"], &["g zip"], &["compress"]] {
        assert_eq!(decoder_of(unsupported).err(), Some(Error::UnsupportedEncoding), "{unsupported:?}");
    }
}
