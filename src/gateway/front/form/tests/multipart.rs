//! Tests of multipart forms.

use serde_json::{Value, json};

use super::*;
use crate::gateway::config::Dialect;
use crate::gateway::front::form::multipart::boundary;
use crate::gateway::spool::blocking_io::tests::disk_accesses;
use crate::image::{Format, ImageFileError};
use crate::tables::MAX_UPLOAD_IMAGE_BYTES;

pub(super) const FORM: &str = "multipart/form-data; boundary=xx";

/// A part with these headers.
fn part(head: &str, content: &[u8]) -> Vec<u8> {
    [b"--xx\r\n", head.as_bytes(), b"\r\n\r\n", content, b"\r\n"].concat()
}

/// A part without a file name.
pub(super) fn text_part(name: &str, content: &[u8]) -> Vec<u8> {
    part(&format!("Content-Disposition: form-data; name=\"{name}\""), content)
}

/// A part with a file name.
pub(super) fn file_part(name: &str, content: &[u8]) -> Vec<u8> {
    let head = format!(
        "Content-Disposition: form-data; name=\"{name}\"; filename=\"upload\"\r\nContent-Type: application/octet-stream"
    );
    part(&head, content)
}

/// A complete form with these parts.
pub(super) fn form(parts: &[Vec<u8>]) -> Bytes {
    [parts.concat(), b"--xx--\r\n".to_vec()].concat().into()
}

async fn read_form(parts: &[Vec<u8>]) -> Result<EditForm, Error> {
    TestSpool::new().read(FORM, vec![form(parts)]).await
}

fn example() -> Vec<Vec<u8>> {
    vec![
        file_part("image[]", &png(1)),
        text_part("prompt", "ein Hut für ihn\r\n--x".as_bytes()),
        file_part("mask", &png(9)),
        file_part("image", &png(2)),
        text_part("n", b"2"),
        file_part("image[1]", &png(3)),
        text_part("stream", b"true"),
        text_part("size", b""),
        text_part("model", b"gpt-image-2"),
        // A part named `image` is a file even without a file name.
        text_part("image", b"no image"),
    ]
}

fn assert_example(form: &EditForm) {
    let params: Vec<_> = form.images.iter().map(|image| image.param.as_str()).collect();
    assert_eq!(params, ["image[]", "image", "image[1]", "image"]);
    for (number, image) in (1..).zip(&form.images[..3]) {
        assert_eq!(bytes(image), png(number));
        let header = image.header.as_ref().unwrap();
        assert_eq!((header.properties.format, header.properties.width, header.has_alpha), (Format::Png, 2, true));
    }
    assert_eq!((bytes(&form.images[3]), &form.images[3].header), (b"no image".to_vec(), &Err(ImageFileError::Unknown)));
    assert_eq!(form.mask.as_ref().map(|mask| (mask.param.as_str(), bytes(mask))), Some(("mask", png(9))));
    let fields = json!({"prompt": "ein Hut für ihn\r\n--x", "n": 2, "stream": true, "model": "gpt-image-2"});
    assert_eq!(Value::Object(form.fields.clone()), fields);
}

#[tokio::test]
async fn images_keep_their_order_between_other_parts() {
    assert_example(&read_form(&example()).await.unwrap());
}

#[tokio::test]
async fn a_form_is_read_in_chunks_of_any_size() {
    let fixture = TestSpool::new();
    let body = form(&example());
    for size in [1, 2, 3, 5, 7, 16, 61, 256] {
        let pieces = body.chunks(size).map(Bytes::copy_from_slice).collect();
        assert_example(&fixture.read(FORM, pieces).await.unwrap());
    }
    for cut in 0..body.len() {
        let pieces = vec![body.slice(..cut), body.slice(cut..)];
        assert_example(&fixture.read(FORM, pieces).await.unwrap());
    }
}

#[tokio::test]
async fn a_truncated_form_is_refused() {
    let fixture = TestSpool::new();
    let body = form(&[file_part("image", &png(1)), text_part("prompt", b"red")]);
    // The line break after the last boundary is optional.
    for end in 0..body.len() - 2 {
        assert_refused(fixture.read(FORM, vec![body.slice(..end)]).await, 400, None);
    }
    assert_eq!(fixture.leftovers(), 0);
}

