//! The body of a form that a page sends. It is small, and is read as a whole; only the form that makes images may have
//! files.

use bytes::{Bytes, BytesMut};
use dropshot::{Body, UntypedBody};

use super::body::{IncomingBody, UnreadRequestBody, content_type, spool_error};
use super::form::{self, ImagePageForm};
use crate::error::{Error, RejectionReason};
use crate::gateway::admission::Admission;
use crate::gateway::spool::Spool;

/// An unread form of a page. It is read before authentication, because it may be the sign-in form; therefore its size
/// is limited strictly.
pub(crate) type FormBody = UnreadRequestBody<UntypedBody>;

// === impl FormBody ===

impl FormBody {
    /// True if the form may have files.
    pub(crate) fn is_multipart(&self) -> bool {
        media_type(&self.request).eq_ignore_ascii_case("multipart/form-data")
    }

    /// Reads the body, which may have at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// Returns 415 for a content type other than that of a form or an unsupported content encoding, 413 if the body is too
    /// large or expands too much, 400 if it breaks off, arrives too slowly or cannot be decoded, and 429 or 503 if the
    /// memory for such forms is used up.
    pub(crate) async fn read(self, admission: &Admission, max_bytes: u64) -> Result<Bytes, Error> {
        if !media_type(&self.request).eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Error::UnsupportedMedia("Expected a form.".to_owned()));
        }
        let mut incoming = IncomingBody::new(self.request, admission, max_bytes, RejectionReason::InvalidValue)?;
        let (mut body, mut memory) = (BytesMut::new(), admission.memory());
        while let Some(data) = incoming.next_data().await? {
            memory.add_bytes(data.len() as u64).map_err(|error| spool_error(&error))?;
            body.extend_from_slice(&data);
        }
        Ok(memory.attach_to(body.freeze()))
    }

    /// Reads a form with files, of an authenticated user. Its images are files in the spool.
    ///
    /// # Errors
    ///
    /// Returns 415 for another content type or an unsupported content encoding, 413 if the body, an image, or the fields
    /// are too large, 400 for a form that breaks another rule, cannot be read or does not arrive completely, 429 or 503
    /// if a budget does not allow it, and 503 if an image cannot be written to disk.
    pub(crate) async fn read_with_files(
        self,
        admission: &Admission,
        spool: &Spool,
        page_fields: &'static [&'static str],
    ) -> Result<ImagePageForm, Error> {
        form::read_page_form(self.request, admission, spool, page_fields).await
    }
}

fn media_type(request: &hyper::Request<Body>) -> &str {
    content_type(request).split(';').next().unwrap_or_default().trim()
}
