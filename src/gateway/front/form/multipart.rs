//! The multipart form: parts by their names, in any order.
//!
//! The parser buffers all bytes that it can get, and searches as long as bytes come. Therefore it is fed one piece at a
//! time, only when it cannot continue without more, and no further than it may search. The size of a frame has nothing
//! to do with the form: on a reused connection a frame may hold megabytes. Frames are therefore cut into pieces while
//! the parser searches, and only content is passed on in whole frames.

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

/// The size limit of one text: the longest prompt of four-byte characters. The rules then count the characters.
const FIELD_MAX: usize = 128 * 1024;
/// The maximum number of parts that are not images. There are fewer fields, but some may come twice and some empty.
const TEXT_PARTS_MAX: usize = 64;
/// The size limit of the head of a part.
const HEAD_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 16;
/// The limit on bytes before, between and behind the parts: a head and some padding.
const SEARCH_MAX: usize = 16 * 1024;
/// The number of bytes fed at once to a parser that searches.
const SEARCH_PIECE: usize = 4 * 1024;
/// A boundary has 1 to 70 characters.
const BOUNDARY_MAX: usize = 70;

const TRANSFER_ENCODING: HeaderName = HeaderName::from_static("content-transfer-encoding");

/// The body, and the bytes of its last frame that the parser has not been fed.
struct FrameSource {
    incoming: IncomingBody,
    rest: Bytes,
}

/// The body as the parser gets it.
struct ParserInput<'a> {
    source: &'a mut FrameSource,
    progress: &'a ParserProgress,
    fed: bool,
}

/// The progress of the parser since it last found something.
#[derive(Debug, Default)]
struct ParserProgress {
    /// True if the parser could do nothing with the bytes that it has.
    is_starved: AtomicBool,
    /// The number of bytes that it was fed.
    fed_bytes: AtomicUsize,
    /// True if the parser reads the content of a part, and returns all bytes that it is fed.
    in_content: AtomicBool,
}

/// A form that is being read.
struct MultipartFormReader<'a> {
    spool: &'a Spool,
    progress: &'a ParserProgress,
    images: EditImages,
    fields: EditFields,
    text_parts: usize,
    text_bytes: u64,
    memory: BodyMemoryShare,
}

/// The kind of a part, by its name.
enum FormPartKind {
    Image,
    Mask,
    Text,
}

/// The boundary that a content type names; `None` if it is not of a form.
pub(super) fn boundary(content_type: &str) -> Option<Result<String, Error>> {
    let (essence, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    // With two boundaries, another reader on the way may have taken the other one.
    let named = parameters.to_ascii_lowercase().matches("boundary=").count();
    let boundary = multer::parse_boundary(content_type).ok().filter(|text| named == 1 && is_boundary(text));
    Some(boundary.ok_or_else(|| {
        malformed(
            "the header 'Content-Type' must name one boundary of 1 to 70 characters that are allowed in boundaries",
        )
    }))
}

/// True if the text has only the characters of RFC 2046.
fn is_boundary(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    (1..=BOUNDARY_MAX).contains(&text.len()) && text.bytes().all(legal) && !text.ends_with(' ')
}

pub(super) async fn read(incoming: IncomingBody, boundary: &str, spool: &Spool) -> Result<EditForm, Error> {
    let progress = ParserProgress::default();
    let mut source = FrameSource { incoming, rest: Bytes::new() };
    let input = ParserInput { source: &mut source, progress: &progress, fed: false };
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
        progress.record_find(true);
        reader.read_part(part).await?;
    }
    drop(parts);
    let MultipartFormReader { images, fields, .. } = reader;
    read_epilogue(source).await?;
    images.finish("image", fields)
}

/// Reads the bytes behind the last part, so that the connection can carry another request.
async fn read_epilogue(mut source: FrameSource) -> Result<(), Error> {
    let mut length = source.rest.len();
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
        while let Some(piece) = self.next_piece(&mut part).await? {
            if writer.len() + (buffer.len() + piece.len()) as u64 >= MAX_UPLOAD_IMAGE_BYTES {
                return Err(too_large(name));
            }
            if let Some(bytes) = buffer.push(piece) {
                writer = writer.append(bytes).await.map_err(|error| spool_error(&error))?;
            }
            self.memory.set_bytes(self.text_bytes + buffer.len() as u64).map_err(|error| spool_error(&error))?;
        }
        if let Some(bytes) = buffer.take_rest() {
            writer = writer.append(bytes).await.map_err(|error| spool_error(&error))?;
        }
        // Reads the head of the image file, and more of it if the head has very many parts.
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
        while let Some(piece) = self.next_piece(&mut part).await? {
            self.text_bytes += piece.len() as u64;
            if text.len() + piece.len() > FIELD_MAX || self.text_bytes > NON_IMAGE_MAX_BYTES {
                let message = format!("Invalid '{name}': string too long. Expected at most {FIELD_MAX} bytes.");
                return Err(Rejection::new(name, RejectionReason::StringAboveMax, message).into());
            }
            self.memory.set_bytes(self.text_bytes).map_err(|error| spool_error(&error))?;
            text.extend_from_slice(&piece);
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

    async fn next_piece(&self, part: &mut Field<'_>) -> Result<Option<Bytes>, Error> {
        let piece = part.chunk().await.map_err(parser_error)?;
        self.progress.record_find(piece.is_some());
        Ok(piece)
    }
}

// === impl ParserProgress ===

impl ParserProgress {
    /// The parser has found a boundary or a head; it now reads content, or searches for the next part.
    fn record_find(&self, in_content: bool) {
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
            // `image[]`, and `image[0]` as PHP-style clients write it.
            (_, Some(index)) if index.len() <= 4 && index.bytes().all(|byte| byte.is_ascii_digit()) => Self::Image,
            _ => Self::Text,
        }
    }
}

/// Checks that the head of a part is within its limits and states no encoding that would have to be decoded.
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

/// True if the charset that the part states, if any, is UTF-8. Asked only for text that is more than ASCII.
fn is_utf8(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let said = content_type.to_ascii_lowercase();
    said.split_once("charset=").is_none_or(|(_, charset)| {
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

fn malformed(what: &str) -> Error {
    Rejection::for_body(RejectionReason::InvalidValue, format!("The form cannot be read: {what}.")).into()
}

/// The error for a parser that stopped: an error of the body that it passes on, or one of the form.
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
        if std::mem::take(&mut self.fed) || !was_starved {
            // The parser is polled again at once, unless it finds something in the bytes that it has.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.progress.fed_bytes.load(Ordering::Relaxed) > SEARCH_MAX {
            return Poll::Ready(Some(Err(malformed("the boundary or the end of a part's header section is missing"))));
        }
        let in_content = self.progress.in_content.load(Ordering::Relaxed);
        let most = if in_content { usize::MAX } else { SEARCH_PIECE };
        self.source.poll_piece(cx, most).map_ok(|data| {
            self.progress.fed_bytes.fetch_add(data.len(), Ordering::Relaxed);
            self.fed = true;
            Frame::data(data)
        })
    }
}

// === impl FrameSource ===

impl FrameSource {
    /// The next bytes, at most `most` of them.
    fn poll_piece(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<Option<Result<Bytes, Error>>> {
        if self.rest.is_empty() {
            match ready!(self.incoming.poll_data(cx)) {
                Some(Ok(data)) => self.rest = data,
                end => return Poll::Ready(end),
            }
        }
        let length = self.rest.len().min(most);
        Poll::Ready(Some(Ok(self.rest.split_to(length))))
    }
}
