//! The form of an edit: multipart or JSON on the wire, one shape behind this file.
//!
//! Decides what is a file and what is a field, by the name alone, and how much of either is read. Images go to the
//! spool as they come and nowhere else; what a caller says of their type and name is not even looked at.
//! Refuses to know which values and which images are good: that is for the rules.
//! It carries section 3 of the contract: names, order, limits, and both ways of writing an image down.

mod data_url;
mod fields;
mod form_buffer;
mod json;
mod lexer;
mod multipart;

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use dropshot::{
    ApiEndpointBodyContentType, Body, ExclusiveExtractor, ExtractorMetadata, HttpError, MultipartBody, RequestContext,
    ServerContext,
};

use super::body::{Arriving, content_type, is_json, no_room};
use super::unread::Unread;
use crate::error::{Error, Reason, Rejection};
use crate::gateway::keys::Caller;
use crate::gateway::spool::{EditForm, Spool, Upload};
use crate::tables::{MAX_EDIT_FORM_BODY_BYTES, MAX_EDIT_IMAGES, MAX_EDIT_JSON_BODY_BYTES, MAX_JSON_BODY_BYTES};

/// Everything that is no image, together: as much as a request without images may have.
const TEXT_MAX: u64 = MAX_JSON_BODY_BYTES;

/// The body of an edit, unread: multipart form data, or JSON.
pub(crate) struct EditBody {
    request: hyper::Request<Body>,
    unread: Unread,
}

/// The images that have come so far.
#[derive(Debug, Default)]
struct Images {
    images: Vec<Upload>,
    mask: Option<Upload>,
}

// === impl EditBody ===

impl EditBody {
    /// The place where what is not read comes back to.
    pub(crate) fn unread(&self) -> Unread {
        self.unread.clone()
    }

    /// Reads the form; its images are files in the spool when this returns, and gone when it fails.
    ///
    /// # Errors
    ///
    /// 415 for another content type or an unknown content encoding, 413 above a limit as soon as it is passed, 400 for
    /// a form that cannot be read or does not arrive completely, 429 or 503 if a budget does not allow it, 503 if the
    /// disk does not take an image.
    pub(crate) async fn read(self, caller: &Caller, spool: &Spool) -> Result<EditForm, Error> {
        read(self.request, &spool.owned_by(Some(caller.key().as_str()))).await
    }
}

async fn read(request: hyper::Request<Body>, spool: &Spool) -> Result<EditForm, Error> {
    if is_json(content_type(&request)) {
        let arriving = Arriving::new(request, MAX_EDIT_JSON_BODY_BYTES, Reason::InvalidJson)?;
        return json::read(arriving, spool).await;
    }
    let Some(boundary) = multipart::boundary(content_type(&request)) else {
        return Err(Error::UnsupportedMedia(
            "Expected the header 'Content-Type: multipart/form-data' with a boundary, or 'Content-Type: \
             application/json'."
                .to_owned(),
        ));
    };
    let boundary = boundary?;
    let arriving = Arriving::new(request, MAX_EDIT_FORM_BODY_BYTES, Reason::InvalidValue)?;
    multipart::read(arriving, &boundary, spool).await
}

// === impl Images ===

impl Images {
    /// Whether another image may come.
    fn room(&self, param: &str) -> Result<(), Error> {
        if (self.images.len() as u64) < MAX_EDIT_IMAGES {
            return Ok(());
        }
        let message = format!("Invalid '{param}': too many images. Expected at most {MAX_EDIT_IMAGES}.");
        Err(Rejection::new(param, Reason::InvalidValue, message).into())
    }

    /// Nothing more comes.
    fn finish(self, param: &str, fields: fields::Fields) -> Result<EditForm, Error> {
        if self.images.is_empty() {
            let message = format!("Missing required parameter: '{param}'.");
            return Err(Rejection::new(param, Reason::MissingParameter, message).into());
        }
        Ok(EditForm { fields: fields.into_inner(), images: self.images, mask: self.mask })
    }
}

#[async_trait]
impl ExclusiveExtractor for EditBody {
    async fn from_request<C: ServerContext>(
        _context: &RequestContext<C>,
        request: hyper::Request<Body>,
    ) -> Result<Self, HttpError> {
        let (request, unread) = Unread::watch(request);
        Ok(Self { request, unread })
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        <MultipartBody as ExclusiveExtractor>::metadata(content_type)
    }
}
