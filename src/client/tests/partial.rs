//! Answers with fewer images than requested, or with addresses only: every paid image is kept, and the rest is
//! reported.

use serde_json::{Value, json};

use super::server::{Play, Server, answer};
use super::{client, image, run};
use crate::client::{Client, Error, GenerateRequest, Images};

const ADDRESS: &str = "https://cdn.example/paid.png?sig=1";

fn generate(server: &Server) -> Result<Images, Error> {
    run(client(server).images().generate("a fox"))
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.collect();
    names.sort();
    names
}

#[test]
fn an_image_that_comes_as_an_address_is_told_and_not_lost() {
    for image in
        [json!({"url": ADDRESS}), json!({"url": ADDRESS, "b64_json": null}), json!({"url": ADDRESS, "b64_json": ""})]
    {
        let server = Server::play([answer(200, &json!({"data": [image]})).header("x-request-id", "r-1")]);
        let images = generate(&server).unwrap();
        let image = images.first();
        assert_eq!((image.url(), image.base64(), image.format()), (Some(ADDRESS), "", None));
        let written = run(image.write_to(tempfile::tempdir().unwrap().path().join("fox")));
        for error in [image.bytes().unwrap_err(), written.unwrap_err()] {
            assert!(error.message().contains(ADDRESS), "{error}");
            assert_eq!((error.status(), error.request_id()), (Some(200), Some("r-1")));
        }
    }
}

#[test]
fn an_image_with_an_address_beside_it_is_an_image() {
    let mut body = image();
    body["data"][0]["url"] = ADDRESS.into();
    let image = generate(&Server::play([answer(200, &body)])).unwrap().first();
    assert_eq!((image.url(), image.bytes().unwrap().as_slice()), (Some(ADDRESS), &b"hello"[..]));
}

#[test]
fn a_stream_may_end_with_an_address() {
    let event = json!({"type": "image_generation.completed", "url": ADDRESS});
    let server = Server::play([Play::events(&format!("data: {event}\n\n"))]);
    let stream = run(async {
        let stream = client(&server).images().generate_stream("a fox").await?;
        stream.collect_image().await
    });
    assert_eq!(stream.unwrap().url(), Some(ADDRESS));
}

#[test]
fn every_other_image_is_written_where_one_is_only_an_address() {
    let image = |text: &str| json!({ "b64_json": text });
    let data: [Value; 4] = [image("aGVsbG8="), json!({ "url": ADDRESS }), image("not base64!"), image("aGVsbG8=")];
    let images = generate(&Server::play([answer(200, &json!({ "data": data }))])).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = run(images.write_all(folder.path().join("fox.png"))).unwrap_err();
    assert!(error.message().contains(ADDRESS), "the first failure is told: {error}");
    assert_eq!(names(folder.path()), ["fox-1.png", "fox-2.png"]);
}

#[test]
fn all_images_are_written_and_nothing_that_is_there_is_replaced() {
    let body = |count| json!({"data": vec![json!({"b64_json": "aGVsbG8="}); count]});
    let server = Server::play([answer(200, &body(3)), answer(200, &body(1))]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("fox-2.png"), "old").unwrap();
    let write = |images: &Images| {
        let paths = run(images.write_all(folder.path().join("fox.png"))).unwrap();
        paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let several = generate(&server).unwrap();
    assert_eq!(write(&several), ["fox-1.png", "fox-3.png", "fox-4.png"]);
    let one = generate(&server).unwrap();
    assert_eq!((write(&one), write(&one)), (vec!["fox.png".to_owned()], vec!["fox-5.png".to_owned()]));
    assert_eq!(std::fs::read(folder.path().join("fox-2.png")).unwrap(), b"old");
    let over = run(one.first().overwrite(folder.path().join("fox-2.png"))).unwrap();
    assert_eq!(std::fs::read(over).unwrap(), b"hello");
}

#[test]
fn what_is_missing_and_what_really_came_is_told() {
    let server = Server::play([answer(200, &image())
        .header("x-imagate-missing", "2")
        .header("x-imagate-delivered", "1024x640 png")
        .header("x-imagate-delivery", "mismatch")]);
    let images = generate(&server).unwrap();
    assert_eq!((images.missing(), images.delivered(), images.delivery()), (2, Some("1024x640 png"), Some("mismatch")));
    let silent = generate(&Server::play([answer(200, &image()).header("x-imagate-missing", "many")])).unwrap();
    assert_eq!((silent.missing(), silent.delivered(), silent.delivery()), (0, None, None));
}

#[test]
fn a_request_that_is_redirected_takes_the_key_nowhere() {
    for status in [301, 302, 303, 307, 308] {
        let elsewhere = Server::play([answer(200, &image())]);
        let server = Server::play([answer(status, &json!({})).header("location", &elsewhere.base_url())]);
        let client = Client::new(&server.base_url(), super::KEY).unwrap();
        let error = run(client.images().generate(GenerateRequest::new("a fox"))).unwrap_err();
        assert_eq!((error.status(), elsewhere.requests().len()), (Some(status), 0));
    }
}
