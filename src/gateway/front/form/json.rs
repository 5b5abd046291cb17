//! Reads the JSON form, in which the images and the mask are objects with a data URL.
//!
//! The text of an `image_url` is decoded as it arrives; everything else is small and is captured. Every value that is not
//! such a text is parsed, so a body that passes is JSON from its first byte to its last. Images that are named by a web
//! address are fetched at the end, one after the other, if the settings allow it.

use bytes::Bytes;
use serde_json::Value;

use super::edit_fields::{self, EditFields};
use super::form_buffer::FormBuffer;
use super::image_url::{ImageSource, ImageUrl, ImageUrlError};
use super::{EditImages, FormSettings, NON_IMAGE_MAX_BYTES, RemoteImage, spool_error, too_many_values};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::admission::{JSON_VALUE_BYTES, JSON_VALUES_MAX};
use crate::gateway::front::body::IncomingBody;
use crate::gateway::rules::is_unserved;
use crate::gateway::spool::{EditForm, ImageUpload, Spool};
use crate::stream::json::{
    CaptureLimits, JsonPosition, JsonReader, JsonSyntaxError, JsonValueCounter, JsonVisitor, ValueInterest,
};

/// Only data URLs are large, and they are not captured; all captured values together are bounded.
const CAPTURE_LIMITS: CaptureLimits = CaptureLimits { value: NON_IMAGE_MAX_BYTES, total: NON_IMAGE_MAX_BYTES };

/// The paths of the members that hold images.
const IMAGES: &str = "images";
const IMAGE: &str = "images[]";
const IMAGE_URL: &str = "images[].image_url";
const MASK: &str = "mask";
const MASK_URL: &str = "mask.image_url";

/// The state of a JSON form that is being read.
struct JsonFormReader {
    spool: Spool,
    /// True if an `image_url` may be a web address.
    allows_web_addresses: bool,
    images: EditImages,
    fields: EditFields,
    /// Those of the members `images` and `mask` that have come; a second one of either is refused.
    seen_members: SeenMembers,
    current: CurrentImage,
}

#[derive(Debug, Default)]
struct SeenMembers {
    images: bool,
    mask: bool,
}

/// The image that is being read.
#[derive(Debug, Default)]
struct CurrentImage {
    is_mask: bool,
    url: ImageUrlState,
    /// True if the image has a `file_id`, with or without an `image_url`.
    has_file_id: bool,
}

/// The state of the `image_url` of the current image.
#[derive(Debug, Default)]
enum ImageUrlState {
    #[default]
    Absent,
    Receiving(ImageUrl),
    Complete(ImageSource),
}

pub(super) async fn read(mut incoming: IncomingBody, spool: &Spool, settings: FormSettings) -> Result<EditForm, Error> {
    let FormSettings { names, downloader } = settings;
    let mut json = JsonReader::new("", CAPTURE_LIMITS);
    let mut reader = JsonFormReader {
        spool: spool.clone(),
        allows_web_addresses: downloader.is_some(),
        images: EditImages::default(),
        fields: EditFields::new(names),
        seen_members: SeenMembers::default(),
        current: CurrentImage::default(),
    };
    let (mut memory, mut buffer) = (incoming.admission().memory(), FormBuffer::default());
    let mut counter = JsonValueCounter::default();
    while let Some(data) = incoming.next_data().await? {
        counter.push(&data);
        if counter.values() > JSON_VALUES_MAX {
            return Err(too_many_values());
        }
        let trees = counter.values() * JSON_VALUE_BYTES;
        // Only the text of an image is buffered. Everything else is read at once, so that errors are reported early.
        let chunks = if reader.is_in_image() { buffer.push(data) } else { Some(vec![data]) };
        if let Some(chunks) = chunks {
            (json, reader) = push(spool, json, reader, chunks).await?;
        }
        let held = json.captured_total() + buffer.len() as u64 + trees;
        memory.set_bytes(held).map_err(|error| spool_error(&error))?;
    }
    if let Some(chunks) = buffer.take_all() {
        (json, reader) = push(spool, json, reader, chunks).await?;
    }
    json.finish()?;
    if let Some(downloader) = downloader {
        reader.images.download(&downloader, spool, incoming.admission()).await?;
    }
    incoming.admission().hold(memory);
    reader.images.finish("images", reader.fields)
}

