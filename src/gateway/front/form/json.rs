//! Reads the JSON form, in which the images and the mask are objects with a data URL.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::data_url::{DataUrl, ImageUrlError};
use super::edit_fields::{self, EditFields};
use super::edit_lexer::{EditLexer, EditLexerSink, ImageMemberKind};
use super::form_buffer::FormBuffer;
use super::{EditImages, spool_error};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::front::body::IncomingBody;
use crate::gateway::spool::{EditForm, ImageUpload, Spool, SpooledFile};

/// The state of a JSON form that is being read.
struct JsonFormReader {
    spool: Spool,
    images: EditImages,
    fields: EditFields,
    /// Which of the members `images` and `mask` have come; a second one of either is refused.
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
    Receiving(Box<DataUrl>),
    Complete(Arc<SpooledFile>),
}

pub(super) async fn read(mut incoming: IncomingBody, spool: &Spool) -> Result<EditForm, Error> {
    let mut lexer = EditLexer::new();
    let mut reader = JsonFormReader {
        spool: spool.clone(),
        images: EditImages::default(),
        fields: EditFields::default(),
        seen_members: SeenMembers::default(),
        current: CurrentImage::default(),
    };
    let (mut memory, mut buffer) = (spool.memory(), FormBuffer::default());
    while let Some(data) = incoming.next_data().await? {
        // Only the text of an image is buffered. Everything else is read at once, so that errors are reported early.
        let data = if reader.is_in_image() { buffer.push(data) } else { Some(data) };
        if let Some(data) = data {
            (lexer, reader) = push(spool, lexer, reader, data).await?;
        }
        memory.set_bytes(lexer.captured_total() + buffer.len() as u64).map_err(|error| spool_error(&error))?;
    }
    if let Some(data) = buffer.take_rest() {
        (lexer, reader) = push(spool, lexer, reader, data).await?;
    }
    lexer.finish()?;
    reader.images.finish("images", reader.fields)
}

/// Reads a chunk on a blocking thread, because it decodes images and writes them to disk.
async fn push(
    spool: &Spool,
    mut lexer: EditLexer,
    mut reader: JsonFormReader,
    data: Bytes,
) -> Result<(EditLexer, JsonFormReader), Error> {
    let task = spool.run_blocking(move || {
        lexer.push(&data, &mut reader)?;
        reader.flush()?;
        Ok((lexer, reader))
    });
    task.await.map_err(|error| spool_error(&error))?
}

// === impl JsonFormReader ===

impl JsonFormReader {
    /// True if the next bytes belong to the base64 text of an image.
    fn is_in_image(&self) -> bool {
        matches!(&self.current.url, ImageUrlState::Receiving(url) if url.has_head())
    }

    /// Writes the decoded bytes.
    fn flush(&mut self) -> Result<(), Error> {
        let ImageUrlState::Receiving(url) = &mut self.current.url else { return Ok(()) };
        url.flush().map_err(|error| self.url_error(error))
    }

    /// The parameter name of the current image in error messages.
    fn param(&self) -> String {
        if self.current.is_mask { "mask".to_owned() } else { format!("images[{}]", self.images.images.len()) }
    }

    fn url_error(&self, error: ImageUrlError) -> Error {
        let reason = match error {
            ImageUrlError::Spool(spool) => return spool_error(&spool),
            ImageUrlError::TooLong => RejectionReason::StringAboveMax,
            ImageUrlError::NoImage(_) => RejectionReason::InvalidValue,
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

    fn current_url(&mut self) -> Result<&mut DataUrl, Error> {
        match &mut self.current.url {
            ImageUrlState::Receiving(url) => Ok(url),
            ImageUrlState::Absent | ImageUrlState::Complete(_) => Err(Error::Internal),
        }
    }
}

impl EditLexerSink for JsonFormReader {
    fn key(&mut self, key: &str) -> Result<(), Error> {
        let is_seen = match key {
            "images" => &mut self.seen_members.images,
            "mask" => &mut self.seen_members.mask,
            _ => return edit_fields::find_field(key).map(drop),
        };
        if std::mem::replace(is_seen, true) { Err(edit_fields::duplicate_parameter(key)) } else { Ok(()) }
    }

    fn member(&mut self, key: &str, value: Value) -> Result<(), Error> {
        // `mask` is a plain member only if it is `null`; otherwise it comes as an image.
        if key == "mask" { Ok(()) } else { self.fields.insert(key, value) }
    }

    fn image_start(&mut self, mask: bool) -> Result<(), Error> {
        self.current = CurrentImage { is_mask: mask, ..CurrentImage::default() };
        if mask { Ok(()) } else { self.images.check_image_count("images") }
    }

    fn image_key(&mut self, key: &str) -> Result<(), Error> {
        match key {
            "image_url" | "file_id" => Ok(()),
            _ => Err(edit_fields::unknown_parameter(&format!("{}.{key}", self.param()))),
        }
    }

    fn image_member(&mut self, key: &str, value: Value) -> Result<(), Error> {
        if key == "file_id" && !value.is_null() {
            self.current.has_file_id = true;
            if !matches!(self.current.url, ImageUrlState::Absent) {
                return Err(self.exactly_one_error());
            }
        }
        Ok(())
    }

    fn url_start(&mut self) -> Result<(), Error> {
        if self.current.has_file_id {
            return Err(self.exactly_one_error());
        }
        if !matches!(self.current.url, ImageUrlState::Absent) {
            return Err(edit_fields::duplicate_parameter(&format!("{}.image_url", self.param())));
        }
        let writer = self.spool.create_writer_blocking().map_err(|error| spool_error(&error))?;
        self.current.url = ImageUrlState::Receiving(Box::new(DataUrl::new(writer)));
        Ok(())
    }

    fn url_text(&mut self, text: &[u8]) -> Result<(), Error> {
        self.current_url()?.push(text).map_err(|error| self.url_error(error))
    }

    fn url_escaped(&mut self, byte: u8) -> Result<(), Error> {
        self.current_url()?.push_escaped(byte).map_err(|error| self.url_error(error))
    }

    fn url_end(&mut self) -> Result<(), Error> {
        let ImageUrlState::Receiving(url) = std::mem::take(&mut self.current.url) else { return Err(Error::Internal) };
        self.current.url = ImageUrlState::Complete(url.finish().map_err(|error| self.url_error(error))?);
        Ok(())
    }

    fn image_end(&mut self) -> Result<(), Error> {
        let current = &mut self.current;
        match (std::mem::take(&mut current.url), current.has_file_id) {
            (ImageUrlState::Complete(file), _) => {
                let upload = ImageUpload::new(format!("{}.image_url", self.param()), file);
                if self.current.is_mask {
                    self.images.mask = Some(upload);
                } else {
                    self.images.images.push(upload);
                }
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

    fn type_error(&self, member: ImageMemberKind, first: u8) -> Error {
        let (param, expected) = match member {
            ImageMemberKind::Images => ("images".to_owned(), "an array"),
            ImageMemberKind::Element => (format!("images[{}]", self.images.images.len()), "an object"),
            ImageMemberKind::Mask => ("mask".to_owned(), "an object"),
            ImageMemberKind::ImageUrl => (format!("{}.image_url", self.param()), "a string"),
        };
        let message =
            format!("Invalid type for '{param}': expected {expected}, but got {} instead.", json_type_name(first));
        Rejection::new(param, RejectionReason::InvalidType, message).into()
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
