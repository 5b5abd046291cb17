//! Tests of images in formats that no request can name, and of pages and JSON in place of images.

use super::*;

/// An answer with this file as its only image.
fn answer_with_file(file: &[u8]) -> String {
    use base64::Engine as _;
    format!(r#"{{"data":[{{"b64_json":"{}"}}]}}"#, base64::engine::general_purpose::STANDARD.encode(file))
}

#[tokio::test]
async fn a_page_or_json_in_place_of_an_image_is_none() {
    for text in
        ["<html>error</html>", " <!DOCTYPE html><html><head><title>Bad gateway</title></head></html>", "{\"error\":1}"]
    {
        for cut in [1, 7, 1000] {
            let proven = prove(pieces(&answer_with_file(text.as_bytes()), cut), requested_answer(1)).await;
            assert!(matches!(proven, Err(ProofError::Unusable(FailureCause::NoImage))), "{text}");
        }
    }
}

#[tokio::test]
async fn an_image_in_another_format_is_passed_on_under_its_name() {
    let avif = b"\0\0\0\x20ftypavif\0\0\0\0avifmif1miafMA1B, and more bytes than are needed";
    let cases: [(&[u8], &str); 5] = [
        (avif, "avif"),
        (b"BM\x36\0\x0c\0\0\0\0\0\x36\0\0\0", "bmp"),
        (b"II*\0\x08\0\0\0\x0f\0\xfe\0", "tiff"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl"),
        (b"<svg xmlns=\"http://www.w3.org/2000/svg\"/>", "svg"),
    ];
    for (file, format) in cases {
        let (answer, _) = relayed_json(&answer_with_file(file), 1).await;
        assert_eq!((&answer["output_format"], &answer["size"]), (&json!(format), &Value::Null));
        let stated = answer_with_file(file).replace("]}", "],\"size\":\"8x8\"}");
        assert_eq!(relayed_json(&stated, 1).await.0["size"], "8x8");
        let proven = prove(pieces(&answer_with_file(file), 5), requested_answer(1)).await.unwrap();
        assert_eq!(proven.other_format(), Some(format));
    }
}

#[tokio::test]
async fn a_fan_out_tells_another_format_as_a_single_call_does() {
    let folder = tempfile::TempDir::new().unwrap();
    let spool = crate::gateway::spool::Spool::new(folder.path()).unwrap();
    let file = answer_with_file(b"II*\0\x08\0\0\0\x0f\0\xfe\0");
    let mut images = Vec::new();
    for _ in 0..2 {
        let element = RequestedAnswer { is_single_element: true, ..requested_answer(1) };
        let proven = prove(pieces(&file, 9), element).await.unwrap();
        images.push(spool_image(proven, spool.create_writer_blocking().unwrap()).await.unwrap());
    }
    let requested = RequestedAnswer { size: Some("1024x1024".to_owned()), ..requested_answer(2) };
    let combined = combine_images(images, requested, None);
    assert_eq!(combined.other_format(), Some("tiff"));
    let (mut body, _) = relay(combined);
    let mut text = Vec::new();
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        text.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    let answer: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&answer["output_format"], &answer["size"]), (&json!("tiff"), &Value::Null));
}
