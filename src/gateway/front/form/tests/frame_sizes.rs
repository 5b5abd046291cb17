//! Forms in frames of any size: on a reused connection one frame may hold a whole form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::gateway::front::framed_body::{FRAME_SIZES, framed, in_each_coding, incompressible_bytes};

fn multipart(images: &[Vec<u8>]) -> Vec<u8> {
    let mut form = Vec::new();
    for image in images {
        form.extend_from_slice(b"--xx\r\nContent-Disposition: form-data; name=\"image[]\"; filename=\"a\"\r\n\r\n");
        form.extend_from_slice(image);
        form.extend_from_slice(b"\r\n");
    }
    form.extend_from_slice(b"--xx\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na hat\r\n--xx--\r\n");
    form
}

fn json(images: &[Vec<u8>]) -> Vec<u8> {
    let url = |image: &Vec<u8>| format!("data:image/png;base64,{}", STANDARD.encode(image));
    let images: Vec<_> = images.iter().map(|image| serde_json::json!({"image_url": url(image)})).collect();
    serde_json::json!({"prompt": "a hat", "images": images}).to_string().into_bytes()
}

/// Reads a body in frames of `frame` bytes. The first one is available at once, as if it had come with the head.
async fn read_framed(body: &Bytes, content_type: &str, coding: &str, frame: usize) -> Result<EditForm, Error> {
    let place = TestSpool::new();
    let request = hyper::Request::post("/").header("content-type", content_type).header("content-encoding", coding);
    read(request.body(framed(body, frame).0).unwrap(), &place.spool).await
}

/// Asserts that a body yields these images in frames of each of these sizes.
async fn assert_reads(body: &Bytes, kind: (&str, &str), frames: &[usize], images: &[Vec<u8>]) {
    for frame in frames {
        let case = format!("{kind:?}, {} bytes in frames of {frame}", body.len());
        let form = read_framed(body, kind.0, kind.1, *frame).await;
        let form = form.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(form.fields["prompt"], "a hat", "{case}");
        let read: Vec<_> = form.images.iter().map(bytes).collect();
        assert!(read == images, "{case}: an image has changed");
    }
}

#[tokio::test]
async fn a_form_is_read_whatever_a_frame_holds() {
    const FORM: &str = "multipart/form-data; boundary=xx";
    for (length, frames) in [(30_000, &FRAME_SIZES[..]), (4_000_000, &FRAME_SIZES[1..])] {
        let images = [incompressible_bytes(length), incompressible_bytes(length / 2)];
        let forms = [(FORM, multipart(&images)), ("application/json", json(&images))];
        let packed =
            forms.iter().flat_map(|(kind, body)| in_each_coding(body).map(|(coding, body)| (*kind, coding, body)));
        for (content_type, coding, body) in packed {
            assert_reads(&body, (content_type, coding), frames, &images).await;
        }
    }
}

#[tokio::test]
async fn what_follows_a_form_is_counted_whatever_a_frame_holds() {
    // A frame of content goes to the parser whole, and the bytes that the parser drops are not counted.
    for frame in FRAME_SIZES[..4].iter().copied() {
        for (surplus, fits) in [(0, true), (2_000, true), (40_000, false)] {
            let form = [multipart(&[incompressible_bytes(100)]), vec![b' '; surplus]].concat();
            let read = read_framed(&form.into(), "multipart/form-data; boundary=xx", "identity", frame).await;
            assert_eq!(read.is_ok(), fits, "{surplus} bytes in frames of {frame}");
        }
    }
}

#[tokio::test]
async fn a_boundary_that_does_not_come_is_missed_whatever_a_frame_holds() {
    for frame in FRAME_SIZES {
        let read = read_framed(
            &incompressible_bytes(2_000_000).into(),
            "multipart/form-data; boundary=never",
            "identity",
            frame,
        )
        .await;
        assert_refused(read, 400, None);
    }
}
