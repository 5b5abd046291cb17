//! Tests of edits as forms, sent to a scripted server.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

use super::test_images::{jpeg, padded, png};
use super::{KEY, answer, client, failure, image, line, run, serve, unused_base_url};
use crate::client::{Client, EditRequest, Error, Images, Input, PartialImages};
use crate::testing::{Answer, FormPart, ReceivedRequest, StubServer};

fn edit(server: &StubServer, request: EditRequest) -> Result<Images, Error> {
    run(client(server).images().edit(request))
}

fn head(name: &str, file: &str, format: &str) -> String {
    format!("Content-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\nContent-Type: image/{format}")
}

/// Creates a file with a png of this many bytes.
fn file(folder: &tempfile::TempDir, name: &str, length: usize) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, padded(png(16, 16, true), length)).unwrap();
    path
}

#[test]
fn an_edit_form_has_texts_then_images_then_the_mask() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "a fox.png", 600_000);
    let server = serve([answer(200, &image())]);
    let request = EditRequest::new("a hat \u{1f3a9}")
        .image(&*path)
        .images([Input::from_bytes(jpeg(40, 30)), Input::from_bytes(png(8, 8, false)).file_name("b\".png")])
        .mask(png(16, 16, true))
        .size(crate::size!("1536x1024"))
        .user("u-1");
    let images = edit(&server, request).unwrap();
    assert_eq!(images.first().bytes().unwrap(), b"hello");
    let request = server.requests().remove(0);
    assert_eq!(line(&request), "POST /v1/images/edits");
    assert_eq!(request.header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!(request.header("content-length"), Some(&*request.body().len().to_string()));
    let parts = request.parts();
    let mut texts: Vec<(String, String)> = Vec::new();
    for part in &parts[..4] {
        assert_eq!((part.file_name(), part.content_type()), (None, None));
        texts.push((part.name().unwrap().to_owned(), part.text().into_owned()));
    }
    texts.sort();
    let expected = [("model", "gpt-image-2"), ("prompt", "a hat \u{1f3a9}"), ("size", "1536x1024"), ("user", "u-1")];
    assert_eq!(texts, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let files: Vec<&str> = parts[4..].iter().map(FormPart::head).collect();
    assert_eq!(
        files,
        [
            head("image[]", "a fox.png", "png"),
            head("image[]", "image.jpeg", "jpeg").replace("image.jpeg", "image.jpg"),
            head("image[]", "b\\\".png", "png"),
            head("mask", "image.png", "png"),
        ]
    );
    assert!(parts[4].content() == std::fs::read(path).unwrap());
    assert!(parts[5].content() == jpeg(40, 30) && parts[6].content() == png(8, 8, false));
    assert!(parts[7].content() == png(16, 16, true));
}

#[test]
fn an_invalid_edit_is_not_sent() {
    let server = serve([answer(200, &image())]);
    let edit_with_image = || EditRequest::new("a hat").image(png(16, 16, false));
    let check = |request: EditRequest, param: &str, words: &str| {
        let error = edit(&server, request).unwrap_err();
        assert!(error.is_invalid_request() && error.param() == Some(param), "{error:?}");
        assert!(error.message().contains(words), "{error}");
    };
    check(EditRequest::new("a hat"), "image", "no input image");
    check(edit_with_image().images(vec![png(16, 16, false); 16]), "image", "at most 16");
    check(EditRequest::new(" ").image(png(16, 16, false)), "prompt", "empty");
    check(edit_with_image().partial_images(PartialImages::MAX), "partial_images", "only a stream");
    check(EditRequest::new("a hat").image(b"GIF89a".to_vec()), "image", "not a PNG, JPEG or WebP image");
    check(EditRequest::new("a hat").image(PathBuf::from("none.png")), "image", "none.png cannot be read");
    check(edit_with_image().mask(padded(png(16, 16, true), 52_428_800)), "mask", "fewer than");
    check(edit_with_image().mask(png(16, 16, false)), "mask", "no alpha channel");
    check(edit_with_image().mask(png(16, 32, true)), "mask", "16x32 px, but the first image has 16x16 px");
    check(edit_with_image().mask(jpeg(16, 16)), "mask", "the mask is jpeg, but the first image is png");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn a_retry_sends_the_whole_form_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(&folder, "fox.png", 300_000);
    let busy = answer(503, &failure("service_unavailable", &json!({}))).header("x-should-retry", "true");
    let server = serve([busy, answer(200, &image())]);
    let request = EditRequest::new("a hat").image(path).mask(png(16, 16, true));
    edit(&server, request).unwrap();
    let [first, second] = <[ReceivedRequest; 2]>::try_from(server.requests()).unwrap();
    let contents = |request: &ReceivedRequest| -> Vec<Vec<u8>> {
        request.parts().iter().map(|part| part.content().to_vec()).collect()
    };
    assert!(contents(&first).len() == 4 && contents(&first) == contents(&second));
    assert_eq!(second.header("x-stainless-retry-count"), Some("1"));
}

#[test]
fn a_form_is_sent_again_only_if_the_service_allows_it() {
    let failed = || answer(503, &failure("service_unavailable", &json!({})));
    for play in [
        failed(),
        failed().header("x-should-retry", "false"),
        Answer::images(1).close_unanswered(),
        answer(200, &image()).break_off(5),
    ] {
        let server = serve([play, answer(200, &image())]);
        edit(&server, EditRequest::new("a hat").image(png(16, 16, false))).unwrap_err();
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_failed_connection_is_retryable() {
    let client = Client::builder().base_url(unused_base_url()).api_key(KEY).max_retries(0).build().unwrap();
    let request = EditRequest::new("a hat").image(png(16, 16, false));
    let error = run(client.images().edit(request)).unwrap_err();
    assert!(error.is_connect() && error.is_retryable(), "{error:?}");
}

#[test]
fn a_silent_service_causes_a_timeout() {
    let request = || EditRequest::new("a hat").image(png(16, 16, false)).timeout(Duration::from_millis(50));
    let server = serve([Answer::images(1).stall_unanswered(), Answer::images(1).stall_unanswered()]);
    let error = edit(&server, request()).unwrap_err();
    assert!(error.is_timeout() && error.message().contains("no complete answer"), "{error:?}");
    let error = run(client(&server).images().edit_stream(request())).unwrap_err();
    assert!(error.is_timeout() && error.message().contains("no answer"), "{error:?}");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn an_edit_can_be_a_stream() {
    let data = json!({"type": "image_edit.completed", "b64_json": "aGVsbG8="});
    let server = serve([Answer::events(format!("event: image_edit.completed\ndata: {data}\n\n"))]);
    let request = EditRequest::new("a hat").image(png(16, 16, false)).partial_images(PartialImages::new(2).unwrap());
    let image =
        run(async { client(&server).images().edit_stream(request).await.unwrap().collect_image().await.unwrap() });
    assert_eq!(image.bytes().unwrap(), b"hello");
    let parts = server.requests().remove(0).parts();
    let text = |name: &str| parts.iter().find(|part| part.name() == Some(name)).unwrap().text();
    assert_eq!((&*text("stream"), &*text("partial_images")), ("true", "2"));
}
