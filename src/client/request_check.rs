//! The checks of requests without a call: they find the faults that a call would find before it sends anything.

use super::form::EditForm;
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
}