/// A form with a file of this many bytes in the part `name`; before a mask, there is also an image.
fn form_with_file_size(name: &str, length: u64) -> impl Iterator<Item = Bytes> + Send + Sync + use<> {
    let image = png(1);
    let head = format!("--xx\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a\"\r\n\r\n");
    let padding = zeros(length - image.len() as u64);
    let image_part = if name == "mask" { file_part("image", &png(2)) } else { Vec::new() };
    let beginning = [image_part, head.into_bytes(), image].concat();
    [Bytes::from(beginning)].into_iter().chain(padding).chain([Bytes::from_static(b"\r\n--xx--\r\n")])
}

#[tokio::test]
async fn an_image_or_mask_must_be_smaller_than_the_limit() {
    let fixture = TestSpool::new();
    for name in ["image", "image[]", "image[15]", "mask"] {
        let form = fixture.read_counted(FORM, form_with_file_size(name, MAX_UPLOAD_IMAGE_BYTES - 1)).await.0.unwrap();
        let upload = form.mask.as_ref().unwrap_or(&form.images[0]);
        assert_eq!((upload.file.len(), upload.header.is_ok()), (MAX_UPLOAD_IMAGE_BYTES - 1, true), "{name}");
        for length in [MAX_UPLOAD_IMAGE_BYTES, MAX_UPLOAD_IMAGE_BYTES + 1] {
            assert_refused(fixture.read_counted(FORM, form_with_file_size(name, length)).await.0, 413, Some(name));
        }
    }
    assert_eq!(fixture.leftovers(), 0);
}

#[tokio::test]
async fn an_image_is_refused_as_soon_as_it_is_too_large() {
    let fixture = TestSpool::new();
    let (result, pulled) = fixture.read_counted(FORM, form_with_file_size("image", 8 * MAX_UPLOAD_IMAGE_BYTES)).await;
    assert_refused(result, 413, Some("image"));
    assert!(pulled < MAX_UPLOAD_IMAGE_BYTES + 128 * 1024, "{pulled}");
}

#[tokio::test]
async fn image_17_and_a_second_mask_are_refused_before_their_content() {
    let fixture = TestSpool::new();
    let images: Vec<_> = (0..16).map(|number| file_part("image[]", &png(number))).collect();
    assert_eq!(read_form(&images).await.unwrap().images.len(), 16);
    let one_more = [images.concat(), b"--xx\r\nContent-Disposition: form-data; name=image\r\n\r\n".to_vec()].concat();
    let (result, pulled) = fixture.read_counted(FORM, [Bytes::from(one_more)].into_iter().chain(zeros(1 << 30))).await;
    assert_refused(result, 400, Some("image"));
    assert!(pulled < 128 * 1024, "{pulled}");
    assert_refused(read_form(&[file_part("mask", &png(1)), file_part("mask", &png(1))]).await, 400, Some("mask"));
    assert_refused(read_form(&[file_part("mask", &png(1)), text_part("prompt", b"red")]).await, 400, Some("image"));
}

#[tokio::test]
async fn fields_are_read_with_the_types_of_the_table() {
    let read_with =
        async |parts: &[Vec<u8>]| read_form(&[vec![file_part("image", &png(1))], parts.to_vec()].concat()).await;
    let twice =
        read_with(&[text_part("output_compression", b"80"), text_part("output_compression", b"80")]).await.unwrap();
    assert_eq!(twice.fields["output_compression"], 80);
    assert_refused(read_with(&[text_part("n", b"1"), text_part("n", b"2")]).await, 400, Some("n"));
    assert_refused(read_with(&[text_part("prompt", b"a"), text_part("prompt", b"b")]).await, 400, Some("prompt"));
    let empty = read_with(&[text_part("n", b""), text_part("n", b"2"), text_part("n", b""), text_part("user", b"")])
        .await
        .unwrap();
    assert_eq!(Value::Object(empty.fields), json!({"n": 2}));
    // A value of the wrong type stays text, which `rules` refuses.
    assert_eq!(read_with(&[text_part("n", b"two")]).await.unwrap().fields["n"], "two");
    for name in ["style", "images", "image[x]", "image[", "image[12345]", "IMAGE", "mask[]", "", "_charset_"] {
        let (name, error) = (name, read_with(&[text_part(name, b"x")]).await.unwrap_err());
        assert_eq!((error.code().status(), error.param()), (400, Some(name)), "{error}");
    }
}

