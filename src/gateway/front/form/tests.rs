//! Tests of the forms of image edits: valid forms as clients send them, and invalid ones.

mod added_names;
mod frame_sizes;
mod json;
mod multipart;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tempfile::TempDir;

use super::*;
use crate::gateway::admission::RequestBudgets;
use crate::gateway::front::framed_body::{FramedBody, contents};
use crate::image::ByteSource as _;

/// A spool in its own temporary directory.
struct TestSpool {
    spool: Spool,
    admission: Admission,
    names: FormNames,
    folder: TempDir,
}

// === impl TestSpool ===

impl TestSpool {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let budgets = RequestBudgets::default_for_test();
        let (spool, names) = (Spool::with_budgets(folder.path(), &budgets).unwrap(), FormNames::default());
        Self { spool, admission: budgets.admit_for_test("usr_a", "key_a"), names, folder }
    }

    fn settings(&self) -> FormSettings {
        FormSettings { names: self.names.clone(), downloader: None }
    }

    async fn read(&self, content_type: &str, pieces: Vec<Bytes>) -> Result<EditForm, Error> {
        self.read_counted(content_type, pieces.into_iter()).await.0
    }

    /// Reads a body whose frames are made while it is read, and also returns the number of bytes that were read.
    async fn read_counted(
        &self,
        content_type: &str,
        pieces: impl Iterator<Item = Bytes> + Send + Sync + 'static,
    ) -> (Result<EditForm, Error>, u64) {
        let pulled = Arc::new(AtomicU64::new(0));
        let body = FramedBody { frames: Box::new(pieces), read_bytes: Arc::clone(&pulled), is_waiting: false };
        let request = hyper::Request::post("/").header("content-type", content_type);
        let result = read(request.body(Body::wrap(body)).unwrap(), &self.admission, &self.spool, self.settings()).await;
        (result, pulled.load(Ordering::Relaxed))
    }

    /// The number of files left in the folder of the spool.
    fn leftovers(&self) -> usize {
        std::fs::read_dir(self.folder.path().join("spool")).unwrap().count()
    }
}

/// A small image, different for each number.
fn png(number: u8) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 2, 2);
    encoder.set_color(png::ColorType::Rgba);
    encoder.write_header().unwrap().write_image_data(&[number; 16]).unwrap();
    file
}

/// The bytes of an uploaded file.
fn bytes(upload: &ImageUpload) -> Vec<u8> {
    contents(&*upload.file)
}

/// `count` zero bytes, in frames of 64 KiB.
fn zeros(count: u64) -> impl Iterator<Item = Bytes> + Send + Sync {
    const FRAME: u64 = 64 * 1024;
    let frame = Bytes::from(vec![0; usize::try_from(FRAME).unwrap()]);
    (0..count.div_ceil(FRAME)).map(move |index| {
        let length = FRAME.min(count - index * FRAME);
        frame.slice(..usize::try_from(length).unwrap())
    })
}

#[track_caller]
fn assert_refused(result: Result<EditForm, Error>, status: u16, param: Option<&str>) -> String {
    let error = result.expect_err("an error");
    assert_eq!((error.code().status(), error.param()), (status, param), "{error}");
    error.to_string()
}

#[tokio::test]
async fn unsupported_content_types_and_encodings_are_refused_unread() {
    let fixture = TestSpool::new();
    for content_type in ["", "text/plain", "multipart/mixed; boundary=b", "image/png", "application/jsonp", "multipart"]
    {
        let (result, pulled) = fixture.read_counted(content_type, zeros(1000)).await;
        assert_refused(result, 415, None);
        assert_eq!(pulled, 0);
    }
    for content_type in ["application/json", "multipart/form-data; boundary=b"] {
        let request = hyper::Request::post("/").header("content-type", content_type);
        let request = request.header("content-encoding", "identity").header("content-encoding", "br");
        assert_refused(
            read(request.body(Body::empty()).unwrap(), &fixture.admission, &fixture.spool, FormSettings::default())
                .await,
            415,
            None,
        );
    }
}

#[tokio::test]
async fn an_announced_length_above_the_limit_is_refused_unread() {
    let fixture = TestSpool::new();
    for (content_type, max_bytes) in
        [("application/json", MAX_EDIT_JSON_BODY_BYTES), ("multipart/form-data; boundary=b", MAX_EDIT_FORM_BODY_BYTES)]
    {
        for (length, status) in [(max_bytes + 1, 413), (max_bytes, 400)] {
            let request = hyper::Request::post("/").header("content-type", content_type);
            let request = request.header("content-length", length).body(Body::empty()).unwrap();
            assert_refused(
                read(request, &fixture.admission, &fixture.spool, FormSettings::default()).await,
                status,
                None,
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_arrives_too_slowly_is_refused() {
    struct Slow(tokio::time::Interval);
    impl http_body::Body for Slow {
        type Data = Bytes;
        type Error = std::convert::Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.0.poll_tick(cx).map(|_| Some(Ok(Frame::data(Bytes::from_static(b" ")))))
        }
    }
    let fixture = TestSpool::new();
    for content_type in ["application/json", "multipart/form-data; boundary=b"] {
        let start = tokio::time::Instant::now();
        let body = Body::wrap(Slow(tokio::time::interval(std::time::Duration::from_millis(10))));
        let request = hyper::Request::post("/").header("content-type", content_type).body(body).unwrap();
        assert_refused(read(request, &fixture.admission, &fixture.spool, FormSettings::default()).await, 400, None);
        let seconds = start.elapsed().as_secs();
        assert!((29..=31).contains(&seconds), "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fast_start_extends_the_deadline_by_at_most_one_window() {
    struct Stalling(Option<Bytes>);
    impl http_body::Body for Stalling {
        type Data = Bytes;
        type Error = std::convert::Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            self.0.take().map_or(Poll::Pending, |data| Poll::Ready(Some(Ok(Frame::data(data)))))
        }
    }
    let fixture = TestSpool::new();
    let mut form = b"--b\r\nContent-Disposition: form-data; name=\"image\"\r\n\r\n".to_vec();
    form.resize(8 * 1024 * 1024, b'x');
    let start = tokio::time::Instant::now();
    let request = hyper::Request::post("/").header("content-type", "multipart/form-data; boundary=b");
    let request = request.body(Body::wrap(Stalling(Some(form.into())))).unwrap();
    assert_refused(read(request, &fixture.admission, &fixture.spool, FormSettings::default()).await, 400, None);
    let seconds = start.elapsed().as_secs();
    assert!((29..=31).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn the_text_of_a_form_counts_against_the_memory_of_its_key() {
    let folder = TempDir::new().unwrap();
    let budgets = RequestBudgets::with_limits(|limits| limits.memory_per_key = 1900);
    let spool = Spool::with_budgets(folder.path(), &budgets).unwrap();
    // A form within the limit is refused later, because it has no image.
    for (length, status) in [(500, 400), (2000, 429)] {
        let prompt = "a".repeat(length);
        let json = format!(r#"{{"prompt":"{prompt}"}}"#);
        let form = format!("--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n{prompt}\r\n--b--\r\n");
        for (content_type, body) in [("application/json", json), ("multipart/form-data; boundary=b", form)] {
            let request = hyper::Request::post("/").header("content-type", content_type);
            let admission = budgets.admit_for_test("usr_a", "key_a");
            let error = read(request.body(Body::from(body)).unwrap(), &admission, &spool, FormSettings::default())
                .await
                .expect_err("an error");
            assert_eq!(error.code().status(), status, "{content_type}");
        }
        assert_eq!(budgets.usage().memory, 0);
    }
}
