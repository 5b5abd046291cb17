//! Tests of answers with fewer images than requested, or with addresses only: every paid image is kept, and missing
//! images are reported.

use serde_json::{Value, json};

use super::{answer, client, image, run, serve};
use crate::client::{Client, Error, GenerateRequest, ImageCount, Images};
use crate::testing::{Answer, StubServer};

const ADDRESS: &str = "https://cdn.example/paid.png?sig=1";

fn generate(server: &StubServer) -> Result<Images, Error> {
    run(client(server).images().generate("a fox"))
}

fn file_names(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut file_names: Vec<String> = entries.collect();
    file_names.sort();
    file_names
}

#[test]
fn an_image_that_is_only_an_address_is_reported_with_the_address() {
    for image in
        [json!({"url": ADDRESS}), json!({"url": ADDRESS, "b64_json": null}), json!({"url": ADDRESS, "b64_json": ""})]
    {
        let server = serve([answer(200, &json!({"data": [image]})).header("x-request-id", "r-1")]);
        let images = generate(&server).unwrap();
        let image = images.first();
        assert_eq!((image.url(), &*image.base64(), image.format()), (Some(ADDRESS), "", None));
        let written = run(image.write_to(tempfile::tempdir().unwrap().path().join("fox")));
        for error in [image.bytes().unwrap_err(), written.unwrap_err()] {
            assert!(error.message().contains(ADDRESS), "{error}");
            assert_eq!((error.status(), error.request_id()), (Some(200), Some("r-1")));
        }
    }
}

#[test]
fn an_image_may_have_an_address_in_addition() {
    let mut body = image();
    body["data"][0]["url"] = ADDRESS.into();
    let image = generate(&serve([answer(200, &body)])).unwrap().first();
    assert_eq!((image.url(), image.bytes().unwrap().as_slice()), (Some(ADDRESS), &b"hello"[..]));
}

#[test]
fn a_stream_may_end_with_an_address() {
    let event = json!({"type": "image_generation.completed", "url": ADDRESS});
    let server = serve([Answer::events(format!("data: {event}\n\n"))]);
    let stream = run(async {
        let stream = client(&server).images().generate_stream("a fox").await?;
        stream.collect_image().await
    });
    assert_eq!(stream.unwrap().url(), Some(ADDRESS));
}

#[test]
fn images_that_were_not_delivered_are_counted_without_a_header() {
    let request = GenerateRequest::new("a fox").count(ImageCount::of::<3>());
    let images = run(client(&serve([answer(200, &image())])).images().generate(request.clone())).unwrap();
    assert_eq!((images.len(), images.missing()), (1, 2));
    let folder = tempfile::tempdir().unwrap();
    let server = serve([answer(200, &image())]);
    let saved = run(client(&server).images().generate_to(request, folder.path().join("fox"))).unwrap();
    assert_eq!((saved.images.len(), saved.missing), (1, 2));
}

#[test]
fn images_are_written_even_if_others_cannot_be_written() {
    let image = |text: &str| json!({ "b64_json": text });
    let data: [Value; 4] = [image("aGVsbG8="), json!({ "url": ADDRESS }), image("not base64!"), image("aGVsbG8=")];
    let images = generate(&serve([answer(200, &json!({ "data": data }))])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = run(images.write_all(folder.path().join("fox.png"))).unwrap_err();
    assert!(error.message().contains(ADDRESS), "the first failure is returned: {error}");
    assert_eq!(file_names(folder.path()), ["fox-1.png", "fox-2.png"]);
}

#[test]
fn all_images_are_written_and_no_existing_file_is_replaced() {
    let body = |count| json!({"data": vec![json!({"b64_json": "aGVsbG8="}); count]});
    let server = serve([answer(200, &body(3)), answer(200, &body(1))]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("fox-2.png"), "old").unwrap();
    let write = |images: &Images| {
        let paths = run(images.write_all(folder.path().join("fox.png"))).unwrap();
        paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let several = generate(&server).unwrap();
    assert_eq!(write(&several), ["fox-1.png", "fox-3.png", "fox-4.png"]);
    let single = generate(&server).unwrap();
    assert_eq!((write(&single), write(&single)), (vec!["fox.png".to_owned()], vec!["fox-5.png".to_owned()]));
    assert_eq!(std::fs::read(folder.path().join("fox-2.png")).unwrap(), b"old");
    let overwritten = run(single.first().overwrite(folder.path().join("fox-2.png"))).unwrap();
    assert_eq!(std::fs::read(overwritten).unwrap(), b"hello");
}

#[test]
fn missing_and_delivered_are_read_from_the_headers() {
    let server = serve([answer(200, &image())
        .header("x-imagate-missing", "2")
        .header("x-imagate-delivered", "1024x640 png")
        .header("x-imagate-delivery", "mismatch")]);
    let images = generate(&server).unwrap();
    assert_eq!((images.missing(), images.delivered(), images.delivery()), (2, Some("1024x640 png"), Some("mismatch")));
    let without_headers = generate(&serve([answer(200, &image()).header("x-imagate-missing", "many")])).unwrap();
    assert_eq!((without_headers.missing(), without_headers.delivered(), without_headers.delivery()), (0, None, None));
}

#[test]
fn a_redirect_does_not_send_the_key_elsewhere() {
    for status in [301, 302, 303, 307, 308] {
        let other_server = serve([answer(200, &image())]);
        let server = serve([answer(status, &json!({})).header("location", &other_server.base_url())]);
        let client = Client::new(&server.base_url(), super::KEY).unwrap();
        let error = run(client.images().generate(GenerateRequest::new("a fox"))).unwrap_err();
        assert_eq!((error.status(), other_server.requests().len()), (Some(status), 0));
    }
}
