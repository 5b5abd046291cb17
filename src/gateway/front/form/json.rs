//! The form as JSON: images and the mask as objects that hold a data URL.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

use super::data_url::{DataUrl, Fault};
use super::fields::{self, Fields};
use super::form_buffer::FormBuffer;
use super::lexer::{Lexer, Place, Sink};
use super::{Images, no_room};
use crate::error::{Error, Reason, Rejection};
use crate::gateway::front::body::Arriving;
use crate::gateway::spool::{EditForm, Spool, Spooled, Upload};

/// A body that is being read.
struct Reading {
    spool: Spool,
    images: Images,
    fields: Fields,
    /// `images` or `mask` has come: another one would be a second answer to one question.
    came: Came,
    current: Current,
}

#[derive(Debug, Default)]
struct Came {
    images: bool,
    mask: bool,
}

/// The image that is being read.
#[derive(Debug, Default)]
struct Current {
    mask: bool,
    address: Address,
    /// A file id stands beside it or instead of it.
    file_id: bool,
}

/// `image_url` of the current image.
#[derive(Debug, Default)]
enum Address {
    #[default]
    Absent,
    Coming(Box<DataUrl>),
    Here(Arc<Spooled>),
}

pub(super) async fn read(mut arriving: Arriving, spool: &Spool) -> Result<EditForm, Error> {
    let mut lexer = Lexer::new();
    let mut reading = Reading {
        spool: spool.clone(),
        images: Images::default(),
        fields: Fields::default(),
        came: Came::default(),
        current: Current::default(),
    };
    let (mut memory, mut gathered) = (spool.memory(), FormBuffer::default());
    while let Some(data) = arriving.data().await? {
        // Only the text of an image is gathered: whatever else comes may be refused at once.
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

/// Decoding and writing may block on the disk, so they leave the worker thread.
async fn push(spool: &Spool, mut lexer: Lexer, mut reading: Reading, data: Bytes) -> Result<(Lexer, Reading), Error> {
    let read = spool.off_worker(move || {
        lexer.push(&data, &mut reading)?;
        reading.flush()?;
        Ok((lexer, reading))
    });
    read.await.map_err(|error| no_room(&error))?
}

// === impl Reading ===

impl Reading {
    /// True if the next bytes belong to an image.
    fn is_in_image(&self) -> bool {
        matches!(&self.current.address, Address::Coming(url) if url.has_head())
    }

    /// Writes the decoded bytes.
    fn flush(&mut self) -> Result<(), Error> {
        let Address::Coming(url) = &mut self.current.address else { return Ok(()) };
        url.flush().map_err(|fault| self.fault(fault))
    }

    /// The name of the current image, as the caller would spell it.
    fn param(&self) -> String {
        if self.current.mask { "mask".to_owned() } else { format!("images[{}]", self.images.images.len()) }
    }

    fn fault(&self, fault: Fault) -> Error {
        let reason = match fault {
            Fault::Spool(error) => return no_room(&error),
            Fault::TooLong => Reason::StringAboveMax,
            Fault::NoImage(_) => Reason::InvalidValue,
        };
        let param = format!("{}.image_url", self.param());
        let message = format!("Invalid '{param}': {fault}");
        Rejection::new(param, reason, message).into()
    }

    /// An image is one thing: an address or a file id.
    fn one_of_both(&self) -> Error {
        let param = self.param();
        let message = format!("Invalid '{param}': expected exactly one of 'image_url' and 'file_id'.");
        Rejection::new(param, Reason::InvalidValue, message).into()
    }

    fn coming(&mut self) -> Result<&mut DataUrl, Error> {
        match &mut self.current.address {
            Address::Coming(url) => Ok(url),
            Address::Absent | Address::Here(_) => Err(Error::Internal),
        }
    }
}

impl Sink for Reading {
    fn key(&mut self, key: &str) -> Result<(), Error> {
        let came = match key {
            "images" => &mut self.came.images,
            "mask" => &mut self.came.mask,
            _ => return fields::known(key).map(drop),
        };
        if std::mem::replace(came, true) { Err(fields::twice(key)) } else { Ok(()) }
    }

    fn member(&mut self, key: &str, value: Value) -> Result<(), Error> {
        // Only `null` comes here for the mask.
        if key == "mask" { Ok(()) } else { self.fields.put(key, value) }
    }

    fn image(&mut self, mask: bool) -> Result<(), Error> {
        self.current = Current { mask, ..Current::default() };
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
            if !matches!(self.current.address, Address::Absent) {
                return Err(self.one_of_both());
            }
        }
        Ok(())
    }

    fn address(&mut self) -> Result<(), Error> {
        if self.current.file_id {
            return Err(self.one_of_both());
        }
        if !matches!(self.current.address, Address::Absent) {
            return Err(fields::twice(&format!("{}.image_url", self.param())));
        }
        let writer = self.spool.begin().map_err(|error| no_room(&error))?;
        self.current.address = Address::Coming(Box::new(DataUrl::new(writer)));
        Ok(())
    }

    fn address_text(&mut self, text: &[u8]) -> Result<(), Error> {
        self.coming()?.push(text).map_err(|fault| self.fault(fault))
    }

    fn address_escaped(&mut self, byte: u8) -> Result<(), Error> {
        self.coming()?.push_escaped(byte).map_err(|fault| self.fault(fault))
    }

    fn address_end(&mut self) -> Result<(), Error> {
        let Address::Coming(url) = std::mem::take(&mut self.current.address) else { return Err(Error::Internal) };
        self.current.address = Address::Here(url.finish().map_err(|fault| self.fault(fault))?);
        Ok(())
    }

    fn image_end(&mut self) -> Result<(), Error> {
        let current = &mut self.current;
        match (std::mem::take(&mut current.address), current.file_id) {
            (Address::Here(file), _) => {
                let upload = Upload::new(format!("{}.image_url", self.param()), file);
                if self.current.mask {
                    self.images.mask = Some(upload);
                } else {
                    self.images.images.push(upload);
                }
                Ok(())
            }
            (_, true) => {
                let param = format!("{}.file_id", self.param());
                let message = format!("Invalid '{param}': there are no files here. Send the image as 'image_url'.");
                Err(Rejection::new(param, Reason::InvalidValue, message).into())
            }
            (_, false) => Err(self.one_of_both()),
        }
    }

    fn misplaced(&self, place: Place, first: u8) -> Error {
        let (param, expected) = match place {
            Place::Images => ("images".to_owned(), "an array"),
            Place::Element => (format!("images[{}]", self.images.images.len()), "an object"),
            Place::Mask => ("mask".to_owned(), "an object"),
            Place::Address => (format!("{}.image_url", self.param()), "a string"),
        };
        let message = format!("Invalid type for '{param}': expected {expected}, but got {} instead.", kind(first));
        Rejection::new(param, Reason::InvalidType, message).into()
    }
}

/// What a value is, from its first byte.
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
