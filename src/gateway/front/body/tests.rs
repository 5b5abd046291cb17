//! JSON bodies in frames of any size.

use tempfile::TempDir;

use super::*;
use crate::gateway::front::framed::{FRAMES, coded, contents, framed, noise};

struct Anyone;

impl Ticket for Anyone {
    fn key(&self) -> Option<&str> {
        None
    }
}

fn json_body(coding: &str, body: Body, most: usize) -> JsonBody<()> {
    let request = hyper::Request::post("/").header("content-type", "application/json");
    let request = request.header("content-encoding", coding).body(body).unwrap();
    JsonBody { request, unread: Unread::default(), most, described: PhantomData }
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
    let kept = json_body(coding, framed(body, frame).0, most).keep(&Anyone, spool).await;
    for read in [read.map(|bytes| bytes.to_vec()), kept.map(|kept| contents(&kept))] {
        match text {
            Some(text) => assert!(read.unwrap_or_else(|error| panic!("{case}: {error}")) == text, "{case}"),
            None => assert_eq!(read.err().map(|error| error.code().status()), Some(413), "{case}"),
        }
    }
}

#[tokio::test]
async fn a_body_is_read_up_to_its_limit_whatever_a_frame_holds() {
    for (length, frames) in [(40_000, &FRAMES[..]), (3_000_000, &FRAMES[1..])] {
        let text = noise(length);
        for packed in coded(&text) {
            // The packed bytes count against the limit, too.
            assert_read(&packed, length.max(packed.1.len()), frames, Some(&text)).await;
            assert_read(&packed, length - 1, frames, None).await;
        }
    }
}

#[tokio::test]
async fn a_body_that_unpacks_to_too_much_is_refused_whatever_a_frame_holds() {
    let zeros = vec![0; usize::try_from(LOOSE).unwrap() + 1];
    for packed in coded(&zeros).into_iter().skip(1) {
        // gzip cannot unpack to enough times its size, so its limit is the plain one.
        let most = if packed.0 == "gzip" { zeros.len() - 1 } else { zeros.len() };
        assert_read(&packed, most, &FRAMES, None).await;
    }
}
