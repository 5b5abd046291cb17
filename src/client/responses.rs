//! The calls that run tasks for text models, which may make images.
//!
//! The known part of the API is typed; everything else is open in both directions: a field, an item, a tool or an event
//! that this version does not know is sent and kept exactly as it is.

mod event;
mod image;
mod item;
mod request;
mod response;
mod stream;
#[cfg(test)]
mod tests;
mod tool;

pub use event::{ResponseEvent, ResponseStep};
pub use image::ResponseImage;
pub use item::{ImageCall, Message, OutputItem, ResponseItem};
pub use request::{ResponseInput, ResponseRequest};
pub use response::Response;
pub use stream::ResponseStream;
pub use tool::{ImageTool, ResponseTool};

use std::time::Duration;

use super::paid_call::PaidOperation;
use super::session::TimeLimit;
use super::{Client, Error};
use crate::tables::CLIENT_TIMEOUT_LARGE_SECONDS;

/// The time limit of large images, because a model may reason for long and make large images.
const LIMIT: Duration = Duration::from_secs(CLIENT_TIMEOUT_LARGE_SECONDS);

/// Calls that run tasks; from [`Client::responses`].
#[derive(Clone, Copy, Debug)]
pub struct ResponseCalls<'a> {
    client: &'a Client,
}

// === impl ResponseCalls ===

impl<'a> ResponseCalls<'a> {
    pub(super) const fn new(client: &'a Client) -> Self {
        Self { client }
    }

    /// Runs a task and waits for the whole response: up to 300 seconds, unless the request sets another limit.
    ///
    /// ```no_run
    /// # async fn run() -> Result<(), imagate::client::Error> {
    /// use imagate::client::{Client, ImageTool, ResponseRequest};
    ///
    /// let client = Client::from_env()?;
    /// let tool = ImageTool::new().size(imagate::size!("1024x1024"));
    /// let request = ResponseRequest::new("gpt-5.5", "Draw a red fox, and say a word about it.").tool(tool);
    /// let response = client.responses().create(request).await?;
    /// println!("{}", response.text());
    /// for path in response.write_images("fox").await? {
    ///     println!("{}", path.display());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the service cannot be reached or refuses the request, or if the task failed or did not end
    /// in time.
    pub async fn create(&self, request: impl Into<ResponseRequest>) -> Result<Response, Error> {
        let request = request.into();
        let options = request.call_options(TimeLimit::Total(request.time_limit().unwrap_or(LIMIT)))?;
        let operation = PaidOperation::CreateResponse(request.into_body(false));
        let mut call = self.client.paid_call(options, operation).await?;
        let answer = call.read_answer().await;
        call.finish(answer.and_then(|answer| Response::parse(answer, call.session())?.or_failure(call.session())))
    }

    /// Runs a task and returns its events as they happen.
    ///
    /// Waits until the service accepts the request, up to 300 seconds unless the request sets another limit; everything
    /// after that comes through the stream.
    ///
    /// # Errors
    ///
    /// Returns an error if the service cannot be reached, refuses the request, or does not begin to answer in time.
    pub async fn stream(&self, request: impl Into<ResponseRequest>) -> Result<ResponseStream, Error> {
        let request = request.into();
        let options = request.call_options(TimeLimit::Idle(request.time_limit().unwrap_or(LIMIT)))?;
        let operation = PaidOperation::CreateResponse(request.into_body(true));
        // Without a key, because a program cancels a task by dropping its stream.
        let call = self.client.keyless_call(options, operation);
        let (answer, session, _) = call.begin_stream().await?;
        Ok(ResponseStream::new(answer, session))
    }
}
