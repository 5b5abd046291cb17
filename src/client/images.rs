//! Making images.

use bytes::Bytes;
use progenitor_client::{Error as WireError, ResponseValue};
use reqwest::header::HeaderMap;
use reqwest::{RequestBuilder, StatusCode};

use super::call::{Call, Operation};
use super::form::EditForm;
use super::request::Delivery;
use super::session::{Head, Limit, Session};
use super::{Client, EditRequest, Error, GenerateRequest, ImageStream, Images, lenient};
use crate::wire::types::{ErrorResponse, ImagesResponse};

pub(super) const JSON: &str = "application/json";
/// With the other one, because a service that cannot stream may answer all the same.
pub(super) const EVENTS: &str = "text/event-stream, application/json;q=0.5";

/// Calls that make images; from [`Client::images`].
#[derive(Clone, Copy, Debug)]
pub struct ImageCalls<'a> {
    client: &'a Client,
}

// === impl ImageCalls ===

impl<'a> ImageCalls<'a> {
    pub(super) const fn new(client: &'a Client) -> Self {
        Self { client }
    }

    /// Makes images from a prompt, and waits for them: up to 120 seconds, or 300 above 2560x1440.
    ///
    /// A text alone is a request with all defaults.
    ///
    /// # Errors
    ///
    /// The request breaks a rule, the service cannot be reached or refuses it, or no image was made in time.
    pub async fn generate(&self, request: impl Into<GenerateRequest>) -> Result<Images, Error> {
        let wishes = request.into().into_wishes();
        let limit = Limit::Whole(wishes.time_limit());
        let headers = wishes.headers()?;
        let body = wishes.into_wire(Delivery::Whole)?;
        let client = self.client.call_with(limit, headers);
        let call = Call { client: &client, operation: Operation::CREATE_IMAGE, accept: JSON };
        let response = call.send(|request| Ok(request.json(&body))).await?;
        finish(ResponseValue::from_response(response).await, &client.inner)
    }

    /// Makes an image from a prompt, and hands on what is there of it while it is made.
    ///
    /// Waits until the service accepts the request; what comes then is in the stream. There are intermediate images
    /// where [`GenerateRequest::partial_images`] asks for them.
    ///
    /// # Errors
    ///
    /// The request breaks a rule, or the service cannot be reached, refuses it, or does not begin to answer in time.
    pub async fn generate_stream(&self, request: impl Into<GenerateRequest>) -> Result<ImageStream, Error> {
        let wishes = request.into().into_wishes();
        let limit = Limit::Silence(wishes.time_limit());
        let headers = wishes.headers()?;
        let body = wishes.into_wire(Delivery::Events)?;
        let client = self.client.call_with(limit, headers);
        let operation = Operation::CREATE_IMAGE;
        let call = Call { client: &client, operation, accept: EVENTS };
        let response = call.send(|request| Ok(request.json(&body))).await?;
        Ok(ImageStream::new(response, client.inner.clone()))
    }

    /// Changes images, or makes new ones from them, and waits for the result: as long as [`ImageCalls::generate`], and as
    /// long as it takes to send the images, at a megabyte in a second.
    ///
    /// The images are looked at before anything is sent, by the rules of the service. Files are read while they are
    /// sent. Nothing is sent twice unless nobody was reached, or the service asks for it.
    ///
    /// # Errors
    ///
    /// The request or one of its images breaks a rule, the service cannot be reached or refuses it, or no image was made
    /// in time.
    pub async fn edit(&self, request: impl Into<EditRequest>) -> Result<Images, Error> {
        let form = EditForm::new(request.into(), Delivery::Whole).await?;
        let client = self.client.call_with(Limit::Whole(form.time_limit()), form.headers());
        let call = Call { client: &client, operation: Operation::EDIT_IMAGE, accept: JSON };
        let response = call.send(|request| written(request, &form)).await?;
        finish(ResponseValue::from_response(response).await, &client.inner)
    }

    /// Changes images, or makes a new one from them, and hands on what is there of it while it is made.
    ///
    /// To [`ImageCalls::edit`] as [`ImageCalls::generate_stream`] is to [`ImageCalls::generate`].
    ///
    /// # Errors
    ///
    /// The request or one of its images breaks a rule, or the service cannot be reached, refuses it, or does not begin to
    /// answer in time.
    pub async fn edit_stream(&self, request: impl Into<EditRequest>) -> Result<ImageStream, Error> {
        let form = EditForm::new(request.into(), Delivery::Events).await?;
        let client = self.client.call_with(Limit::Silence(form.time_limit()), form.headers());
        let call = Call { client: &client, operation: Operation::EDIT_IMAGE, accept: EVENTS };
        let response = call.send(|request| written(request, &form)).await?;
        Ok(ImageStream::new(response, client.inner.clone()))
    }
}

fn written(request: RequestBuilder, form: &EditForm) -> reqwest::Result<RequestBuilder> {
    Ok(request.multipart(form.write()?))
}

/// The images of an answer that came whole.
fn finish(
    result: Result<ResponseValue<ImagesResponse>, WireError<ErrorResponse>>,
    session: &Session,
) -> Result<Images, Error> {
    let response = match result {
        Ok(value) => value.into_inner(),
        Err(WireError::InvalidResponsePayload(body, source)) if session.head().is_some_and(Head::is_success) => {
            let unread = |_| Error::of_call(WireError::InvalidResponsePayload(Bytes::new(), source), session);
            lenient::answer(serde_json::from_slice(&body).map_err(unread)?)
        }
        Err(error) => return Err(Error::of_call(error, session)),
    };
    Images::new(response, session.head())
}

/// The images of an answer that came whole where events were asked for.
pub(super) fn read(body: Vec<u8>, session: &Session) -> Result<Images, Error> {
    let read = serde_json::from_slice(&body).map_err(|error| WireError::InvalidResponsePayload(body.into(), error));
    finish(read.map(|response| ResponseValue::new(response, StatusCode::OK, HeaderMap::new())), session)
}
