//! Multipart forms.

use super::*;
use crate::gateway::front::form::multipart::boundary;
use crate::gateway::spool::blocking_io::tests::disk_accesses;
use crate::image::{Format, ImageFileError};
use crate::tables::MAX_UPLOAD_IMAGE_BYTES;

const FORM: &str = "multipart/form-data; boundary=xx";

fn part(head: &str, content: &[u8]) -> Vec<u8> {
    [b"--xx\r\n", head.as_bytes(), b"\r\n\r\n", content, b"\r\n"].concat()
}

fn named(name: &str, content: &[u8]) -> Vec<u8> {
    part(&format!("Content-Disposition: form-data; name=\"{name}\""), content)
}

fn file(name: &str, content: &[u8]) -> Vec<u8> {
    let head = format!(
        "Content-Disposition: form-data; name=\"{name}\"; filename=\"upload\"\r\nContent-Type: application/octet-stream"
    );
    part(&head, content)
}

/// A complete form with these parts.
fn form(parts: &[Vec<u8>]) -> Bytes {
    [parts.concat(), b"--xx--\r\n".to_vec()].concat().into()
}

async fn read_form(parts: &[Vec<u8>]) -> Result<EditForm, Error> {
    TestSpool::new().read(FORM, vec![form(parts)]).await
}

