//! The body of a form that a page sends. It is small, and is read as a whole.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dropshot::{
    ApiEndpointBodyContentType, Body, ExclusiveExtractor, ExtractorMetadata, HttpError, RequestContext, ServerContext,
    UntypedBody,
};

use super::body::{IncomingBody, content_type};
use super::unread_body::UnreadBody;
use crate::error::{Error, RejectionReason};

/// An unread form of a page. It is read before authentication, because it may be the sign-in form; therefore its size
/// is limited strictly.
pub(crate) struct FormBody {
    request: hyper::Request<Body>,
    unread: UnreadBody,
}

// === impl FormBody ===

impl FormBody {
    /// Returns the handle that gets the rest of the body if the body is not read to its end.
    pub(crate) fn unread(&self) -> UnreadBody {
        self.unread.clone()
    }

    /// Reads the body, which may have at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// Returns 415 for a content type other than that of a form or an unsupported content encoding, 413 if the body is too
    /// large or expands too much, and 400 if it breaks off, arrives too slowly or cannot be decoded.
    pub(crate) async fn read(self, max_bytes: u64) -> Result<Bytes, Error> {
        let media_type = content_type(&self.request).split(';').next().unwrap_or_default().trim();
        if !media_type.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Error::UnsupportedMedia("Expected a form.".to_owned()));
        }
        let mut incoming = IncomingBody::new(self.request, max_bytes, RejectionReason::InvalidValue)?;
        let mut body = BytesMut::new();
        while let Some(data) = incoming.next_data().await? {
            body.extend_from_slice(&data);
        }
        Ok(body.freeze())
    }
}

#[async_trait]
impl ExclusiveExtractor for FormBody {
    async fn from_request<C: ServerContext>(
        _context: &RequestContext<C>,
        request: hyper::Request<Body>,
    ) -> Result<Self, HttpError> {
        let (request, unread) = UnreadBody::wrap_request(request);
        Ok(Self { request, unread })
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        <UntypedBody as ExclusiveExtractor>::metadata(content_type)
    }
}
