//! Tests of JSON forms.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::gateway::front::form::image_url::URL_MAX;
use crate::gateway::spool::blocking_io::tests::disk_accesses;

const JSON: &str = "application/json";

fn url(number: u8) -> String {
    format!("data:image/png;base64,{}", STANDARD.encode(png(number)))
}

async fn read_text(text: impl Into<Bytes>) -> Result<EditForm, Error> {
    TestSpool::new().read(JSON, vec![text.into()]).await
}

async fn read_json(value: &Value) -> Result<EditForm, Error> {
    read_text(value.to_string()).await
}

fn with_url(url: &str) -> Value {
    json!({"images": [{"image_url": url}], "prompt": "red"})
}

fn example() -> Value {
    json!({
        "images": [{"image_url": url(1)}, {"file_id": null, "image_url": url(2)}],
        "mask": {"image_url": url(9)},
        "prompt": "ein \"Hut\" für ihn \\ \n 😀",
        "n": 1.0,
        "stream": true,
        "user": null,
    })
}

fn assert_example(form: &EditForm) {
    let images: Vec<_> = form.images.iter().map(|image| (image.param.as_str(), bytes(image))).collect();
    assert_eq!(images, [("images[0].image_url", png(1)), ("images[1].image_url", png(2))]);
    assert!(form.images[0].header.as_ref().unwrap().has_alpha);
    assert_eq!(form.mask.as_ref().map(|mask| (mask.param.as_str(), bytes(mask))), Some(("mask.image_url", png(9))));
    let fields = json!({"prompt": "ein \"Hut\" für ihn \\ \n 😀", "n": 1.0, "stream": true, "user": null});
    assert_eq!(Value::Object(form.fields.clone()), fields);
}

#[tokio::test]
async fn a_body_is_read_in_chunks_of_any_size() {
    let fixture = TestSpool::new();
    for text in [example().to_string(), serde_json::to_string_pretty(&example()).unwrap()] {
        let text = Bytes::from(text);
        let single_bytes = text.chunks(1).map(Bytes::copy_from_slice).collect();
        assert_example(&fixture.read(JSON, single_bytes).await.unwrap());
        for cut in 0..text.len() {
            let pieces = vec![text.slice(..cut), text.slice(cut..)];
            assert_example(&fixture.read("application/json; charset=utf-8", pieces).await.unwrap());
        }
    }
    assert_eq!(fixture.leftovers(), 0);
}

#[tokio::test]
async fn a_truncated_body_is_refused() {
    let fixture = TestSpool::new();
    let text = Bytes::from(example().to_string());
    for end in 0..text.len() {
        assert!(fixture.read(JSON, vec![text.slice(..end)]).await.is_err(), "{end}");
    }
}

