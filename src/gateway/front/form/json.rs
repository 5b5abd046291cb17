//! The JSON form: images and the mask are objects that hold a data URL.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::data_url::{DataUrl, ImageUrlError};
use super::fields::{self, EditFields};
use super::form_buffer::FormBuffer;
use super::lexer::{EditLexer, EditLexerSink, ImageMemberKind};
use super::{EditImages, no_room};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::front::body::IncomingBody;
use crate::gateway::spool::{EditForm, ImageUpload, Spool, SpooledFile};

/// A body that is being read.
struct JsonFormReader {
    spool: Spool,
    images: EditImages,
    fields: EditFields,
    /// The members `images` and `mask` that have come; a second one of either is refused.
    came: SeenMembers,
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
    mask: bool,
    address: ImageUrlState,
    /// True if a file id is given beside the address or instead of it.
    file_id: bool,
}

/// `image_url` of the current image.
#[derive(Debug, Default)]
enum ImageUrlState {
    #[default]
    Absent,
    Coming(Box<DataUrl>),
    Here(Arc<SpooledFile>),
}

pub(super) async fn read(mut arriving: IncomingBody, spool: &Spool) -> Result<EditForm, Error> {
    let mut lexer = EditLexer::new();
    let mut reading = JsonFormReader {
        spool: spool.clone(),
        images: EditImages::default(),
        fields: EditFields::default(),
        came: SeenMembers::default(),
        current: CurrentImage::default(),
    };
    let (mut memory, mut gathered) = (spool.memory(), FormBuffer::default());
    while let Some(data) = arriving.data().await? {
        // Only the text of an image is collected: any other member may be refused at once.
        let data = if reading.is_in_image() { gathered.add(data) } else { Some(data) };
        if let Some(data) = data {
            (lexer, reading) = push(spool, lexer, reading, data).await?;
        }
        memory.hold(lexer.kept() + gathered.len() as u64).map_err(|error| no_room(&error))?;
    }
    if let Some(data) = gathered.rest() {
        (lexer, reading) = push(spool, lexer, reading, data).await?;
    }
    lexer.finish()?;
    reading.images.finish("images", reading.fields)
}

/// Runs decoding and writing off the worker thread, because they may block on the disk.
async fn push(
    spool: &Spool,
    mut lexer: EditLexer,
    mut reading: JsonFormReader,
    data: Bytes,
) -> Result<(EditLexer, JsonFormReader), Error> {
    let read = spool.off_worker(move || {
        lexer.push(&data, &mut reading)?;
        reading.flush()?;
        Ok((lexer, reading))
    });
    read.await.map_err(|error| no_room(&error))?
}

// === impl JsonFormReader ===

impl JsonFormReader {
    /// True if the next bytes belong to an image.
    fn is_in_image(&self) -> bool {
        matches!(&self.current.address, ImageUrlState::Coming(url) if url.has_head())
    }

    /// Writes the decoded bytes.
    fn flush(&mut self) -> Result<(), Error> {
        let ImageUrlState::Coming(url) = &mut self.current.address else { return Ok(()) };
        url.flush().map_err(|fault| self.fault(fault))
    }

    /// The name of the current image as the caller spells it.
    fn param(&self) -> String {
        if self.current.mask { "mask".to_owned() } else { format!("images[{}]", self.images.images.len()) }
    }

    fn fault(&self, fault: ImageUrlError) -> Error {
        let reason = match fault {
            ImageUrlError::Spool(error) => return no_room(&error),
            ImageUrlError::TooLong => RejectionReason::StringAboveMax,
            ImageUrlError::NoImage(_) => RejectionReason::InvalidValue,
        };
        let param = format!("{}.image_url", self.param());
        let message = format!("Invalid '{param}': {fault}");
        Rejection::new(param, reason, message).into()
    }

    /// The error for an image with both an address and a file id, or with neither.
    fn one_of_both(&self) -> Error {
        let param = self.param();
        let message = format!("Invalid '{param}': expected exactly one of 'image_url' and 'file_id'.");
        Rejection::new(param, RejectionReason::InvalidValue, message).into()
    }