#[tokio::test]
async fn text_fields_must_be_utf_8_and_have_a_maximum_length() {
    let longest = "😀".repeat(32_000);
    let form = read_form(&[file_part("image", &png(1)), text_part("prompt", longest.as_bytes())]).await.unwrap();
    assert_eq!(form.fields["prompt"], longest.as_str());
    let long = vec![b'a'; 128 * 1024 + 1];
    assert_refused(read_form(&[text_part("prompt", &long)]).await, 400, Some("prompt"));
    assert_refused(read_form(&[text_part("prompt", b"gr\xfcn")]).await, 400, Some("prompt"));
    let with_charset = |charset: &str, text: &[u8]| {
        let head =
            format!("Content-Disposition: form-data; name=prompt\r\nContent-Type: text/plain; charset={charset}");
        [file_part("image", &png(1)), part(&head, text)]
    };
    assert!(read_form(&with_charset("utf-8", "grün".as_bytes())).await.is_ok());
    assert!(read_form(&with_charset("\"UTF-8\"", "grün".as_bytes())).await.is_ok());
    assert!(read_form(&with_charset("iso-8859-1", b"red")).await.is_ok());
    assert_refused(read_form(&with_charset("iso-8859-1", "grün".as_bytes())).await, 400, Some("prompt"));
}

#[tokio::test]
async fn too_many_fields_are_refused_early() {
    let fixture = TestSpool::new();
    for name in ["user", "n"] {
        let fields = (0..100_000).map(move |_| Bytes::from(text_part(name, b"")));
        let (result, pulled) = fixture.read_counted(FORM, fields).await;
        assert_refused(result, 400, None);
        assert!(pulled < 10_000, "{pulled}");
    }
}

#[tokio::test]
async fn the_body_is_read_only_as_far_as_needed() {
    let fixture = TestSpool::new();
    let parts: Vec<_> = (0..60).map(|_| text_part("n", b"1")).chain([text_part("style", b"")]).collect();
    let (result, pulled) =
        fixture.read_counted(FORM, [Bytes::from(parts.concat())].into_iter().chain(zeros(1 << 30))).await;
    assert_refused(result, 400, Some("style"));
    assert_eq!(pulled, parts.concat().len() as u64, "the first frame has all parts that the parser needs");
}

#[tokio::test]
async fn huge_part_headers_and_missing_boundaries_are_refused_early() {
    let fixture = TestSpool::new();
    let head = |text: String| format!("--xx\r\nContent-Disposition: form-data; name=image\r\n{text}");
    let many_headers: String = (0..20).map(|number| format!("x-{number}: 1\r\n")).collect();
    let frames = |text: String| [Bytes::from(text)].into_iter().chain(zeros(1 << 30));
    for text in [
        head("x: ".to_owned()),
        head("x: 1\r\n".repeat(100_000)),
        head(format!("x: {}\r\n\r\n", "a".repeat(9000))),
        head(format!("{many_headers}\r\n")),
        "preamble ".repeat(3000),
        "--xx".to_owned() + &" ".repeat(20_000),
    ] {
        let (result, pulled) = fixture.read_counted(FORM, frames(text.clone())).await;
        assert_refused(result, 400, None);
        assert!(pulled <= text.len() as u64 + 128 * 1024, "{pulled}");
    }
    let body = form(&[file_part("image", &png(1))]);
    assert_refused(fixture.read_counted(FORM, [body].into_iter().chain(zeros(1 << 30))).await.0, 400, None);
}

#[tokio::test]
async fn preamble_and_epilogue_are_ignored() {
    let fixture = TestSpool::new();
    let body = form(&[file_part("image", &png(1))]);
    for (before, after) in [("preamble\r\n", ""), ("\r\n", "epilogue"), ("", "--xx\r\nContent-Disposition: y\r\n\r\n")]
    {
        let pieces = vec![Bytes::from(before), body.clone(), Bytes::from(after)];
        assert_eq!(bytes(&fixture.read(FORM, pieces).await.unwrap().images[0]), png(1));
    }
    let padded = String::from_utf8(text_part("n", b"1")).unwrap().replace("--xx", "--xx \t ");
    assert_eq!(read_form(&[file_part("image", &png(1)), padded.into()]).await.unwrap().fields["n"], 1);
}

