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

/// Each way to read the body in frames of so many bytes must give these bytes, or a 413 where there is none.
async fn assert_read(spool: &Spool, coding: &str, body: &Bytes, most: usize, frame: usize, text: Option<&[u8]>) {
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
    let folder = TempDir::new().unwrap();
    let spool = Spool::new(folder.path()).unwrap();
    for (length, frames) in [(40_000, &FRAMES[..]), (3_000_000, &FRAMES[1..])] {
        let text = noise(length);
        for (coding, body) in coded(&text) {
            // What is packed is counted as it comes, too.
            let most = length.max(body.len());
            for frame in frames.iter().copied() {
                assert_read(&spool, coding, &body, most, frame, Some(&text)).await;
                assert_read(&spool, coding, &body, length - 1, frame, None).await;
            }
        }
    }
}

#[tokio::test]
async fn a_body_that_unpacks_to_too_much_is_refused_whatever_a_frame_holds() {
    let folder = TempDir::new().unwrap();
    let spool = Spool::new(folder.path()).unwrap();
    let zeros = vec![0; usize::try_from(LOOSE).unwrap() + 1];
    for (coding, body) in coded(&zeros).into_iter().skip(1) {
        // Of gzip more than so many times its size cannot come.
        let most = if coding == "gzip" { zeros.len() - 1 } else { zeros.len() };
        for frame in FRAMES {
            assert_read(&spool, coding, &body, most, frame, None).await;
        }
    }
}
