//! Builds an edit for the `images` protocol: a multipart form that the gateway writes from the checked request.
//!
//! Only values and the images themselves are taken from the caller's form. The gateway chooses the names and types of
//! files and the order of parts. Images stay on disk; only the text between them is in memory.

use bytes::{Bytes, BytesMut};
use http::HeaderValue;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::transport::RequestBody;
use crate::gateway::rules::EditInput;
use crate::gateway::spool::{BodyPart, ImageUpload};

/// The field name of every image, even of a single image: upstreams accept a list with one element.
const IMAGE_FIELD: &str = "image[]";

/// A form that is being written.
struct MultipartWriter {
    boundary: String,
    parts: Vec<BodyPart>,
    /// The text that was written after the last file.
    text: BytesMut,
}

/// Returns the content type and the body of an edit. The body can be cloned for another attempt.
///
/// # Errors
///
/// Returns an error if the boundary is not a valid header value. The boundaries of the gateway always are.
pub(super) fn build_form(
    fields: &Map<String, Value>,
    input: &EditInput,
) -> Result<(HeaderValue, RequestBody), http::Error> {
    let mut form =
        MultipartWriter { boundary: Uuid::new_v4().simple().to_string(), parts: Vec::new(), text: BytesMut::new() };
    for (name, value) in fields {
        form.write_field(name, value);
    }
    for (index, image) in input.images.iter().enumerate() {
        form.write_file(IMAGE_FIELD, &format!("image-{index}"), image);
    }
    if let Some(mask) = &input.mask {
        form.write_file("mask", "mask", mask);
    }
    for (index, file) in input.files.iter().enumerate() {
        form.write_file(&quoted(&file.param), &format!("file-{index}"), file);
    }
    let content_type = HeaderValue::try_from(format!("multipart/form-data; boundary={}", form.boundary))?;
    Ok((content_type, form.finish()))
}

// === impl MultipartWriter ===