    fn coming(&mut self) -> Result<&mut DataUrl, Error> {
        match &mut self.current.address {
            ImageUrlState::Coming(url) => Ok(url),
            ImageUrlState::Absent | ImageUrlState::Here(_) => Err(Error::Internal),
        }
    }
}

impl EditLexerSink for JsonFormReader {
    fn key(&mut self, key: &str) -> Result<(), Error> {
        let came = match key {
            "images" => &mut self.came.images,
            "mask" => &mut self.came.mask,
            _ => return fields::known(key).map(drop),
        };
        if std::mem::replace(came, true) { Err(fields::twice(key)) } else { Ok(()) }
    }

    fn member(&mut self, key: &str, value: Value) -> Result<(), Error> {
        // The mask comes here only as `null`.
        if key == "mask" { Ok(()) } else { self.fields.put(key, value) }
    }

    fn image(&mut self, mask: bool) -> Result<(), Error> {
        self.current = CurrentImage { mask, ..CurrentImage::default() };
        if mask { Ok(()) } else { self.images.room("images") }
    }

    fn image_key(&mut self, key: &str) -> Result<(), Error> {
        match key {
            "image_url" | "file_id" => Ok(()),
            _ => Err(fields::unknown(&format!("{}.{key}", self.param()))),
        }
    }

    fn image_member(&mut self, key: &str, value: Value) -> Result<(), Error> {
        if key == "file_id" && !value.is_null() {
            self.current.file_id = true;
            if !matches!(self.current.address, ImageUrlState::Absent) {
                return Err(self.one_of_both());
            }
        }
        Ok(())
    }

    fn address(&mut self) -> Result<(), Error> {
        if self.current.file_id {
            return Err(self.one_of_both());
        }
        if !matches!(self.current.address, ImageUrlState::Absent) {
            return Err(fields::twice(&format!("{}.image_url", self.param())));
        }
        let writer = self.spool.begin().map_err(|error| no_room(&error))?;
        self.current.address = ImageUrlState::Coming(Box::new(DataUrl::new(writer)));
        Ok(())
    }

    fn address_text(&mut self, text: &[u8]) -> Result<(), Error> {
        self.coming()?.push(text).map_err(|fault| self.fault(fault))
    }

    fn address_escaped(&mut self, byte: u8) -> Result<(), Error> {
        self.coming()?.push_escaped(byte).map_err(|fault| self.fault(fault))
    }

    fn address_end(&mut self) -> Result<(), Error> {
        let ImageUrlState::Coming(url) = std::mem::take(&mut self.current.address) else { return Err(Error::Internal) };
        self.current.address = ImageUrlState::Here(url.finish().map_err(|fault| self.fault(fault))?);
        Ok(())
    }

    fn image_end(&mut self) -> Result<(), Error> {
        let current = &mut self.current;
        match (std::mem::take(&mut current.address), current.file_id) {
            (ImageUrlState::Here(file), _) => {
                let upload = ImageUpload::new(format!("{}.image_url", self.param()), file);
                if self.current.mask {
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
            (_, false) => Err(self.one_of_both()),
        }
    }

    fn misplaced(&self, place: ImageMemberKind, first: u8) -> Error {
        let (param, expected) = match place {
            ImageMemberKind::Images => ("images".to_owned(), "an array"),
            ImageMemberKind::Element => (format!("images[{}]", self.images.images.len()), "an object"),
            ImageMemberKind::Mask => ("mask".to_owned(), "an object"),
            ImageMemberKind::Address => (format!("{}.image_url", self.param()), "a string"),
        };
        let message = format!("Invalid type for '{param}': expected {expected}, but got {} instead.", kind(first));
        Rejection::new(param, RejectionReason::InvalidType, message).into()
    }
}

/// The type of a value, from its first byte.
const fn kind(first: u8) -> &'static str {
    match first {
        b'"' => "a string",
        b'{' => "an object",
        b'[' => "an array",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "a number",
    }
}
