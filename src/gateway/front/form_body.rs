//! The form of a page: small, and read whole.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use dropshot::{
    ApiEndpointBodyContentType, Body, ExclusiveExtractor, ExtractorMetadata, HttpError, RequestContext, ServerContext,
    UntypedBody,
};

use super::body::{Arriving, content_type};
use super::unread::Unread;
use crate::error::{Error, Reason};

/// A form, unread. Nobody has been let in yet when it is read: it may be the one that lets somebody in. So it is small.
pub(crate) struct FormBody {
    request: hyper::Request<Body>,
    unread: Unread,
}

// === impl FormBody ===

impl FormBody {
    /// The place where what is not read comes back to.
    pub(crate) fn unread(&self) -> Unread {
        self.unread.clone()
    }

    /// Reads at most so many bytes.
    ///
    /// # Errors
    ///
    /// 415 for what is no form, 413 above the limit, 400 when it does not arrive whole.
    pub(crate) async fn read(self, most: u64) -> Result<Bytes, Error> {
        let kind = content_type(&self.request).split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Error::UnsupportedMedia("Expected a form.".to_owned()));
        }
        let mut arriving = Arriving::new(self.request, most, Reason::InvalidValue)?;
        let mut read = BytesMut::new();
        while let Some(data) = arriving.data().await? {
            read.extend_from_slice(&data);
        }
        Ok(read.freeze())
    }
}

#[async_trait]
impl ExclusiveExtractor for FormBody {
    async fn from_request<C: ServerContext>(
        _context: &RequestContext<C>,
        request: hyper::Request<Body>,
    ) -> Result<Self, HttpError> {
        let (request, unread) = Unread::watch(request);
        Ok(Self { request, unread })
    }

    fn metadata(content_type: ApiEndpointBodyContentType) -> ExtractorMetadata {
        <UntypedBody as ExclusiveExtractor>::metadata(content_type)
    }
}
