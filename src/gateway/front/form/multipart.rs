//! Reads the multipart form, whose parts may come in any order.
//!
//! The parser of `multer` buffers all bytes that it can get, and searches for a boundary without a limit. Therefore
//! [`ParserInput`] feeds it only if it cannot continue, and stops after [`SEARCH_MAX`] bytes without a result. A frame
//! of the body may be as large as the read buffer of the connection, so frames are split while the parser searches; the
//! content of parts is passed on in whole frames.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName};
use http_body::{Body, Frame};
use http_body_util::BodyDataStream;
use multer::{Field, Multipart};

use super::edit_fields::{self, EditFields};
use super::form_buffer::FormBuffer;
use super::{EditImages, NON_IMAGE_MAX_BYTES, spool_error};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::front::body::IncomingBody;
use crate::gateway::spool::{BodyMemoryShare, EditForm, ImageUpload, Spool};
use crate::tables::MAX_UPLOAD_IMAGE_BYTES;

/// The size limit of one text field in bytes: the longest prompt, at four bytes for each character. `rules` then checks
/// the number of characters.
const FIELD_MAX: usize = 128 * 1024;
/// The maximum number of parts that are not images (our choice). It is above the number of fields, because clients may
/// repeat fields or send empty ones.
const TEXT_PARTS_MAX: usize = 64;
/// The size limit of the header section of a part, in bytes (our choice).
const HEAD_MAX: usize = 8 * 1024;
/// The maximum number of headers of a part (our choice).
const HEADERS_MAX: usize = 16;
/// The maximum number of bytes that the parser may search for a boundary or the end of a header section, and that may
/// follow the last part (our choice): the headers of a part and some padding.
const SEARCH_MAX: usize = 16 * 1024;
/// The maximum number of bytes that are fed at once to a searching parser (our choice).
const SEARCH_CHUNK: usize = 4 * 1024;
/// The maximum length of a boundary (RFC 2046, section 5.1.1).
const BOUNDARY_MAX: usize = 70;

const TRANSFER_ENCODING: HeaderName = HeaderName::from_static("content-transfer-encoding");

/// The body, and the bytes of its last frame that have not been fed to the parser.
struct FrameSource {
    incoming: IncomingBody,
    unfed: Bytes,
}

/// The body as the parser gets it.
struct ParserInput<'a> {
    source: &'a mut FrameSource,
    progress: &'a ParserProgress,
    has_fed: bool,
}

/// The state of the parser since its last result: a part or a chunk of content. The parser owns its input, so the
/// reader of the form shares this state with [`ParserInput`].
#[derive(Debug, Default)]
struct ParserProgress {
    /// True if the parser has asked for more bytes since its last result.
    is_starved: AtomicBool,
    /// The number of bytes fed to the parser since its last result.
    fed_bytes: AtomicUsize,
    /// True if the parser reads the content of a part, which it returns as it comes.
    in_content: AtomicBool,
}

/// The state of a form that is being read.
struct MultipartFormReader<'a> {
    spool: &'a Spool,
    progress: &'a ParserProgress,
    images: EditImages,
    fields: EditFields,
    text_parts: usize,
    text_bytes: u64,
    memory: BodyMemoryShare,
}

/// The kind of a part, which its name decides.
enum FormPartKind {
    Image,
    Mask,
    Text,
}

