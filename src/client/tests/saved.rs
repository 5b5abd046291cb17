//! Tests of images that are saved while their answer arrives.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::test_images::png;
use super::{answer, client, run, serve};
use crate::client::{EditRequest, Error, ErrorKind, GenerateRequest, ImageCount, ImageTarget, SavedImages};
use crate::image::Format;
use crate::testing::Answer;

/// An image file that is longer than what is written at once, so that it is written in several parts.
fn image_file(width: u32) -> Vec<u8> {
    let padding = (0..700_000_u32).map(|index| u8::try_from(index % 251).unwrap_or(0));
    png(width, 32, true).into_iter().chain(padding).collect()
}

fn entry(file: &[u8]) -> Value {
    json!({ "b64_json": STANDARD.encode(file), "revised_prompt": "a red fox" })
}

fn body(entries: &[Value]) -> Value {
    json!({"created": 7, "data": entries, "usage": {
        "input_tokens": 1, "input_tokens_details": {"image_tokens": 0, "text_tokens": 1}, "output_tokens": 2, "total_tokens": 3
    }, "unknown": [1.50]})
}

fn save(reaction: Answer, count: i64, folder: &Path) -> Result<SavedImages, Error> {
    let server = serve([reaction]);
    let request = GenerateRequest::new("a fox").count(ImageCount::new(count).unwrap());
    run(client(&server).images().generate_to(request, folder.join("fox")))
}

fn file_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_image_is_saved_with_its_facts_and_the_rest_of_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let file = image_file(16);
    let reaction = answer(200, &body(&[entry(&file)])).header("x-request-id", "r-1");
    let saved = save(reaction, 1, folder.path()).unwrap();
    let path = folder.path().join("fox.png");
    assert_eq!(saved.paths().collect::<Vec<_>>(), [path.as_path()]);
    assert!(std::fs::read(path).unwrap() == file, "the file is the image");
    let image = &saved.images[0];
    assert_eq!((image.format, image.dimensions), (Some(Format::Png), Some((16, 32))));
    assert_eq!((image.length, saved.missing), (file.len() as u64, 0));
    assert_eq!((saved.meta.request_id(), saved.usage.as_ref().unwrap().total_tokens), (Some("r-1"), 3));
    let rest = serde_json::to_string(&saved.json).unwrap();
    let expected = body(&[json!({"b64_json": "", "revised_prompt": "a red fox"})]).to_string();
    assert_eq!(rest, expected);
}

#[test]
fn several_images_are_numbered_and_missing_ones_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let entries = [entry(&image_file(16)), json!({"b64_json": ""}), entry(&image_file(64))];
    let saved = save(answer(200, &body(&entries)), 3, folder.path()).unwrap();
    assert_eq!(file_names(folder.path()), ["fox-1.png", "fox-2.png"]);
    let widths: Vec<u32> = saved.images.iter().map(|image| image.dimensions.unwrap().0).collect();
    assert_eq!((widths, saved.missing), (vec![16, 64], 1));
}

#[test]
fn no_file_is_replaced_and_none_is_left_of_an_answer_that_breaks_off() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("fox.png"), "old").unwrap();
    let answered = || answer(200, &body(&[entry(&image_file(16))]));
    for missing in [400, 400_000, 933_000] {
        let error = save(answered().break_off(missing), 1, folder.path()).unwrap_err();
        assert_eq!((error.kind(), file_names(folder.path())), (ErrorKind::Broken, vec!["fox.png".to_owned()]));
    }
    save(answered(), 1, folder.path()).unwrap();
    assert_eq!(file_names(folder.path()), ["fox-2.png", "fox.png"]);
    assert_eq!(std::fs::read(folder.path().join("fox.png")).unwrap(), b"old");
}

#[test]
fn an_image_that_was_whole_before_the_answer_broke_off_stays_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = image_file(16);
    let error = save(answer(200, &body(&[entry(&file)])).break_off(1), 1, folder.path()).unwrap_err();
    let path = folder.path().join("fox.png");
    assert_eq!(error.kind(), ErrorKind::Broken);
    assert!(error.message().ends_with(&format!("; saved before: {}", path.display())), "{error}");
    assert!(std::fs::read(path).unwrap() == file);
}