#[tokio::test]
async fn escapes_in_a_data_url_are_decoded() {
    let file: Vec<u8> = [png(1), (0..=255).rev().flat_map(|byte| [byte, 0xfb, 0xff]).collect()].concat();
    let plain = STANDARD.encode(&file);
    assert!(plain.contains('/') && plain.contains('+'));
    let lines = plain.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap()).collect::<Vec<_>>();
    let fixture = TestSpool::new();
    for base64 in [
        plain.replace('/', "\\/"),
        plain.replace('+', "\\u002B").replace('/', "\\u002f"),
        lines.join("\\n"),
        lines.join("\\r\\n") + "\\n",
        lines.join(" ") + " \\t ",
        plain.chars().map(|char| format!("\\u{:04x}", u32::from(char))).collect(),
    ] {
        let body = Bytes::from(format!(r#"{{"images":[{{"image_url":"DATA:image\/png;base64,{base64}"}}]}}"#));
        for size in [1, 7, body.len()] {
            let pieces = body.chunks(size).map(Bytes::copy_from_slice).collect();
            let form = fixture.read(JSON, pieces).await.unwrap();
            assert_eq!(bytes(&form.images[0]), file, "{base64}");
        }
    }
}

#[tokio::test]
async fn invalid_base64_is_refused_with_its_parameter() {
    let fixture = TestSpool::new();
    for base64 in [
        "QQ=",
        "QQ",
        "Q",
        "QUI",
        "QQ==Q",
        "QQ==QUJD",
        "QQ=A",
        "=",
        "====",
        "Q===",
        "QR==",
        "QU_-",
        "QU\u{e9}D",
        "QUJD!",
        "QUJDQ",
        "QU\\\\JD",
        "QU\\\"JD",
        "QU\\u00e9D",
        "QU\\u0000D",
        "QUJD,",
        "QUJDQUJDQUJDQUJDQUJDQUJDQUJDQUJDQQ==QUJD",
    ] {
        let body = Bytes::from(format!(r#"{{"images":[{{"image_url":"data:image/png;base64,{base64}"}}]}}"#));
        for size in [1, 5, body.len()] {
            let pieces = body.chunks(size).map(Bytes::copy_from_slice).collect();
            assert_refused(fixture.read(JSON, pieces).await, 400, Some("images[0].image_url"));
        }
    }
    // A line break that is not escaped is invalid JSON, but in a data URL it is reported as invalid base64.
    assert_refused(
        read_text("{\"images\":[{\"image_url\":\"data:image/png;base64,QU\nJD\"}]}").await,
        400,
        Some("images[0].image_url"),
    );
    for escape in ["\\x", "\\u00g0", "\\u", "\\U0041"] {
        let body = format!(r#"{{"images":[{{"image_url":"data:image/png;base64,QUJD{escape}"}}]}}"#);
        assert_refused(read_text(body).await, 400, None);
    }
}

#[tokio::test]
async fn only_base64_data_urls_of_images_are_accepted() {
    for (url, expected_word) in [
        ("https://example.com/a.png", "remote"),
        ("HTTP://example.com/a.png", "remote"),
        ("", "data URL"),
        ("dat", "data URL"),
        ("data:", "data URL"),
        ("file:///etc/passwd", "data URL"),
        ("iVBORw0KGgo=", "data URL"),
        ("data:image/png,abc", "data URL"),
        ("data:text/plain;base64,QUJD", "data URL"),
        ("data:;base64,QUJD", "data URL"),
        ("data:image/png;base64", "data URL"),
        (&format!("data:image/png;{};base64,QUJD", "a".repeat(300)), "data URL"),
    ] {
        let message = assert_refused(read_json(&with_url(url)).await, 400, Some("images[0].image_url"));
        assert!(message.contains(expected_word), "{url}: {message}");
    }
    let form = read_json(&with_url("data:image/png;name=a.png;base64,QUJD")).await.unwrap();
    assert_eq!(bytes(&form.images[0]), b"ABC");
    assert!(read_json(&with_url("data:image/png;base64,")).await.unwrap().images[0].header.is_err());
}

#[tokio::test]
async fn each_structural_error_names_its_parameter() {
    let image = json!({"image_url": url(1)});
    for (body, param) in [
        (json!({"prompt": "red"}), "images"),
        (json!({"images": []}), "images"),
        (json!({"images": null}), "images"),
        (json!({"images": url(1)}), "images"),
        (json!({"images": image}), "images"),
        (json!({"images": [url(1)]}), "images[0]"),
        (json!({"images": [image, null]}), "images[1]"),
        (json!({"images": [image, []]}), "images[1]"),
        (json!({"images": [image, {}]}), "images[1]"),
        (json!({"images": [{"image_url": null, "file_id": null}]}), "images[0]"),
        (json!({"images": [{"file_id": "f"}]}), "images[0].file_id"),
        (json!({"images": [{"file_id": 1}]}), "images[0].file_id"),
        (json!({"images": [{"file_id": "f", "image_url": url(1)}]}), "images[0]"),
        (json!({"images": [{"image_url": 1}]}), "images[0].image_url"),
        (json!({"images": [{"image_url": {"url": url(1)}}]}), "images[0].image_url"),
        (json!({"images": [image, {"image_url": url(1), "detail": "high"}]}), "images[1].detail"),
        (json!({"images": [image], "mask": url(1)}), "mask"),
        (json!({"images": [image], "mask": {}}), "mask"),
        (json!({"images": [image], "mask": []}), "mask"),
        (json!({"images": [image], "mask": {"file_id": "f"}}), "mask.file_id"),
        (json!({"images": [image], "mask": {"image_url": "x"}}), "mask.image_url"),
        (json!({"images": [image], "mask": {"b64": "x"}}), "mask.b64"),
        (json!({"images": vec![image.clone(); 17]}), "images"),
        (json!({"images": [image], "image": url(1)}), "image"),
        (json!({"images": [image], "style": {}}), "style"),
    ] {
        let error = read_json(&body).await.expect_err(param);
        assert_eq!((error.code().status(), error.param()), (400, Some(param)), "{error}");
    }
    let both = format!(r#"{{"images":[{{"image_url":"{}","file_id":"f"}}]}}"#, url(1));
    assert_refused(read_text(both).await, 400, Some("images[0]"));
    assert_eq!(read_json(&json!({"images": vec![image.clone(); 16], "mask": null})).await.unwrap().images.len(), 16);
}

#[tokio::test]
async fn duplicate_members_with_different_values_are_refused() {
    let image = format!(r#"{{"image_url":"{}"}}"#, url(1));
    for (members, param) in [
        (format!(r#""images":[{image}],"images":[{image}]"#), "images"),
        (format!(r#""images":[{image}],"mask":{image},"mask":{image}"#), "mask"),
        (format!(r#""images":[{image}],"mask":null,"mask":{image}"#), "mask"),
        (format!(r#""images":[{image}],"n":1,"n":2"#), "n"),
        (format!(r#""images":[{image}],"prompt":"a","pr\u006fmpt":"b""#), "prompt"),
        (format!(r#""images":[{{"image_url":"{0}","image_url":"{0}"}}]"#, url(1)), "images[0].image_url"),
    ] {
        assert_refused(read_text(format!("{{{members}}}")).await, 400, Some(param));
    }
    let same = format!(r#"{{"imag\u0065s":[{image}],"n":1,"n":1}}"#);
    assert_eq!(read_text(same).await.unwrap().fields["n"], 1);
}

#[tokio::test]
async fn invalid_json_is_refused() {
    let valid = example().to_string();
    let open = valid.strip_suffix('}').unwrap();
    for body in [
        String::new(),
        "[]".to_owned(),
        "null".to_owned(),
        format!("\u{feff}{valid}"),
        format!("{valid}x"),
        format!("{valid}{valid}"),
        format!("{open},}}"),
        format!("{open},\"quality\":\"a\"\"b\"}}"),
        format!("{open},\"quality\" \"low\"}}"),
        format!("{open},\"quality\":}}"),
        format!("{open},\"quality\":lo}}"),
        format!("{open},\"quality\":01}}"),
        format!("{open},\"quality\":[1,]}}"),
        format!("{open},\"quality\":\"\\ud800\"}}"),
        format!("{open},quality:1}}"),
        format!("{open}]"),
        valid.replace("[{", "[,{"),
        valid.replace("},{", "}{"),
        valid.replace("},{", "},,{"),
        valid.replace("}]", "},]"),
        valid.replace(":[{", ":[{,"),
        valid.replacen("\"}", "\",}", 1),
    ] {
        let error = read_text(body.clone()).await.expect_err(&body);
        assert_eq!((error.code().status(), error.param()), (400, None), "{body}: {error}");
        assert!(error.body()["error"]["reason"] == "invalid_json", "{body}");
    }
    let invalid = [open.as_bytes(), b",\"quality\":\"\xff\"}"].concat();
    assert_refused(read_text(invalid).await, 400, None);
}

#[tokio::test]
async fn objects_and_arrays_are_read_as_empty() {
    let mut body = example();
    body["quality"] = json!([1, {"a": "]\"}"}]);
    body["user"] = json!({"a": ["}"]});
    let fields = read_json(&body).await.unwrap().fields;
    assert_eq!((&fields["quality"], &fields["user"]), (&json!([]), &json!({})));
    let deep =
        format!(r#"{{"images":[{{"image_url":"{}"}}],"n":{}{}}}"#, url(1), "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(read_text(deep).await.unwrap().fields["n"], json!([]));
}

#[tokio::test]
async fn text_besides_the_images_is_limited() {
    let fixture = TestSpool::new();
    let open = r#"{"prompt":""#;
    let letters = std::iter::repeat_n(Bytes::from(vec![b'a'; 64 * 1024]), 10_000);
    let (result, pulled) = fixture.read_counted(JSON, [Bytes::from(open)].into_iter().chain(letters)).await;
    assert_refused(result, 413, None);
    assert!(pulled < 1_200_000, "{pulled}");
}

/// A body with one data URL of this many characters.
fn body_with_url_length(characters: u64) -> impl Iterator<Item = Bytes> + Send + Sync {
    let open = r#"{"images":[{"image_url":""#;
    // The length of the base64 text must be a multiple of four.
    let heads = ["", "a", "aa", "aaa"].map(|parameter| format!("data:image/png;{parameter};base64,"));
    let head = heads.into_iter().find(|head| (characters - head.len() as u64).is_multiple_of(4)).unwrap();
    let remaining = characters - head.len() as u64;
    let frame = Bytes::from(vec![b'A'; 64 * 1024]);
    let frames = (0..remaining.div_ceil(65_536))
        .map(move |index| frame.slice(..usize::try_from(65_536.min(remaining - index * 65_536)).unwrap()));
    [Bytes::from(open), Bytes::from(head)].into_iter().chain(frames).chain([Bytes::from(r#""}]}"#)])
}

#[tokio::test]
async fn a_data_url_may_have_as_many_characters_as_documented() {
    assert_eq!(URL_MAX, 20_971_520);
    let fixture = TestSpool::new();
    for characters in [URL_MAX - 1, URL_MAX] {
        let form = fixture.read_counted(JSON, body_with_url_length(characters)).await.0.unwrap();
        assert!(form.images[0].file.len() > 15_000_000);
    }
    let (result, pulled) = fixture.read_counted(JSON, body_with_url_length(URL_MAX + 1)).await;
    assert_refused(result, 400, Some("images[0].image_url"));
    assert!(pulled <= URL_MAX + 128, "{pulled}");
    let (result, pulled) = fixture.read_counted(JSON, body_with_url_length(8 * URL_MAX)).await;
    assert_refused(result, 400, Some("images[0].image_url"));
    assert!(pulled < URL_MAX + 128 * 1024, "{pulled}");
}

#[tokio::test]
async fn a_remote_url_is_refused_before_the_body_is_read_completely() {
    let open = Bytes::from(r#"{"images":[{"image_url":"https://a"#);
    let (result, pulled) = TestSpool::new().read_counted(JSON, [open].into_iter().chain(zeros(1 << 30))).await;
    assert_refused(result, 400, Some("images[0].image_url"));
    assert!(pulled < 100, "{pulled}");
}

#[tokio::test]
async fn no_disk_access_happens_on_a_worker_thread() {
    let fixture = TestSpool::new();
    let before = disk_accesses();
    drop(fixture.read(JSON, vec![example().to_string().into()]).await.unwrap());
    assert_eq!(disk_accesses(), before);
}

#[tokio::test]
async fn a_body_that_arrives_byte_by_byte_causes_few_writes() {
    let (fixture, image) = (TestSpool::new(), [png(1), vec![7; 200_000]].concat());
    let url = format!("data:image/png;base64,{}", STANDARD.encode(&image));
    let body = Bytes::from(with_url(&url).to_string());
    let pieces = (0..body.len()).map(move |at| body.slice(at..=at));
    let form = fixture.read_counted(JSON, pieces).await.0.unwrap();
    assert!(bytes(&form.images[0]) == image);
    assert!(fixture.spool.writes() <= 6, "{} writes", fixture.spool.writes());
}