#[tokio::test]
async fn content_like_a_boundary_is_read_completely_or_refused() {
    for content in ["--xx", "\n--xx\n", "\r--xx", "\r\n--x", "\r\n-", "\r\r\n", "\r\n\r\n", "a--xx--b"] {
        let form = read_form(&[file_part("image", content.as_bytes())]).await.unwrap();
        assert_eq!(bytes(&form.images[0]), content.as_bytes());
    }
    assert_refused(read_form(&[file_part("image", b"\r\n--xxx")]).await, 400, None);
    let line_feeds = String::from_utf8(form(&[text_part("image", b"a")]).to_vec()).unwrap().replace('\r', "");
    assert_refused(TestSpool::new().read(FORM, vec![line_feeds.into()]).await, 400, None);
}

#[tokio::test]
async fn file_names_are_ignored() {
    let long_name = format!("filename=\"{}\"", "x".repeat(4000));
    for name in [
        "filename=\"../../x\"",
        "filename=\"/etc/passwd\"",
        "filename=\"a\\\"b\\\\\"",
        "filename=\"\"",
        "filename=\"a;name=mask\"",
        "filename*=UTF-8''%2e%2e%2fx",
        "filename=blob",
        &long_name,
    ] {
        let head = format!("Content-Disposition: form-data; name=\"image\"; {name}\r\nContent-Type: text/html");
        let fixture = TestSpool::new();
        let form = fixture.read(FORM, vec![form(&[part(&head, &png(1))])]).await.unwrap();
        assert_eq!((form.images[0].param.as_str(), bytes(&form.images[0])), ("image", png(1)), "{name}");
        assert_eq!(fixture.leftovers(), 0);
    }
}

#[tokio::test]
async fn parts_with_transfer_encodings_or_nested_parts_are_refused() {
    for line in [
        "Content-Transfer-Encoding: base64",
        "Content-Transfer-Encoding: quoted-printable",
        "Content-Type: multipart/mixed; boundary=yy",
    ] {
        let head = format!("Content-Disposition: form-data; name=\"image\"\r\n{line}");
        assert_refused(read_form(&[part(&head, &png(1))]).await, 400, None);
    }
    let head = "Content-Disposition: form-data; name=\"image\"\r\nContent-Transfer-Encoding: Binary";
    assert!(read_form(&[part(head, &png(1))]).await.is_ok());
    for head in
        ["Content-Type: image/png", "Content-Disposition: form-data", "Content-Disposition: form-data; name*=image"]
    {
        assert_refused(read_form(&[part(head, &png(1))]).await, 400, None);
    }
}

#[test]
fn boundaries_are_read_from_content_types() {
    let longest = "b".repeat(70);
    for (parameters, expected) in [
        ("boundary=xx", "xx"),
        ("boundary=\"x x\"", "x x"),
        ("boundary=\"x:/=?x\"", "x:/=?x"),
        ("boundary=xx; charset=utf-8", "xx"),
        ("charset=utf-8; boundary=xx", "xx"),
        ("Boundary=xx", "xx"),
        ("boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW", "----WebKitFormBoundary7MA4YWxkTrZu0gW"),
        ("boundary=----------------------------123456789012", "----------------------------123456789012"),
        (&format!("boundary={longest}"), &longest),
    ] {
        let result = boundary(&format!("Multipart/Form-Data; {parameters}")).unwrap();
        assert_eq!(result.as_deref(), Ok(expected), "{parameters}");
    }
    let too_long = format!("boundary={}", "b".repeat(300));
    for parameters in [
        "",
        "charset=utf-8",
        "boundary=",
        "boundary=\"\"",
        "boundary=xx; boundary=yy",
        "boundary=xx; boundary=xx",
        "boundary=\"x\u{1}x\"",
        "boundary=\"xx \"",
        "boundary=\"xx",
        "boundary=ü",
        &too_long,
    ] {
        assert!(boundary(&format!("multipart/form-data; {parameters}")).unwrap().is_err(), "{parameters}");
    }
    assert!(boundary("multipart/form-data").unwrap().is_err());
    assert!(boundary("multipart/form-datax; boundary=xx").is_none());
}

#[tokio::test]
async fn a_disk_failure_is_reported_as_unavailable() {
    let fixture = TestSpool::new();
    std::fs::remove_dir(fixture.folder.path().join("spool")).unwrap();
    // The first image uses the file that the spool opened at its start, so only the second one fails.
    let body_with_two_images = form(&[file_part("image", &png(1)), file_part("image", &png(2))]);
    assert_eq!(fixture.read(FORM, vec![body_with_two_images]).await.unwrap_err(), Error::Unavailable);
}

