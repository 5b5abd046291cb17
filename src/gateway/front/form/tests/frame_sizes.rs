//! Tests of forms in frames of any size, from one byte to a frame with several parts of a form.

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

/// Reads a body in frames of `frame_size` bytes. The first frame is available at once, as if it had come with the head
/// of the request.
async fn read_framed(body: &Bytes, content_type: &str, coding: &str, frame_size: usize) -> Result<EditForm, Error> {
    let fixture = TestSpool::new();
    let request = hyper::Request::post("/").header("content-type", content_type).header("content-encoding", coding);
    let request = request.body(framed(body, frame_size).0).unwrap();
    read(request, &fixture.admission, &fixture.spool, FormSettings::default()).await
}

/// Asserts that a body with this content type and coding yields these images in frames of each size.
async fn assert_reads(body: &Bytes, (content_type, coding): (&str, &str), frame_sizes: &[usize], images: &[Vec<u8>]) {
    for frame_size in frame_sizes {
        let case = format!("{content_type}, {coding}, {} bytes in frames of {frame_size}", body.len());
        let form = read_framed(body, content_type, coding, *frame_size).await;
        let form = form.unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(form.fields["prompt"], "a hat", "{case}");
        let received: Vec<_> = form.images.iter().map(bytes).collect();
        assert!(received == images, "{case}: an image has changed");
    }
}

#[tokio::test]
async fn a_form_is_read_in_frames_of_any_size() {
    const FORM: &str = "multipart/form-data; boundary=xx";
    for (length, frame_sizes) in [(30_000, &FRAME_SIZES[..]), (4_000_000, &FRAME_SIZES[1..])] {
        let images = [incompressible_bytes(length), incompressible_bytes(length / 2)];
        let forms = [(FORM, multipart(&images)), ("application/json", json(&images))];
        let encoded =
            forms.iter().flat_map(|(kind, body)| in_each_coding(body).map(|(coding, body)| (*kind, coding, body)));
        for (content_type, coding, body) in encoded {
            assert_reads(&body, (content_type, coding), frame_sizes, &images).await;
        }
    }
}

#[tokio::test]
async fn data_after_a_form_is_limited_in_frames_of_any_size() {
    for frame_size in FRAME_SIZES {
        for (surplus, fits) in [(0, true), (2_000, true), (40_000, false)] {
            let form = [multipart(&[incompressible_bytes(100)]), vec![b' '; surplus]].concat();
            let result = read_framed(&form.into(), "multipart/form-data; boundary=xx", "identity", frame_size).await;
            assert_eq!(result.is_ok(), fits, "{surplus} bytes in frames of {frame_size}");
        }
    }
}

#[tokio::test]
async fn a_missing_boundary_is_detected_in_frames_of_any_size() {
    for frame_size in FRAME_SIZES {
        let result = read_framed(
            &incompressible_bytes(2_000_000).into(),
            "multipart/form-data; boundary=never",
            "identity",
            frame_size,
        )
        .await;
        assert_refused(result, 400, None);
    }
}