impl MultipartWriter {
    fn write_field(&mut self, name: &str, value: &Value) {
        let text = match value {
            Value::Null => return,
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        self.write_text(&format!(
            "--{}\r\ncontent-disposition: form-data; name=\"{}\"\r\n\r\n{text}\r\n",
            self.boundary,
            quoted(name)
        ));
    }

    fn write_file(&mut self, name: &str, file_name: &str, upload: &ImageUpload) {
        // The rules accept only images whose format is known, so the general type is not expected here. With it, the
        // upstream could still detect the format.
        let (extension, media_type) = upload.header.as_ref().map_or_else(
            |_| (String::new(), "application/octet-stream".to_owned()),
            |header| {
                (format!(".{}", header.properties.format.extension()), format!("image/{}", header.properties.format))
            },
        );
        self.write_text(&format!(
            "--{}\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"{file_name}{extension}\"\r\n\
             content-type: {media_type}\r\n\r\n",
            self.boundary
        ));
        self.parts.push(BodyPart::Bytes(self.text.split().freeze()));
        self.parts.push(BodyPart::File(upload.file.clone()));
        self.write_text("\r\n");
    }

    fn finish(mut self) -> RequestBody {
        self.write_text(&format!("--{}--\r\n", self.boundary));
        self.parts.push(BodyPart::Bytes(Bytes::from(self.text)));
        self.parts.into()
    }

    fn write_text(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }
}

/// Escapes the characters of a name that would end its quotes or its line, as browsers do.
fn quoted(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use http_body::Body as _;
    use http_body_util::{BodyDataStream, BodyExt as _};
    use serde_json::json;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::transport::{Transport, TransportSettings};
    use super::*;
    use crate::gateway::spool::Spool;
    use crate::image::ByteSource as _;

    fn png(number: u8) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, 2, 2);
        encoder.set_color(png::ColorType::Rgba);
        encoder.write_header().unwrap().write_image_data(&[number; 16]).unwrap();
        file
    }

    fn upload(spool: &Spool, content: &[u8]) -> ImageUpload {
        let mut writer = spool.create_writer_blocking().unwrap();
        writer.write(content).unwrap();
        ImageUpload::new("image", writer.finish())
    }

    fn fields() -> Map<String, Value> {
        let fields = json!({"n": 2, "prompt": "ein Hut\r\n--für \"ihn\"", "stream": true, "user": null});
        fields.as_object().unwrap().clone()
    }

    /// Returns a form with an image that is read in several chunks, a file that contains a boundary, and a mask.
    fn example() -> (TempDir, [Vec<u8>; 3], HeaderValue, RequestBody) {
        let folder = TempDir::new().unwrap();
        let spool = Spool::new(folder.path()).unwrap();
        let long_file = [png(1), vec![7; 600_001]].concat();
        let contents = [long_file, b"no image\r\n--x--\r\n".to_vec(), png(3)];
        let [first, second, mask] = contents.each_ref().map(|content| upload(&spool, content));
        let file = ImageUpload { param: "markup".to_owned(), ..upload(&spool, b"<markup/>") };
        let (content_type, body) =
            build_form(&fields(), &EditInput { images: vec![first, second], mask: Some(mask), files: vec![file] })
                .unwrap();
        (folder, contents, content_type, body)
    }

    #[tokio::test]
    async fn a_written_form_can_be_parsed() {
        let (_folder, contents, content_type, body) = example();
        let boundary = multer::parse_boundary(content_type.to_str().unwrap()).unwrap();
        let mut parts = multer::Multipart::new(BodyDataStream::new(body), boundary);
        let mut parsed = Vec::new();
        while let Some(part) = parts.next_field().await.unwrap() {
            let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
            let media_type = part.content_type().map(ToString::to_string);
            let head = [text(part.name()), text(part.file_name()), text(media_type.as_deref())];
            parsed.push((head.join(" "), part.bytes().await.unwrap().to_vec()));
        }
        let [first, second, mask] = contents;
        let expected = [
            ("n  ", b"2".to_vec()),
            ("prompt  ", "ein Hut\r\n--für \"ihn\"".into()),
            ("stream  ", b"true".to_vec()),
            ("image[] image-0.png image/png", first),
            ("image[] image-1 application/octet-stream", second),
            ("mask mask.png image/png", mask),
            ("markup file-0 application/octet-stream", b"<markup/>".to_vec()),
        ];
        assert_eq!(parsed, expected.map(|(head, content)| (head.to_owned(), content)));
    }

    #[tokio::test]
    async fn a_body_can_be_cloned_and_has_the_stated_length() {
        let (_folder, _, _, body) = example();
        let length = body.size_hint().exact().unwrap();
        let mut begun = body.clone();
        begun.frame().await.unwrap().unwrap();
        begun.frame().await.unwrap().unwrap();
        let remaining_length = begun.size_hint().exact().unwrap();
        assert!(remaining_length > 0 && remaining_length < length && !begun.is_end_stream());
        let whole = body.clone().collect().await.unwrap().to_bytes();
        assert_eq!((whole.len() as u64, &body.collect().await.unwrap().to_bytes()), (length, &whole));
        // A clone of a half-written body continues at the same position.
        let remaining_bytes = begun.clone().collect().await.unwrap().to_bytes();
        assert_eq!(
            (remaining_bytes.len() as u64, &remaining_bytes),
            (remaining_length, &begun.collect().await.unwrap().to_bytes())
        );
        assert!(whole.ends_with(&remaining_bytes));
    }

    #[tokio::test]
    async fn a_file_is_read_in_chunks() {
        let (_folder, _, _, mut body) = example();
        let mut largest_chunk = 0;
        while let Some(frame) = body.frame().await {
            largest_chunk = largest_chunk.max(frame.unwrap().into_data().unwrap().len());
        }
        assert_eq!((largest_chunk, body.is_end_stream()), (256 * 1024, true));
    }

    #[tokio::test]
    async fn files_are_released_when_the_last_body_is_dropped() {
        let folder = TempDir::new().unwrap();
        let spool = Spool::new(folder.path()).unwrap();
        let image = upload(&spool, &png(1));
        let file = std::sync::Arc::downgrade(&image.file);
        let (_, body) =
            build_form(&Map::new(), &EditInput { images: vec![image], mask: None, files: Vec::new() }).unwrap();
        let second_body = body.clone();
        drop(body);
        assert!(file.upgrade().is_some_and(|file| file.len() > 0));
        drop(second_body);
        assert!(file.upgrade().is_none());
    }

    #[test]
    fn a_name_cannot_end_its_quotes() {
        assert_eq!(quoted("a\"\r\nb"), "a%22%0D%0Ab");
    }

    /// Reads one request with this body, answers it, and returns the head of the request.
    async fn serve(listener: &tokio::net::TcpListener, expected: &[u8]) -> String {
        let mut stream = listener.accept().await.unwrap().0;
        let mut received = Vec::new();
        while !received.ends_with(expected) {
            assert_ne!(stream.read_buf(&mut received).await.unwrap(), 0, "the request broke off");
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
        String::from_utf8_lossy(&received[..received.len() - expected.len()]).into_owned()
    }

    #[tokio::test]
    async fn a_form_is_sent_repeatedly_with_its_length() {
        let (_folder, _, content_type, body) = example();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/", listener.local_addr().unwrap());
        let transport = Transport::new(TransportSettings::default()).unwrap();
        let expected = body.clone().collect().await.unwrap().to_bytes();
        let length = format!("\r\ncontent-length: {}\r\n", expected.len());
        for _ in 0..2 {
            let request = http::Request::post(&uri).header("content-type", &content_type).body(body.clone()).unwrap();
            let until = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
            let (head, answer) = tokio::join!(serve(&listener, &expected), transport.send(request, until));
            assert!(answer.is_ok());
            assert!(head.contains(&length) && head.ends_with("\r\n\r\n"), "{head}");
        }
    }
}