/// Reads the chunks on a blocking thread, because this decodes images and writes them to disk.
async fn push(
    spool: &Spool,
    mut json: JsonReader,
    mut reader: JsonFormReader,
    chunks: Vec<Bytes>,
) -> Result<(JsonReader, JsonFormReader), Error> {
    let task = spool.run_blocking(move || {
        chunks.iter().try_for_each(|chunk| json.push_last(chunk, &mut reader))?;
        reader.flush()?;
        Ok((json, reader))
    });
    task.await.map_err(|error| spool_error(&error))?
}

// === impl JsonFormReader ===

impl JsonFormReader {
    /// True if the next bytes belong to the base64 text of an image.
    fn is_in_image(&self) -> bool {
        matches!(&self.current.url, ImageUrlState::Receiving(url) if url.is_in_data())
    }

    /// Writes the decoded bytes.
    fn flush(&mut self) -> Result<(), Error> {
        if matches!(self.current.url, ImageUrlState::Receiving(_)) { self.push_url(ImageUrl::flush) } else { Ok(()) }
    }

    /// The parameter name of the current image in error messages.
    fn param(&self) -> String {
        if self.current.is_mask { "mask".to_owned() } else { format!("images[{}]", self.images.len()) }
    }

    fn url_error(&self, error: ImageUrlError) -> Error {
        let reason = match error {
            ImageUrlError::Spool(spool) => return spool_error(&spool),
            ImageUrlError::TooLong => RejectionReason::StringAboveMax,
            ImageUrlError::InvalidDataUrl(_) => RejectionReason::InvalidValue,
        };
        let param = format!("{}.image_url", self.param());
        let message = format!("Invalid '{param}': {error}");
        Rejection::new(param, reason, message).into()
    }

    /// The error for an image with both `image_url` and `file_id`, or with neither.
    fn exactly_one_error(&self) -> Error {
        let param = self.param();
        let message = format!("Invalid '{param}': expected exactly one of 'image_url' and 'file_id'.");
        Rejection::new(param, RejectionReason::InvalidValue, message).into()
    }

    /// Adds characters to the text that is being received.
    fn push_url(&mut self, push: impl FnOnce(&mut ImageUrl) -> Result<(), ImageUrlError>) -> Result<(), Error> {
        let ImageUrlState::Receiving(url) = &mut self.current.url else { return Err(Error::Internal) };
        push(url).map_err(|error| self.url_error(error))
    }
}

impl JsonVisitor for JsonFormReader {
    type Error = Error;

    fn start(&mut self, at: JsonPosition<'_>, first: u8) -> Result<ValueInterest, Error> {
        match (at.path, first) {
            (IMAGES | MASK, _) => self.note_member(at.path)?,
            _ if at.depth == 1 && self.fields.is_added(at.key) => return Ok(ValueInterest::Value),
            _ if at.depth == 1 && first == b'n' && is_unserved(at.key) => return Ok(ValueInterest::Scalar),
            _ if at.depth == 1 => return self.fields.kind_of(at.key).map(|_| ValueInterest::Scalar),
            _ => {}
        }
        match (at.path, first) {
            (IMAGES, b'[') => Ok(ValueInterest::Skip),
            (IMAGE | MASK, b'{') => self.begin_image(at.path == MASK),
            (IMAGE_URL | MASK_URL, b'"') => self.begin_url(),
            // `null` means that the member is absent.
            (MASK | IMAGE_URL | MASK_URL, b'n') => Ok(ValueInterest::Value),
            (IMAGES | IMAGE | MASK | IMAGE_URL | MASK_URL, _) => Err(self.type_error(at.path, first)),
            _ if at.key == "file_id" => Ok(ValueInterest::Scalar),
            _ => Err(edit_fields::unknown_parameter(&format!("{}.{}", self.param(), at.key))),
        }
    }

    fn value(&mut self, at: JsonPosition<'_>, value: Option<Value>) -> Result<(), Error> {
        // A value that cannot be held is no value of any field.
        let value = value.ok_or(JsonSyntaxError::Value)?;
        if at.depth == 1 {
            return if at.path == MASK { Ok(()) } else { self.fields.insert(at.key, value) };
        }
        if at.key == "file_id" && !value.is_null() {
            self.current.has_file_id = true;
            if !matches!(self.current.url, ImageUrlState::Absent) {
                return Err(self.exactly_one_error());
            }
        }
        Ok(())
    }

    fn text(&mut self, _: JsonPosition<'_>, text: &[u8]) -> Result<(), Error> {
        self.push_url(|url| url.push(text))
    }