/// The boundary in a content type; `None` if the content type is not `multipart/form-data`.
pub(super) fn boundary(content_type: &str) -> Option<Result<String, Error>> {
    let (essence, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    // With two boundaries, a proxy before the gateway may have used the other one.
    let boundary_count = parameters.to_ascii_lowercase().matches("boundary=").count();
    let boundary = multer::parse_boundary(content_type).ok().filter(|text| boundary_count == 1 && is_boundary(text));
    Some(boundary.ok_or_else(|| {
        malformed(
            "the header 'Content-Type' must name one boundary of 1 to 70 characters that are allowed in boundaries",
        )
    }))
}

/// True if the text is a valid boundary (RFC 2046, section 5.1.1).
fn is_boundary(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    (1..=BOUNDARY_MAX).contains(&text.len()) && text.bytes().all(legal) && !text.ends_with(' ')
}

pub(super) async fn read(incoming: IncomingBody, boundary: &str, spool: &Spool) -> Result<EditForm, Error> {
    let progress = ParserProgress::default();
    let mut source = FrameSource { incoming, unfed: Bytes::new() };
    let input = ParserInput { source: &mut source, progress: &progress, has_fed: false };
    let mut parts = Multipart::new(BodyDataStream::new(input), boundary);
    let mut reader = MultipartFormReader {
        spool,
        progress: &progress,
        images: EditImages::default(),
        fields: EditFields::default(),
        text_parts: 0,
        text_bytes: 0,
        memory: spool.memory(),
    };
    while let Some(part) = parts.next_field().await.map_err(parser_error)? {
        progress.record_result(true);
        reader.read_part(part).await?;
    }
    drop(parts);
    let MultipartFormReader { images, fields, .. } = reader;
    read_epilogue(source).await?;
    images.finish("image", fields)
}

/// Reads the bytes after the last part, so that the connection can be used for another request.
async fn read_epilogue(mut source: FrameSource) -> Result<(), Error> {
    let mut length = source.unfed.len();
    while length <= SEARCH_MAX {
        match source.incoming.next_data().await? {
            Some(data) => length += data.len(),
            None => return Ok(()),
        }
    }
    Err(malformed("too much data follows the last part"))
}

// === impl MultipartFormReader ===

impl MultipartFormReader<'_> {
    async fn read_part(&mut self, part: Field<'_>) -> Result<(), Error> {
        check_part_head(part.headers())?;
        let Some(name) = part.name().map(str::to_owned) else {
            return Err(malformed("a part has no name"));
        };
        match FormPartKind::from_name(&name) {
            FormPartKind::Image => {
                self.images.check_image_count("image")?;
                let file = self.read_image(part, &name).await?;
                self.images.images.push(file);
            }
            FormPartKind::Mask => {
                if self.images.mask.is_some() {
                    return Err(edit_fields::duplicate_parameter(&name));
                }
                let file = self.read_image(part, &name).await?;
                self.images.mask = Some(file);
            }
            FormPartKind::Text => self.read_text(part, &name).await?,
        }
        Ok(())
    }

    /// Writes an image to the spool as it comes.
    async fn read_image(&mut self, mut part: Field<'_>, name: &str) -> Result<ImageUpload, Error> {
        let mut writer = self.spool.create_writer().await.map_err(|error| spool_error(&error))?;
        let mut buffer = FormBuffer::default();
        while let Some(chunk) = self.next_chunk(&mut part).await? {
            if writer.len() + (buffer.len() + chunk.len()) as u64 >= MAX_UPLOAD_IMAGE_BYTES {
                return Err(too_large(name));
            }
            if let Some(bytes) = buffer.push(chunk) {
                writer = writer.append(bytes).await.map_err(|error| spool_error(&error))?;
            }
            self.memory.set_bytes(self.text_bytes + buffer.len() as u64).map_err(|error| spool_error(&error))?;
        }
        if let Some(bytes) = buffer.take_all() {
            writer = writer.append(bytes).await.map_err(|error| spool_error(&error))?;
        }
        // `ImageUpload::new` reads the header of the image file, so it runs on a blocking thread.
        let (name, file) = (name.to_owned(), writer.finish());
        self.spool.run_blocking(move || ImageUpload::new(name, file)).await.map_err(|error| spool_error(&error))
    }

    async fn read_text(&mut self, mut part: Field<'_>, name: &str) -> Result<(), Error> {
        self.text_parts += 1;
        if self.text_parts > TEXT_PARTS_MAX {
            return Err(malformed("it has too many parts"));
        }
        let kind = edit_fields::find_field(name)?.kind;
        let mut text = BytesMut::new();
        while let Some(chunk) = self.next_chunk(&mut part).await? {
            self.text_bytes += chunk.len() as u64;
            if text.len() + chunk.len() > FIELD_MAX || self.text_bytes > NON_IMAGE_MAX_BYTES {
                let message = format!("Invalid '{name}': string too long. Expected at most {FIELD_MAX} bytes.");
                return Err(Rejection::new(name, RejectionReason::StringAboveMax, message).into());
            }
            self.memory.set_bytes(self.text_bytes).map_err(|error| spool_error(&error))?;
            text.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(text.into()).ok().filter(|text| text.is_ascii() || is_utf8(part.headers()));
        let Some(text) = text else {
            let message = format!("Invalid '{name}': the text is not UTF-8.");
            return Err(Rejection::new(name, RejectionReason::InvalidValue, message).into());
        };
        if text.is_empty() {
            return Ok(());
        }
        self.fields.insert(name, edit_fields::from_text(kind, text))
    }

    /// Returns the next bytes of a part's content; `None` at its end.
    async fn next_chunk(&self, part: &mut Field<'_>) -> Result<Option<Bytes>, Error> {
        let chunk = part.chunk().await.map_err(parser_error)?;
        self.progress.record_result(chunk.is_some());
        Ok(chunk)
    }
}

// === impl ParserProgress ===

impl ParserProgress {
    /// Records that the parser has returned a result; it then reads content, or searches for the next part.
    fn record_result(&self, in_content: bool) {
        self.is_starved.store(false, Ordering::Relaxed);
        self.fed_bytes.store(0, Ordering::Relaxed);
        self.in_content.store(in_content, Ordering::Relaxed);
    }
}

// === impl FormPartKind ===

impl FormPartKind {
    fn from_name(name: &str) -> Self {
        let index = name.strip_prefix("image[").and_then(|rest| rest.strip_suffix(']'));
        match (name, index) {
            ("mask", _) => Self::Mask,
            ("image", _) => Self::Image,
            // `image[]`, and `image[0]`, which clients in the style of PHP send.
            (_, Some(index)) if index.len() <= 4 && index.bytes().all(|byte| byte.is_ascii_digit()) => Self::Image,
            _ => Self::Text,
        }
    }
}

/// Checks that the headers of a part are within the limits, have a `Content-Disposition`, and declare neither nested
/// parts nor a transfer encoding that needs decoding.
fn check_part_head(headers: &HeaderMap) -> Result<(), Error> {
    let length: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if length > HEAD_MAX || headers.len() > HEADERS_MAX {
        return Err(malformed("the header section of a part is too large"));
    }
    if !headers.contains_key(CONTENT_DISPOSITION) {
        return Err(malformed("a part has no 'Content-Disposition'"));
    }
    let coding = headers.get(TRANSFER_ENCODING).map_or(&b"binary"[..], |value| value.as_bytes());
    if !["binary", "8bit", "7bit"].iter().any(|plain| coding.eq_ignore_ascii_case(plain.as_bytes())) {
        return Err(malformed("a part has a 'Content-Transfer-Encoding', which is not supported"));
    }
    if starts_with(headers.get(CONTENT_TYPE).map_or(b"", |value| value.as_bytes()), "multipart/") {
        return Err(malformed("a part has nested parts, which are not supported"));
    }
    Ok(())
}

/// True if the part declares UTF-8 or no charset. This matters only for text that is not ASCII.
fn is_utf8(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let content_type = content_type.to_ascii_lowercase();
    content_type.split_once("charset=").is_none_or(|(_, charset)| {
        let charset = charset.split(';').next().unwrap_or_default().trim().trim_matches('"');
        charset == "utf-8" || charset == "utf8"
    })
}

fn starts_with(bytes: &[u8], prefix: &str) -> bool {
    bytes.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

fn too_large(name: &str) -> Error {
    Error::TooLarge(Rejection {
        param: Some(name.to_owned()),
        reason: None,
        message: format!("Invalid '{name}': the image must be smaller than {MAX_UPLOAD_IMAGE_BYTES} bytes."),
    })
}

fn malformed(detail: &str) -> Error {
    Rejection::for_body(RejectionReason::InvalidValue, format!("The form cannot be read: {detail}.")).into()
}

/// Converts an error of the parser: either an error of the body, which the parser passes on, or an invalid form.
fn parser_error(error: multer::Error) -> Error {
    if let multer::Error::StreamReadFailed(reason) = error {
        return reason.downcast::<Error>().map_or(Error::Internal, |reason| *reason);
    }
    malformed("it is not a multipart form, or it ends before its last boundary")
}

// === impl ParserInput ===

impl Body for ParserInput<'_> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let was_starved = self.progress.is_starved.swap(true, Ordering::Relaxed);
        if std::mem::take(&mut self.has_fed) || !was_starved {
            // The parser first works on the bytes that it has. The task is woken at once, so that the parser is polled
            // again if those bytes give no result.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.progress.fed_bytes.load(Ordering::Relaxed) > SEARCH_MAX {
            return Poll::Ready(Some(Err(malformed("the boundary or the end of a part's header section is missing"))));
        }
        let in_content = self.progress.in_content.load(Ordering::Relaxed);
        let max_bytes = if in_content { usize::MAX } else { SEARCH_CHUNK };
        self.source.poll_chunk(cx, max_bytes).map_ok(|data| {
            self.progress.fed_bytes.fetch_add(data.len(), Ordering::Relaxed);
            self.has_fed = true;
            Frame::data(data)
        })
    }
}

// === impl FrameSource ===

impl FrameSource {
    /// Returns the next bytes, at most `max_bytes` of them.
    fn poll_chunk(&mut self, cx: &mut Context<'_>, max_bytes: usize) -> Poll<Option<Result<Bytes, Error>>> {
        if self.unfed.is_empty() {
            match ready!(self.incoming.poll_data(cx)) {
                Some(Ok(data)) => self.unfed = data,
                end_or_error => return Poll::Ready(end_or_error),
            }
        }
        let length = self.unfed.len().min(max_bytes);
        Poll::Ready(Some(Ok(self.unfed.split_to(length))))
    }
}