fn example() -> Vec<Vec<u8>> {
    vec![
        file("image[]", &png(1)),
        named("prompt", "ein Hut für ihn\r\n--x".as_bytes()),
        file("mask", &png(9)),
        file("image", &png(2)),
        named("n", b"2"),
        file("image[1]", &png(3)),
        named("stream", b"true"),
        named("size", b""),
        named("model", b"gpt-image-2"),
        // A part named `image` is a file even without a file name.
        named("image", b"no image"),
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
    let fields =
        serde_json::json!({"prompt": "ein Hut für ihn\r\n--x", "n": 2, "stream": true, "model": "gpt-image-2"});
    assert_eq!(serde_json::Value::Object(form.fields.clone()), fields);
}

#[tokio::test]
async fn images_keep_their_order_whatever_their_names_and_wherever_they_stand() {
    assert_example(&read_form(&example()).await.unwrap());
}

#[tokio::test]
async fn a_form_is_the_same_wherever_its_bytes_are_cut() {
    let place = TestSpool::new();
    let whole = form(&example());
    for size in [1, 2, 3, 5, 7, 16, 61, 256] {
        let pieces = whole.chunks(size).map(Bytes::copy_from_slice).collect();
        assert_example(&place.read(FORM, pieces).await.unwrap());
    }
    for cut in 0..whole.len() {
        let pieces = vec![whole.slice(..cut), whole.slice(cut..)];
        assert_example(&place.read(FORM, pieces).await.unwrap());
    }
}

#[tokio::test]
async fn a_form_that_ends_early_is_never_taken_for_whole() {
    let place = TestSpool::new();
    let whole = form(&[file("image", &png(1)), named("prompt", b"red")]);
    // The last two bytes are not needed.
    for end in 0..whole.len() - 2 {
        assert_refused(place.read(FORM, vec![whole.slice(..end)]).await, 400, None);
    }
    assert_eq!(place.leftovers(), 0);
}

/// A form with one file of this many bytes.
fn sized(name: &str, length: u64) -> impl Iterator<Item = Bytes> + Send + Sync + use<> {
    let start = png(1);
    let head = format!("--xx\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a\"\r\n\r\n");
    let padding = zeros(length - start.len() as u64);
    let first = if name == "mask" { file("image", &png(2)) } else { Vec::new() };
    let begin = [first, head.into_bytes(), start].concat();
    [Bytes::from(begin)].into_iter().chain(padding).chain([Bytes::from_static(b"\r\n--xx--\r\n")])
}

#[tokio::test]
async fn an_image_and_a_mask_have_one_byte_less_than_the_limit() {
    let place = TestSpool::new();
    for name in ["image", "image[]", "image[15]", "mask"] {
        let form = place.pull(FORM, sized(name, MAX_UPLOAD_IMAGE_BYTES - 1)).await.0.unwrap();
        let upload = form.mask.as_ref().unwrap_or(&form.images[0]);
        assert_eq!((upload.file.len(), upload.header.is_ok()), (MAX_UPLOAD_IMAGE_BYTES - 1, true), "{name}");
        for length in [MAX_UPLOAD_IMAGE_BYTES, MAX_UPLOAD_IMAGE_BYTES + 1] {
            assert_refused(place.pull(FORM, sized(name, length)).await.0, 413, Some(name));
        }
    }
    assert_eq!(place.leftovers(), 0);
}

#[tokio::test]
async fn an_image_is_refused_as_soon_as_it_is_too_large() {
    let place = TestSpool::new();
    let (result, pulled) = place.pull(FORM, sized("image", 8 * MAX_UPLOAD_IMAGE_BYTES)).await;
    assert_refused(result, 413, Some("image"));
    assert!(pulled < MAX_UPLOAD_IMAGE_BYTES + 128 * 1024, "{pulled}");
}

#[tokio::test]
async fn the_seventeenth_image_and_the_second_mask_are_refused_by_their_heads() {
    let place = TestSpool::new();
    let images: Vec<_> = (0..16).map(|number| file("image[]", &png(number))).collect();
    assert_eq!(read_form(&images).await.unwrap().images.len(), 16);
    let one_more = [images.concat(), b"--xx\r\nContent-Disposition: form-data; name=image\r\n\r\n".to_vec()].concat();
    let (result, pulled) = place.pull(FORM, [Bytes::from(one_more)].into_iter().chain(zeros(1 << 30))).await;
    assert_refused(result, 400, Some("image"));
    assert!(pulled < 128 * 1024, "{pulled}");
    assert_refused(read_form(&[file("mask", &png(1)), file("mask", &png(1))]).await, 400, Some("mask"));
    assert_refused(read_form(&[file("mask", &png(1)), named("prompt", b"red")]).await, 400, Some("image"));
}

#[tokio::test]
async fn fields_are_read_as_the_table_says() {
    let with = async |parts: &[Vec<u8>]| read_form(&[vec![file("image", &png(1))], parts.to_vec()].concat()).await;
    let twice = with(&[named("output_compression", b"80"), named("output_compression", b"80")]).await.unwrap();
    assert_eq!(twice.fields["output_compression"], 80);
    assert_refused(with(&[named("n", b"1"), named("n", b"2")]).await, 400, Some("n"));
    assert_refused(with(&[named("prompt", b"a"), named("prompt", b"b")]).await, 400, Some("prompt"));
    let empty = with(&[named("n", b""), named("n", b"2"), named("n", b""), named("user", b"")]).await.unwrap();
    assert_eq!(serde_json::Value::Object(empty.fields), serde_json::json!({"n": 2}));
    // The rules refuse values that are not of their kind.
    assert_eq!(with(&[named("n", b"two")]).await.unwrap().fields["n"], "two");
    for name in ["style", "images", "image[x]", "image[", "image[12345]", "IMAGE", "mask[]", "", "_charset_"] {
        let (name, error) = (name, with(&[named(name, b"x")]).await.unwrap_err());
        assert_eq!((error.code().status(), error.param()), (400, Some(name)), "{error}");
    }
}

#[tokio::test]
async fn texts_are_utf_8_and_have_a_bound() {
    let longest = "😀".repeat(32_000);
    let form = read_form(&[file("image", &png(1)), named("prompt", longest.as_bytes())]).await.unwrap();
    assert_eq!(form.fields["prompt"], longest.as_str());
    let long = vec![b'a'; 128 * 1024 + 1];
    assert_refused(read_form(&[named("prompt", &long)]).await, 400, Some("prompt"));
    assert_refused(read_form(&[named("prompt", b"gr\xfcn")]).await, 400, Some("prompt"));
    let said = |charset: &str, text: &[u8]| {
        let head =
            format!("Content-Disposition: form-data; name=prompt\r\nContent-Type: text/plain; charset={charset}");
        [file("image", &png(1)), part(&head, text)]
    };
    assert!(read_form(&said("utf-8", "grün".as_bytes())).await.is_ok());
    assert!(read_form(&said("\"UTF-8\"", "grün".as_bytes())).await.is_ok());
    assert!(read_form(&said("iso-8859-1", b"red")).await.is_ok());
    assert_refused(read_form(&said("iso-8859-1", "grün".as_bytes())).await, 400, Some("prompt"));
}

#[tokio::test]
async fn a_thousand_fields_are_refused_early() {
    let place = TestSpool::new();
    for name in ["user", "n"] {
        let fields = (0..100_000).map(move |_| Bytes::from(named(name, b"")));
        let (result, pulled) = place.pull(FORM, fields).await;
        assert_refused(result, 400, None);
        assert!(pulled < 10_000, "{pulled}");
    }
}

#[tokio::test]
async fn the_parser_gets_no_more_than_it_needs() {
    let place = TestSpool::new();
    let parts: Vec<_> = (0..60).map(|_| named("n", b"1")).chain([named("style", b"")]).collect();
    let (result, pulled) = place.pull(FORM, [Bytes::from(parts.concat())].into_iter().chain(zeros(1 << 30))).await;
    assert_refused(result, 400, Some("style"));
    assert_eq!(pulled, parts.concat().len() as u64, "all that it needed was there");
}

#[tokio::test]
async fn huge_heads_and_boundaries_that_never_come_are_refused_early() {
    let place = TestSpool::new();
    let head = |text: String| format!("--xx\r\nContent-Disposition: form-data; name=image\r\n{text}");
    let many: String = (0..20).map(|number| format!("x-{number}: 1\r\n")).collect();
    let frames = |text: String| [Bytes::from(text)].into_iter().chain(zeros(1 << 30));
    for text in [
        head("x: ".to_owned()),
        head("x: 1\r\n".repeat(100_000)),
        head(format!("x: {}\r\n\r\n", "a".repeat(9000))),
        head(format!("{many}\r\n")),
        "preamble ".repeat(3000),
        "--xx".to_owned() + &" ".repeat(20_000),
    ] {
        let (result, pulled) = place.pull(FORM, frames(text.clone())).await;
        assert_refused(result, 400, None);
        assert!(pulled <= text.len() as u64 + 128 * 1024, "{pulled}");
    }
    let whole = form(&[file("image", &png(1))]);
    assert_refused(place.pull(FORM, [whole].into_iter().chain(zeros(1 << 30))).await.0, 400, None);
}

#[tokio::test]
async fn what_stands_around_the_parts_is_passed_over() {
    let place = TestSpool::new();
    let whole = form(&[file("image", &png(1))]);
    for (before, after) in [("preamble\r\n", ""), ("\r\n", "epilogue"), ("", "--xx\r\nContent-Disposition: y\r\n\r\n")]
    {
        let pieces = vec![Bytes::from(before), whole.clone(), Bytes::from(after)];
        assert_eq!(bytes(&place.read(FORM, pieces).await.unwrap().images[0]), png(1));
    }
    let spaced = String::from_utf8(named("n", b"1")).unwrap().replace("--xx", "--xx \t ");
    assert_eq!(read_form(&[file("image", &png(1)), spaced.into()]).await.unwrap().fields["n"], 1);
}

#[tokio::test]
async fn content_that_looks_like_a_boundary_arrives_whole_or_not_at_all() {
    for content in ["--xx", "\n--xx\n", "\r--xx", "\r\n--x", "\r\n-", "\r\r\n", "\r\n\r\n", "a--xx--b"] {
        let form = read_form(&[file("image", content.as_bytes())]).await.unwrap();
        assert_eq!(bytes(&form.images[0]), content.as_bytes());
    }
    assert_refused(read_form(&[file("image", b"\r\n--xxx")]).await, 400, None);
    let line_feeds = String::from_utf8(form(&[named("image", b"a")]).to_vec()).unwrap().replace('\r', "");
    assert_refused(TestSpool::new().read(FORM, vec![line_feeds.into()]).await, 400, None);
}

#[tokio::test]
async fn file_names_are_not_looked_at() {
    let long = format!("filename=\"{}\"", "x".repeat(4000));
    for name in [
        "filename=\"../../x\"",
        "filename=\"/etc/passwd\"",
        "filename=\"a\\\"b\\\\\"",
        "filename=\"\"",
        "filename=\"a;name=mask\"",
        "filename*=UTF-8''%2e%2e%2fx",
        "filename=blob",
        &long,
    ] {
        let head = format!("Content-Disposition: form-data; name=\"image\"; {name}\r\nContent-Type: text/html");
        let place = TestSpool::new();
        let form = place.read(FORM, vec![form(&[part(&head, &png(1))])]).await.unwrap();
        assert_eq!((form.images[0].param.as_str(), bytes(&form.images[0])), ("image", png(1)), "{name}");
        assert_eq!(place.leftovers(), 0);
    }
}

#[tokio::test]
async fn parts_that_would_have_to_be_undone_are_refused() {
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
fn boundaries_are_read_as_clients_write_them() {
    let most = "b".repeat(70);
    for (parameters, expected) in [
        ("boundary=xx", "xx"),
        ("boundary=\"x x\"", "x x"),
        ("boundary=\"x:/=?x\"", "x:/=?x"),
        ("boundary=xx; charset=utf-8", "xx"),
        ("charset=utf-8; boundary=xx", "xx"),
        ("Boundary=xx", "xx"),
        ("boundary=----WebKitFormBoundary7MA4YWxkTrZu0gW", "----WebKitFormBoundary7MA4YWxkTrZu0gW"),
        ("boundary=----------------------------123456789012", "----------------------------123456789012"),
        (&format!("boundary={most}"), &most),
    ] {
        let read = boundary(&format!("Multipart/Form-Data; {parameters}")).unwrap();
        assert_eq!(read.as_deref(), Ok(expected), "{parameters}");
    }
    let long = format!("boundary={}", "b".repeat(300));
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
        &long,
    ] {
        assert!(boundary(&format!("multipart/form-data; {parameters}")).unwrap().is_err(), "{parameters}");
    }
    assert!(boundary("multipart/form-data").unwrap().is_err());
    assert!(boundary("multipart/form-datax; boundary=xx").is_none());
}

#[tokio::test]
async fn a_disk_that_takes_no_more_is_nobodys_fault() {
    let place = TestSpool::new();
    std::fs::remove_dir(place.folder.path().join("spool")).unwrap();
    // The first image gets the file that was open from the start.
    let two = form(&[file("image", &png(1)), file("image", &png(2))]);
    assert_eq!(place.read(FORM, vec![two]).await.unwrap_err(), Error::Unavailable);
}

#[tokio::test]
async fn no_file_is_touched_on_a_thread_of_the_runtime() {
    let place = TestSpool::new();
    let before = disk_accesses();
    drop(place.read(FORM, vec![form(&example())]).await.unwrap());
    assert_eq!(disk_accesses(), before);
}

#[tokio::test]
async fn a_form_that_comes_byte_by_byte_takes_few_writes() {
    let (place, image) = (TestSpool::new(), vec![7; 200_000]);
    let whole = form(&[file("image", &image), named("prompt", b"red")]);
    let pieces = (0..whole.len()).map(move |at| whole.slice(at..=at));
    let form = place.pull(FORM, pieces).await.0.unwrap();
    assert!(bytes(&form.images[0]) == image);
    assert!(place.spool.writes() <= 4, "{} writes", place.spool.writes());
}
