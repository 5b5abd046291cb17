//! JSON bodies: in frames of any size, and against the memory of their keys.

use http_body::Frame;
use tempfile::TempDir;

use super::*;
use crate::gateway::front::framed_body::{FRAME_SIZES, contents, framed, in_each_coding, incompressible_bytes};

struct Anyone;

impl AuthPrincipal for Anyone {
    fn key(&self) -> Option<&str> {
        None
    }
}

fn json_body(coding: &str, body: Body, most: usize) -> JsonBody<()> {
    let request = hyper::Request::post("/").header("content-type", "application/json");
    let request = request.header("content-encoding", coding).body(body).unwrap();
    JsonBody { request, unread: UnreadBody::default(), max_bytes: most, described: PhantomData }
}

/// Reads a body in both ways in frames of these sizes. Each must give `text`, or a 413 if there is none.
async fn assert_read(packed: &(&str, Bytes), most: usize, frames: &[usize], text: Option<&[u8]>) {
    let folder = TempDir::new().unwrap();
    let spool = Spool::new(folder.path()).unwrap();
    for frame in frames {
        assert_read_in(&spool, packed, most, *frame, text).await;
    }
}

async fn assert_read_in(spool: &Spool, packed: &(&str, Bytes), most: usize, frame: usize, text: Option<&[u8]>) {
    let (coding, body) = packed;
    let case = format!("{coding}, {} bytes in frames of {frame}, at most {most}", body.len());
    let read = json_body(coding, framed(body, frame).0, most).read(&Anyone, spool).await;
    let kept = json_body(coding, framed(body, frame).0, most).read_to_spool(&Anyone, spool).await;
    for read in [read.map(|bytes| bytes.to_vec()), kept.map(|kept| contents(&kept))] {
        match text {
            Some(text) => assert!(read.unwrap_or_else(|error| panic!("{case}: {error}")) == text, "{case}"),
            None => assert_eq!(read.err().map(|error| error.code().status()), Some(413), "{case}"),
        }
    }
}

#[tokio::test]
async fn a_body_is_read_up_to_its_limit_whatever_a_frame_holds() {
    for (length, frames) in [(40_000, &FRAME_SIZES[..]), (3_000_000, &FRAME_SIZES[1..])] {
        let text = incompressible_bytes(length);
        for packed in in_each_coding(&text) {
            // The packed bytes count against the limit as well.
            assert_read(&packed, length.max(packed.1.len()), frames, Some(&text)).await;
            assert_read(&packed, length - 1, frames, None).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_unpacks_to_too_much_is_refused_whatever_a_frame_holds() {
    let zeros = vec![0; usize::try_from(ALWAYS_ALLOWED_BYTES).unwrap() + 1];
    for packed in in_each_coding(&zeros).into_iter().skip(1) {
        // gzip cannot unpack to such a large multiple of its size, so only the plain limit applies to it.
        let most = if packed.0 == "gzip" { zeros.len() - 1 } else { zeros.len() };
        assert_read(&packed, most, &FRAME_SIZES, None).await;
    }
}

/// A caller with this key.
struct KeyPrincipal(&'static str);

impl AuthPrincipal for KeyPrincipal {
    fn key(&self) -> Option<&str> {
        Some(self.0)
    }
}

/// A body of which only this part arrives.
struct UnfinishedBody(Option<Bytes>);

impl http_body::Body for UnfinishedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
    }
}

/// Reads a body of a key in one of the two ways, and returns the status of the refusal.
async fn refused(body: Body, key: &'static str, keeps: bool, spool: &Spool) -> Option<u16> {
    let body = json_body("identity", body, 1000);
    let error = if keeps {
        body.read_to_spool(&KeyPrincipal(key), spool).await.err()
    } else {
        body.read(&KeyPrincipal(key), spool).await.err()
    };
    error.map(|error| error.code().status())
}

#[tokio::test]
async fn a_body_that_comes_counts_against_the_memory_of_its_key_until_it_has_come() {
    for keeps in [false, true] {
        let folder = TempDir::new().unwrap();
        let spool = Spool::with_memory_per_key(folder.path(), 100).unwrap();
        let whole = |length: usize| framed(&vec![b' '; length].into(), 10).0;
        let unfinished = Body::wrap(UnfinishedBody(Some(vec![b' '; 60].into())));
        let mut unfinished = Box::pin(refused(unfinished, "key_a", keeps, &spool));
        assert!(poll_fn(|cx| Poll::Ready(unfinished.as_mut().poll(cx))).await.is_pending());
        assert_eq!(spool.usage().memory, 60, "{keeps}");
        assert_eq!(refused(whole(41), "key_a", keeps, &spool).await, Some(429), "{keeps}");
        assert_eq!(refused(whole(40), "key_a", keeps, &spool).await, None, "{keeps}");
        assert_eq!(refused(whole(41), "key_b", keeps, &spool).await, None, "{keeps}");
        drop(unfinished);
        assert_eq!(refused(whole(41), "key_a", keeps, &spool).await, None, "{keeps}");
        assert_eq!(spool.usage().memory, 0, "{keeps}");
    }
}