#[test]
fn an_answer_without_a_whole_image_is_an_error_that_has_the_answer() {
    let address = "https://cdn.example/paid.png?sig=1";
    let folder = tempfile::tempdir().unwrap();
    let failure = |body: &str| save(Answer::new(200, body), 1, folder.path()).unwrap_err();
    let error = failure(&json!({"data": [{"url": address}]}).to_string());
    assert!(error.message().contains(address), "{error}");
    let error = failure(r#"{"data": [{"b64_json": "not base64!"}]}"#);
    assert_eq!((error.kind(), error.message()), (ErrorKind::Unintelligible, "the image is not base64"));
    for body in ["<html>a fox</html>", r#"{"pictures": ["aGVsbG8="]}"#, "[1]"] {
        let error = failure(body);
        assert_eq!((error.kind(), error.body()), (ErrorKind::Unintelligible, Some(body)), "{error:?}");
    }
    assert!(file_names(folder.path()).is_empty());
}

#[test]
fn a_writer_gets_the_bytes_of_one_image() {
    let file = image_file(16);
    let server = serve([answer(200, &body(&[entry(&file)]))]);
    let mut written = Vec::new();
    let client = client(&server);
    let saved = run(client.images().generate_to("a fox", ImageTarget::writer(&mut written))).unwrap();
    assert!(written == file && saved.paths().count() == 0, "{saved:?}");
    let two = GenerateRequest::new("a fox").count(ImageCount::new(2).unwrap());
    let error = run(client.images().generate_to(two, ImageTarget::writer(&mut written))).unwrap_err();
    assert_eq!((error.param(), server.requests().len()), (Some("n"), 1), "nothing is sent");
}

#[test]
fn an_image_that_cannot_be_read_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let entries = [json!({"b64_json": "not base64!"}), entry(&image_file(16))];
    let error = save(answer(200, &body(&entries)), 2, folder.path()).unwrap_err();
    assert!(
        error.message().contains("not base64; saved before: ") && error.message().ends_with("fox-1.png"),
        "{error}"
    );
    assert_eq!(file_names(folder.path()), ["fox-1.png"]);
}

#[test]
fn an_unreadable_member_loses_no_image_and_a_writer_gets_only_the_first_one() {
    let folder = tempfile::tempdir().unwrap();
    let unreadable = body(&[entry(&image_file(16))]).to_string().replacen("7", "nope", 1);
    let saved = save(Answer::new(200, &unreadable), 1, folder.path()).unwrap();
    assert_eq!((saved.paths().count(), saved.usage.is_none()), (1, true));
    let (file, mut written) = (image_file(16), Vec::new());
    let server = serve([answer(200, &body(&[entry(&file), entry(&image_file(64))]))]);
    run(client(&server).images().generate_to("a fox", ImageTarget::writer(&mut written))).unwrap();
    assert!(written == file);
}

#[test]
fn base64_with_line_breaks_is_decoded_by_every_call() {
    let file = image_file(16);
    let text = STANDARD.encode(&file);
    let lines: Vec<&str> = text.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let wrapped = lines.join("\n") + "\n";
    let event = json!({"type": "image_generation.completed", "b64_json": wrapped});
    let entries = body(&[json!({ "b64_json": wrapped })]);
    // Some servers write the line breaks without escapes, which is not JSON.
    let unescaped = entries.to_string().replace("\\n", "\n");
    let folder = tempfile::tempdir().unwrap();
    for play in [answer(200, &entries), Answer::new(200, &unescaped)] {
        let server = serve([play.clone(), play, Answer::events(format!("data: {event}\n\n"))]);
        let client = client(&server);
        run(async {
            let image = client.images().generate("a fox").await.unwrap().first();
            assert!(image.bytes().unwrap() == file && image.dimensions() == Some((16, 32)));
            let saved = client.images().generate_to("a fox", folder.path().join("a")).await.unwrap();
            assert!(std::fs::read(saved.paths().next().unwrap()).unwrap() == file);
            let image = client.images().generate_stream("a fox").await.unwrap().collect_image().await.unwrap();
            assert!(std::fs::read(image.write_to(folder.path().join("b")).await.unwrap()).unwrap() == file);
        });
    }
}

#[test]
fn nothing_is_sent_if_the_target_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve([]);
    let client = client(&server);
    for (name, count) in [("no/such/folder".to_owned(), 1), ("a".repeat(256), 1), ("a".repeat(250), 2)] {
        let request = GenerateRequest::new("a fox").count(ImageCount::new(count).unwrap());
        let error = run(client.images().generate_to(&request, folder.path().join(&name))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File, "{error:?}");
        let edit = EditRequest::from(request).image(png(16, 16, true));
        let error = run(client.images().edit_to(edit, folder.path().join(&name))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::File, "{error:?}");
    }
    assert!(server.requests().is_empty() && file_names(folder.path()).is_empty());
}

#[test]
fn a_long_name_that_the_file_system_accepts_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve([answer(200, &body(&[entry(&image_file(16))]))]);
    let name = format!("{}.png", "a".repeat(236));
    run(client(&server).images().generate_to("a fox", folder.path().join(&name))).unwrap();
    assert_eq!(file_names(folder.path()), [name]);
}