#[tokio::test]
async fn no_disk_access_happens_on_a_worker_thread() {
    let fixture = TestSpool::new();
    let before = disk_accesses();
    drop(fixture.read(FORM, vec![form(&example())]).await.unwrap());
    assert_eq!(disk_accesses(), before);
}

#[tokio::test]
async fn a_form_that_arrives_byte_by_byte_causes_few_writes() {
    let (fixture, image) = (TestSpool::new(), vec![7; 200_000]);
    let body = form(&[file_part("image", &image), text_part("prompt", b"red")]);
    let pieces = (0..body.len()).map(move |index| body.slice(index..=index));
    let form = fixture.read_counted(FORM, pieces).await.0.unwrap();
    assert!(bytes(&form.images[0]) == image);
    assert!(fixture.spool.writes() <= 4, "{} writes", fixture.spool.writes());
}

/// Reads the form of a page with one field of its own.
async fn read_form_of_page(parts: &[Vec<u8>]) -> Result<ImagePageForm, Error> {
    let request = hyper::Request::post("/").header("content-type", FORM);
    let request = request.body(Body::from(form(parts))).unwrap();
    let fixture = TestSpool::new();
    read_page_form(request, &fixture.admission, &fixture.spool, &["csrf"]).await
}

#[tokio::test]
async fn the_form_of_a_page_needs_no_image_and_has_fields_of_its_own() {
    let missing = [
        part(
            "content-disposition: form-data; name=\"image\"; filename=\"\"\r\ncontent-type: application/octet-stream",
            b"",
        ),
        part("content-disposition: form-data; name=\"mask\"; filename=\"\"", b""),
    ];
    let fields = [text_part("csrf", b"token"), text_part("prompt", b"a fox"), text_part("n", b"2")];
    let read = read_form_of_page(&[&missing[..], &fields[..]].concat()).await.unwrap();
    assert_eq!(read.page_fields, [("csrf".to_owned(), "token".to_owned())]);
    assert_eq!((read.form.images.len(), read.form.mask.is_some()), (0, false));
    assert_eq!(Value::Object(read.form.fields), json!({"prompt": "a fox", "n": 2}));
    // Of a client of the API, both would be images without content.
    assert!(read_form(&missing).await.unwrap().images[0].header.is_err());
}

#[tokio::test]
async fn an_empty_file_that_was_chosen_is_not_left_out() {
    let chosen = file_part("image", b"");
    let read = read_form_of_page(&[chosen, text_part("prompt", b"a fox")]).await.unwrap();
    assert!(read.form.images[0].header.is_err(), "the rules refuse it");
    let nameless = part("content-disposition: form-data; name=\"image\"", &png(1));
    assert_eq!(read_form_of_page(&[nameless]).await.unwrap_err().code().status(), 400);
}

#[tokio::test]
async fn a_dialect_has_a_part_for_the_mask_and_fields_that_are_removed() {
    let parts = [file_part("image", &png(1)), file_part("mask[]", &png(9)), text_part("style", b"vivid")];
    let request = || hyper::Request::post("/").header("content-type", FORM).body(Body::from(form(&parts))).unwrap();
    let declared = |dialects| {
        let names = FormNames { dialects, ..FormNames::default() };
        FormSettings { names, downloader: None }
    };
    let fixture = TestSpool::new();
    let read = |settings| read(request(), &fixture.admission, &fixture.spool, settings);
    let form = read(declared([Dialect::LegacyFields].into_iter().collect())).await.unwrap();
    let mask = form.mask.expect("a mask");
    assert_eq!((mask.param.as_str(), bytes(&mask)), ("mask[]", png(9)));
    assert_eq!(form.fields["style"], "vivid");
    let others = [Dialect::Sizes, Dialect::Url, Dialect::Azure, Dialect::Models].into_iter().collect();
    for dialects in [DialectSet::default(), others] {
        let error = read(declared(dialects)).await.unwrap_err();
        assert_eq!(error.param(), Some("mask[]"));
        let message = "Unknown parameter: 'mask[]'. The dialect 'legacy-fields' accepts this parameter; an \
                       administrator can declare it for the key or its group.";
        assert_eq!(error.body()["error"]["message"], message);
    }
}
