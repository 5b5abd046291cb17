//! Reads the multipart form, whose parts may come in any order.
//!
//! [`PartScanner`] splits the body; the content of a part is written as it comes, without a copy in between. The parser
//! of `multer` reads the headers of each part.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderName};
use http_body_util::{BodyDataStream, Full};
use multer::Multipart;

use super::edit_fields::{self, EditFields};
use super::form_buffer::FormBuffer;
use super::{EditImages, FormNames, ImagePageForm, NON_IMAGE_MAX_BYTES, spool_error, too_many_values};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::admission::{ByteShare, JSON_VALUE_BYTES, JSON_VALUES_MAX};
use crate::gateway::front::body::IncomingBody;
use crate::gateway::spool::{EditForm, ImageUpload, Spool};
use crate::stream::json::JsonValueCounter;
use crate::stream::multipart::{PartEvent, PartScanner, SEARCH_MAX};
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
/// The maximum length of a boundary (RFC 2046, section 5.1.1).
const BOUNDARY_MAX: usize = 70;

const TRANSFER_ENCODING: HeaderName = HeaderName::from_static("content-transfer-encoding");

/// The body as a sequence of parts.
struct FormParts {
    incoming: IncomingBody,
    scanner: PartScanner,
}

/// The state of a form that is being read.
struct MultipartFormReader<'a> {
    spool: &'a Spool,
    parts: FormParts,
    images: EditImages,
    fields: EditFields,
    /// The fields of the page that sends the form; `None` if the form comes from a client of the API.
    page_fields: Option<PageFields>,
    text_parts: usize,
    text_bytes: u64,
    /// The number of values in the texts that may be JSON.
    values: u64,
    memory: ByteShare,
}

/// The fields of a page's form that the API does not have.
struct PageFields {
    names: &'static [&'static str],
    values: Vec<(String, String)>,
}

/// The header section of a part.
struct PartHead {
    headers: HeaderMap,
    name: Option<String>,
    has_file_name: bool,
}

/// The kind of a part, which its name decides.
enum FormPartKind {
    Image,
    Mask,
    /// A file that only added models have.
    AddedFile,
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

pub(super) async fn read(
    incoming: IncomingBody,
    boundary: &str,
    spool: &Spool,
    names: FormNames,
) -> Result<EditForm, Error> {
    let (images, fields, _) = read_parts(incoming, boundary, spool, EditFields::new(names), None).await?;
    Ok(EditForm { is_multipart: true, ..images.finish("image", fields)? })
}

/// Reads the form of a page. It may have no images, and the named fields beside those of the API.
pub(super) async fn read_page_form(
    incoming: IncomingBody,
    boundary: &str,
    spool: &Spool,
    page_fields: &'static [&'static str],
) -> Result<ImagePageForm, Error> {
    let page_fields = PageFields { names: page_fields, values: Vec::new() };
    let (EditImages { images, mask, files, .. }, fields, page_fields) =
        read_parts(incoming, boundary, spool, EditFields::default(), Some(page_fields)).await?;
    let form = EditForm { fields: fields.into_inner(), images, mask, files, is_multipart: true };
    Ok(ImagePageForm { form, page_fields: page_fields.map(|fields| fields.values).unwrap_or_default() })
}

async fn read_parts(
    incoming: IncomingBody,
    boundary: &str,
    spool: &Spool,
    fields: EditFields,
    page_fields: Option<PageFields>,
) -> Result<(EditImages, EditFields, Option<PageFields>), Error> {
    let memory = incoming.admission().memory();
    let mut reader = MultipartFormReader {
        spool,
        parts: FormParts { incoming, scanner: PartScanner::new(boundary) },
        images: EditImages::default(),
        fields,
        page_fields,
        text_parts: 0,
        text_bytes: 0,
        values: 0,
        memory,
    };
    while let PartEvent::Head(head) = reader.parts.next().await? {
        reader.read_part(head).await?;
    }
    let MultipartFormReader { parts, images, fields, page_fields, memory, .. } = reader;
    parts.incoming.admission().hold(memory);
    parts.read_epilogue().await?;
    Ok((images, fields, page_fields))
}

