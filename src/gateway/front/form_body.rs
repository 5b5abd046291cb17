//! The form of a page: small, and read as a whole.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dropshot::{
    ApiEndpointBodyContentType, Body, ExclusiveExtractor, ExtractorMetadata, HttpError, RequestContext, ServerContext,
    UntypedBody,
};

use super::body::{IncomingBody, content_type};
use super::unread_body::UnreadBody;
use crate::error::{Error, RejectionReason};

/// An unread form. It is read before authentication, because it may be the sign-in form; therefore it must be small.
pub(crate) struct FormBody {
    request: hyper::Request<Body>,
    unread: UnreadBody,
}

// === impl FormBody ===

impl FormBody {
    /// The place that an unread body returns to.
    pub(crate) fn unread(&self) -> UnreadBody {
        self.unread.clone()
    }

    /// Reads at most this many bytes.
    ///
    /// # Errors
    ///
    /// Returns 415 for a body that is no form, 413 above the limit, 400 if it does not arrive completely.
    pub(crate) async fn read(self, max_bytes: u64) -> Result<Bytes, Error> {
        let kind = content_type(&self.request).split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
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
        let (request, unread) = UnreadBody::capture_from(request);
        Ok(Self { request, unread })
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        <UntypedBody as ExclusiveExtractor>::metadata(content_type)
    }
}
