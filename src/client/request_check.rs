//! The checks of requests without a call: they find the faults that a call would find before it sends anything. The
//! command line also tells equal requests by a hash.

#[cfg(feature = "cli")]
use std::hash::Hasher;

use super::form::EditForm;
#[cfg(feature = "cli")]
use super::paid_call::PaidOperation;
use super::request::AnswerMode;
use super::session::TimeLimit;
use super::{EditRequest, Error, GenerateRequest};

// === impl GenerateRequest ===

impl GenerateRequest {
    /// Finds the faults of the request that a call would find before it sends anything.
    ///
    /// # Errors
    ///
    /// Returns the first fault. The service may refuse a request without a fault.
    pub fn check(&self) -> Result<(), Error> {
        self.check_for(AnswerMode::Whole)
    }

    /// Works like [`check`](Self::check), for a call with a stream.
    ///
    /// # Errors
    ///
    /// Returns the first fault. The service may refuse a request without a fault.
    pub fn check_stream(&self) -> Result<(), Error> {
        self.check_for(AnswerMode::Events)
    }

    /// Adds everything to the hash that makes two requests equal.
    #[cfg(feature = "cli")]
    pub(crate) async fn hash<H>(&self, is_stream: bool, hasher: H) -> Result<H, Error>
    where
        H: Hasher + Send + 'static,
    {
        let options = self.clone().into_options();
        let call_options = options.call_options(TimeLimit::Total(options.time_limit()))?;
        let body = options.into_members(AnswerMode::for_stream(is_stream))?.into_body();
        super::hash_request(&call_options, &PaidOperation::CreateImage(body), hasher).await
    }

    fn check_for(&self, mode: AnswerMode) -> Result<(), Error> {
        let options = self.clone().into_options();
        options.call_options(TimeLimit::Total(options.time_limit()))?;
        options.into_members(mode).map(drop)
    }
}

// === impl EditRequest ===

impl EditRequest {
    /// Finds the faults of the request and of its images that a call would find before it sends anything.
    ///
    /// # Errors
    ///
    /// Returns the first fault. The service may refuse a request without a fault.
    pub async fn check(&self) -> Result<(), Error> {
        EditForm::new(self.clone(), AnswerMode::Whole).await.map(drop)
    }

    /// Works like [`check`](Self::check), for a call with a stream.
    ///
    /// # Errors
    ///
    /// Returns the first fault. The service may refuse a request without a fault.
    pub async fn check_stream(&self) -> Result<(), Error> {
        EditForm::new(self.clone(), AnswerMode::Events).await.map(drop)
    }

    /// Adds everything to the hash that makes two requests equal, also the content of the images.
    #[cfg(feature = "cli")]
    pub(crate) async fn hash<H>(&self, is_stream: bool, hasher: H) -> Result<H, Error>
    where
        H: Hasher + Send + 'static,
    {
        let form = EditForm::new(self.clone(), AnswerMode::for_stream(is_stream)).await?;
        let call_options = form.call_options(TimeLimit::Total(form.time_limit()));
        super::hash_request(&call_options, &PaidOperation::EditImage(Box::new(form)), hasher).await
    }
}