// === impl FormParts ===

impl FormParts {
    async fn next(&mut self) -> Result<PartEvent, Error> {
        loop {
            if let Some(event) = self.scanner.next().map_err(|error| malformed(&error.to_string()))? {
                return Ok(event);
            }
            match self.incoming.next_data().await? {
                Some(data) => self.scanner.push(data),
                None => return Err(malformed("it ends before its last boundary")),
            }
        }
    }

    /// Returns the next bytes of a part's content; `None` at its end.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, Error> {
        match self.next().await? {
            PartEvent::Content(chunk) => Ok(Some(chunk)),
            _ => Ok(None),
        }
    }

    /// Reads the bytes after the last part, so that the connection can be used for another request.
    async fn read_epilogue(mut self) -> Result<(), Error> {
        let mut length = self.scanner.surplus();
        while length <= SEARCH_MAX {
            match self.incoming.next_data().await? {
                Some(data) => length += data.len(),
                None => return Ok(()),
            }
        }
        Err(malformed("too much data follows the last part"))
    }
}

// === impl MultipartFormReader ===

impl MultipartFormReader<'_> {
    async fn read_part(&mut self, head: Bytes) -> Result<(), Error> {
        let PartHead { headers, name, has_file_name } = parse_head(&head).await?;
        check_part_head(&headers)?;
        let Some(name) = name else {
            return Err(malformed("a part has no name"));
        };
        let kind = if self.fields.reads_as_mask(&name) {
            FormPartKind::Mask
        } else if self.fields.is_added_file(&name) {
            FormPartKind::AddedFile
        } else {
            FormPartKind::from_name(&name)
        };
        let is_file = !matches!(kind, FormPartKind::Text);
        if is_file && !has_file_name && self.page_fields.is_some() {
            return self.skip_missing_file().await;
        }
        match kind {
            FormPartKind::Image => {
                self.images.check_image_count("image")?;
                let file = self.read_image(&name).await?;
                self.images.images.push(file);
            }
            FormPartKind::Mask => {
                if self.images.mask.is_some() {
                    return Err(edit_fields::duplicate_parameter(&name));
                }
                let file = self.read_image(&name).await?;
                self.images.mask = Some(file);
            }
            FormPartKind::AddedFile => {
                self.images.check_file_count(&name)?;
                let file = self.read_image(&name).await?;
                self.images.files.push(file);
            }
            FormPartKind::Text => self.read_text(&headers, &name).await?,
        }
        Ok(())
    }

    /// Skips the part that a browser sends for a field without a chosen file: it has no file name and no content. An
    /// empty file that was chosen is not skipped, because the request would be another one without it.
    async fn skip_missing_file(&mut self) -> Result<(), Error> {
        match self.parts.next_chunk().await? {
            None => Ok(()),
            Some(_) => Err(malformed("a file has no name")),
        }
    }

    /// Writes an image to the spool as it comes.
    async fn read_image(&mut self, name: &str) -> Result<ImageUpload, Error> {
        let mut writer = self.spool.create_writer().await.map_err(|error| spool_error(&error))?;
        let mut buffer = FormBuffer::default();
        while let Some(chunk) = self.parts.next_chunk().await? {
            if writer.len() + (buffer.len() + chunk.len()) as u64 >= MAX_UPLOAD_IMAGE_BYTES {
                return Err(too_large(name));
            }
            if let Some(chunks) = buffer.push(chunk) {
                writer = writer.append_all(chunks).await.map_err(|error| spool_error(&error))?;
            }
            self.charge(buffer.len())?;
        }
        if let Some(chunks) = buffer.take_all() {
            writer = writer.append_all(chunks).await.map_err(|error| spool_error(&error))?;
        }
        // `ImageUpload::new` reads the header of the image file, so it runs on a blocking thread.
        let (name, file) = (name.to_owned(), writer.finish());
        self.spool.run_blocking(move || ImageUpload::new(name, file)).await.map_err(|error| spool_error(&error))
    }

    async fn read_text(&mut self, headers: &HeaderMap, name: &str) -> Result<(), Error> {
        self.text_parts += 1;
        if self.text_parts > TEXT_PARTS_MAX {
            return Err(malformed("it has too many parts"));
        }
        if let Some(path) = self.fields.object_path(name) {
            let text = self.read_utf8(headers, name).await?;
            self.add_values(path.value_count())?;
            return self.fields.insert_member(&path, name, text);
        }
        let is_page_field = self.page_fields.as_ref().is_some_and(|fields| fields.names.contains(&name));
        let is_added = !is_page_field && self.fields.is_added(name);
        let kind = if is_page_field || is_added { None } else { Some(self.fields.kind_of(name)?) };
        let text = self.read_utf8(headers, name).await?;
        match (kind, &mut self.page_fields) {
            (None, Some(page_fields)) => page_fields.values.push((name.to_owned(), text)),
            (None, None) => {
                self.count_values(&text)?;
                self.fields.insert(name, text.into())?;
            }
            (Some(kind), _) if !text.is_empty() => {
                self.fields.insert(name, edit_fields::from_text(kind, text))?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts the values of the text of a field that only added models have, which may be JSON.
    fn count_values(&mut self, text: &str) -> Result<(), Error> {
        let mut counter = JsonValueCounter::default();
        counter.push(text.as_bytes());
        self.add_values(counter.values())
    }

    fn add_values(&mut self, count: u64) -> Result<(), Error> {
        self.values += count;
        if self.values > JSON_VALUES_MAX {
            return Err(too_many_values());
        }
        self.charge(0)
    }

    /// Charges the texts, the trees that may be made of them, and this many buffered bytes.
    fn charge(&mut self, buffered: usize) -> Result<(), Error> {
        let held = self.text_bytes + self.values * JSON_VALUE_BYTES + buffered as u64;
        self.memory.set_bytes(held).map_err(|error| spool_error(&error))
    }

    async fn read_utf8(&mut self, headers: &HeaderMap, name: &str) -> Result<String, Error> {
        let mut text = BytesMut::new();
        while let Some(chunk) = self.parts.next_chunk().await? {
            self.text_bytes += chunk.len() as u64;
            if text.len() + chunk.len() > FIELD_MAX || self.text_bytes > NON_IMAGE_MAX_BYTES {
                let message = format!("Invalid '{name}': string too long. Expected at most {FIELD_MAX} bytes.");
                return Err(Rejection::new(name, RejectionReason::StringAboveMax, message).into());
            }
            self.charge(0)?;
            text.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(text.into()).ok().filter(|text| text.is_ascii() || is_utf8(headers));
        text.ok_or_else(|| {
            let message = format!("Invalid '{name}': the text is not UTF-8.");
            Rejection::new(name, RejectionReason::InvalidValue, message).into()
        })
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

/// Parses the header section of a part. The parser gets a form that ends after it.
async fn parse_head(head: &[u8]) -> Result<PartHead, Error> {
    const BOUNDARY: &str = "head";
    let mut form = [&b"--head\r\n"[..], head].concat();
    lower_parameter_names(&mut form);
    let form = Bytes::from(form);
    let mut parts = Multipart::new(BodyDataStream::new(Full::new(form)), BOUNDARY);
    match parts.next_field().await {
        Ok(Some(part)) => Ok(PartHead {
            headers: part.headers().clone(),
            name: part.name().map(str::to_owned),
            has_file_name: part.file_name().is_some_and(|name| !name.is_empty()),
        }),
        Ok(None) | Err(_) => Err(malformed("the header section of a part is invalid")),
    }
}

/// Writes the names of parameters in lower case, which the parser expects; their case has no meaning (RFC 2045, section
/// 5.1). A name begins after a semicolon outside of quotes, and ends before `=`.
fn lower_parameter_names(head: &mut [u8]) {
    let (mut is_quoted, mut is_escaped, mut is_name) = (false, false, false);
    for byte in head {
        if is_escaped {
            is_escaped = false;
            continue;
        }
        match *byte {
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b'\r' | b'\n' => (is_quoted, is_name) = (false, false),
            b';' if !is_quoted => is_name = true,
            b'=' => is_name = false,
            _ if is_name => byte.make_ascii_lowercase(),
            _ => {}
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