    fn escaped(&mut self, _: JsonPosition<'_>, unit: u16) -> Result<(), Error> {
        self.push_url(|url| url.push_escaped(unit))
    }

    fn text_end(&mut self, _: JsonPosition<'_>) -> Result<(), Error> {
        let ImageUrlState::Receiving(url) = std::mem::take(&mut self.current.url) else { return Err(Error::Internal) };
        let source = url.finish().map_err(|error| self.url_error(error))?;
        self.current.url = ImageUrlState::Complete(source);
        Ok(())
    }

    fn end(&mut self, at: JsonPosition<'_>) -> Result<(), Error> {
        if matches!(at.path, IMAGE | MASK) { self.end_image() } else { Ok(()) }
    }

    fn exceeded(&mut self) -> Result<(), Error> {
        let message = format!("The request body has more than {NON_IMAGE_MAX_BYTES} bytes besides its images.");
        Err(Error::TooLarge(Rejection { param: None, reason: None, message }))
    }
}

impl JsonFormReader {
    /// Notes the member `images` or `mask`, each of which may come once.
    fn note_member(&mut self, name: &str) -> Result<(), Error> {
        let is_seen = if name == MASK { &mut self.seen_members.mask } else { &mut self.seen_members.images };
        if std::mem::replace(is_seen, true) { Err(edit_fields::duplicate_parameter(name)) } else { Ok(()) }
    }

    fn begin_image(&mut self, is_mask: bool) -> Result<ValueInterest, Error> {
        self.current = CurrentImage { is_mask, ..CurrentImage::default() };
        if !is_mask {
            self.images.check_image_count("images")?;
        }
        Ok(ValueInterest::Skip)
    }

    fn begin_url(&mut self) -> Result<ValueInterest, Error> {
        if self.current.has_file_id {
            return Err(self.exactly_one_error());
        }
        if !matches!(self.current.url, ImageUrlState::Absent) {
            return Err(edit_fields::duplicate_parameter(&format!("{}.image_url", self.param())));
        }
        let writer = self.spool.create_writer_blocking().map_err(|error| spool_error(&error))?;
        self.current.url = ImageUrlState::Receiving(ImageUrl::new(writer, self.allows_web_addresses));
        Ok(ValueInterest::Text)
    }

    fn end_image(&mut self) -> Result<(), Error> {
        let current = &mut self.current;
        match (std::mem::take(&mut current.url), current.has_file_id) {
            (ImageUrlState::Complete(source), _) => {
                self.add_image(source);
                Ok(())
            }
            (_, true) => {
                let param = format!("{}.file_id", self.param());
                let message =
                    format!("Invalid '{param}': this API does not store files. Send the image as 'image_url'.");
                Err(Rejection::new(param, RejectionReason::InvalidValue, message).into())
            }
            (_, false) => Err(self.exactly_one_error()),
        }
    }

    fn add_image(&mut self, source: ImageSource) {
        let param = format!("{}.image_url", self.param());
        match source {
            ImageSource::File(file) => {
                let upload = ImageUpload::new(param, file);
                if self.current.is_mask {
                    self.images.mask = Some(upload);
                } else {
                    self.images.images.push(upload);
                }
            }
            ImageSource::Web(address, writer) => {
                let index = (!self.current.is_mask).then(|| self.images.len());
                self.images.remote.push(RemoteImage { index, param, address, writer });
            }
        }
    }

    /// The error for a value of the wrong type in place of the list of images, an image, the mask, or an `image_url`.
    fn type_error(&self, path: &str, first: u8) -> Error {
        let (param, expected) = match path {
            IMAGES => (IMAGES.to_owned(), "an array"),
            IMAGE => (format!("images[{}]", self.images.len()), "an object"),
            MASK => (MASK.to_owned(), "an object"),
            _ => (format!("{}.image_url", self.param()), "a string"),
        };
        let message =
            format!("Invalid type for '{param}': expected {expected}, but got {} instead.", json_type_name(first));
        Rejection::new(param, RejectionReason::InvalidType, message).into()
    }
}

impl From<JsonSyntaxError> for Error {
    fn from(error: JsonSyntaxError) -> Self {
        let message = format!("The request body is not valid JSON: {error}.");
        Rejection::for_body(RejectionReason::InvalidJson, message).into()
    }
}

/// The name of the JSON type of a value that begins with this byte.
const fn json_type_name(first: u8) -> &'static str {
    match first {
        b'"' => "a string",
        b'{' => "an object",
        b'[' => "an array",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "a number",
    }
}
