//! The calls about the models that the service knows.

use std::time::Duration;

use super::session::TimeLimit;
use super::{Client, Error};
use crate::wire::types;

/// The time limit of a call (our choice). The service answers from memory, so a longer wait is pointless.
const LIMIT: TimeLimit = TimeLimit::Total(Duration::from_secs(30));

/// Calls about models; from [`Client::models`].
#[derive(Clone, Copy, Debug)]
pub struct ModelCalls<'a> {
    client: &'a Client,
}

// === impl ModelCalls ===

impl<'a> ModelCalls<'a> {
    pub(super) const fn new(client: &'a Client) -> Self {
        Self { client }
    }

    /// Returns the models that the service lists. A service may leave out image models and serve them nevertheless.
    ///
    /// # Errors
    ///
    /// Returns an error if the service cannot be reached, refuses the key, or fails.
    pub async fn list(&self) -> Result<types::ModelList, Error> {
        let call = self.client.call(LIMIT);
        let answer = call.list_models().send().await;
        answer.map(progenitor_client::ResponseValue::into_inner).map_err(|error| Error::from_call(error, &call.inner))
    }

    /// Returns the model with this name.
    ///
    /// # Errors
    ///
    /// The errors of [`ModelCalls::list`], and status 404 if there is no such model.
    pub async fn retrieve(&self, id: &str) -> Result<types::Model, Error> {
        let call = self.client.call(LIMIT);
        let answer = call.retrieve_model().model(id).send().await;
        answer.map(progenitor_client::ResponseValue::into_inner).map_err(|error| Error::from_call(error, &call.inner))
    }
}
