//! GIF files among the images of an edit.

use gif::{Encoder, Frame};
use serde_json::{Value, json};

use super::HEADER;
use crate::edits::data_url;
use crate::kit::{Account, Answer, Call, FakeUpstream, Form, Gateway, alpha_png};

const DECLARED: &str = "[[groups]]\nname = \"default\"\ndialects = [\"gif\"]\n";
/// The first bytes of a PNG file.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// A GIF file whose upper half is red and whose lower half is transparent, with a second image.
pub(super) fn gif_file(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, width, height, &[255, 0, 0, 0, 255, 0]).expect("a header");
    let count = usize::from(width) * usize::from(height);
    let pixels: Vec<u8> = (0..count).map(|index| u8::from(index >= count / 2)).collect();
    for transparent in [Some(1), None] {
        let frame = Frame { width, height, transparent, buffer: pixels.as_slice().into(), ..Frame::default() };
        encoder.write_frame(&frame).expect("a frame");
    }
    drop(encoder);
    bytes
}

fn gateway_with(top: &str, upstream: &FakeUpstream) -> Gateway {
    Gateway::with(top, &[Account::for_upstream("only", upstream)])
}

fn form(files: &[(&str, &[u8])]) -> Call {
    let form = Form::new().text("model", "gpt-image-2").text("prompt", "a hat");
    files.iter().fold(form, |form, (name, file)| form.file(name, file)).call().without_document_check()
}

fn json_edit(image: &[u8], with: Value) -> Call {
    let url = data_url(image).replace("image/png", "image/gif");
    let mut body = json!({"model": "gpt-image-2", "prompt": "a hat", "images": [{"image_url": url}]});
    with.as_object().expect("fields").iter().for_each(|(name, value)| body[name] = value.clone());
    Call::edit().json(&body).without_document_check()
}

fn send(gateway: &Gateway, call: Call) -> Answer {
    call.key(gateway.secret()).send(gateway.address())
}

/// The width of a PNG file, and its pixels of red, green, blue and alpha.
fn pixels(file: &[u8]) -> (u32, Vec<u8>) {
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().expect("a PNG file");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let width = reader.next_frame(&mut pixels).expect("an image").width;
    (width, pixels)
}

#[test]
fn the_first_image_of_a_gif_file_is_sent_as_png_and_the_answer_says_so() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with(DECLARED, &upstream);
    let (gif, png) = (gif_file(64, 64), alpha_png(64, 64));
    let half = 64 * 32;
    let expected = (64, [[255, 0, 0, 255].repeat(half), vec![0; 4 * half]].concat());
    let answer = send(&gateway, form(&[("image[]", &gif), ("image[]", &png), ("image[]", &gif), ("mask", &gif)]));
    assert_eq!(
        (answer.status, answer.header(HEADER)),
        (200, Some("image[] gif->png, mask gif->png")),
        "{}",
        answer.text()
    );
    let sent = upstream.received_attempts().pop().expect("an attempt");
    let files: Vec<_> = sent.files().into_iter().map(|part| part.head.clone()).collect();
    assert!(files.len() == 3 && files[1] == *png && files[0] == files[2], "{} files", files.len());
    assert_eq!((pixels(&files[0]), pixels(&sent.mask().expect("a mask").head)), (expected.clone(), expected));
    let answer = send(&gateway, json_edit(&gif, json!({})));
    assert_eq!(
        (answer.status, answer.header(HEADER)),
        (200, Some("images[0].image_url gif->png")),
        "{}",
        answer.text()
    );
    assert!(upstream.received_attempts().pop().expect("an attempt").files()[0].head.starts_with(PNG));
    // A request of the API is not changed.
    let answer = send(&gateway, form(&[("image", &png)]));
    assert_eq!((answer.status, answer.header(HEADER)), (200, None), "{}", answer.text());
    let adapted: Vec<_> = gateway.final_records(3).iter().map(|record| record["adapted"].clone()).collect();
    assert_eq!(adapted, [json!("image[] gif->png, mask gif->png"), json!("images[0].image_url gif->png"), Value::Null]);
}

#[test]
fn without_the_dialect_a_gif_file_is_refused_and_the_refusal_names_it() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with("", &upstream);
    let (gif, png) = (gif_file(64, 64), alpha_png(64, 64));
    for (call, param) in [
        (form(&[("image", &gif)]), "image"),
        (form(&[("image[]", &png), ("image[]", &gif)]), "image[]"),
        (form(&[("image", &png), ("mask", &gif)]), "mask"),
        (json_edit(&gif, json!({})), "images[0].image_url"),
    ] {
        let refused = send(&gateway, call).error_object(400);
        let message = refused["message"].as_str().expect("a message");
        assert_eq!(refused["param"], param, "{refused}");
        assert!(message.contains("The dialect 'gif' accepts this parameter;"), "{message}");
    }
    let refused = send(&gateway, json_edit(&gif, json!({"size": "512x512"}))).error_object(400);
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("The dialects 'sizes' and 'gif' accept this request;"), "{message}");
    // No dialect accepts another file.
    let refused = send(&gateway, form(&[("image", b"GIF88a, but not really")])).error_object(400);
    assert!(!refused["message"].as_str().expect("a message").contains("dialect"), "{refused}");
    assert_eq!(upstream.attempt_count(), 0);
}

#[test]
fn a_gif_file_that_cannot_be_converted_is_refused_and_costs_nothing() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with(DECLARED, &upstream);
    let whole = gif_file(64, 64);
    let mut huge = whole.clone();
    huge[6..10].fill(0xff);
    for (file, reason) in [
        (&whole[..40], "the GIF file cannot be decoded"),
        (b"GIF89a", "the GIF file cannot be decoded"),
        (&huge, "the GIF file has too many pixels"),
    ] {
        for (call, param) in [
            (form(&[("image[]", &whole), ("image[]", &alpha_png(64, 64)), ("mask", file)]), "mask"),
            (json_edit(file, json!({})), "images[0].image_url"),
        ] {
            let answer = send(&gateway, call);
            let refused = answer.error_object(400);
            assert_eq!(refused["param"], param, "{refused}");
            assert!(refused["message"].as_str().expect("a message").contains(reason), "{refused}");
            // Earlier conversions are stated.
            assert_eq!(answer.header(HEADER), (param == "mask").then_some("image[] gif->png"));
        }
    }
    assert_eq!((upstream.attempt_count(), gateway.records().len()), (0, 0));
}
