//! The models that the service knows.

use std::time::Duration;

use super::session::Limit;
use super::{Client, Error};
use crate::wire::types;

/// Ours: a list out of memory. Whoever waits longer waits for something that is broken.
const LIMIT: Limit = Limit::Whole(Duration::from_secs(30));

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

    /// The models that the service lists. It may leave out the image models, and serve them nevertheless.
    ///
    /// # Errors
    ///
    /// The service cannot be reached, refuses the key, or fails.
    pub async fn list(&self) -> Result<types::ModelList, Error> {
        let call = self.client.call(LIMIT);
        let answer = call.list_models().send().await;
        answer.map(progenitor_client::ResponseValue::into_inner).map_err(|error| Error::of_call(error, &call.inner))
    }

    /// The model of this name.
    ///
    /// # Errors
    ///
    /// As for [`ModelCalls::list`]; status 404 where there is no such model.
    pub async fn retrieve(&self, id: &str) -> Result<types::Model, Error> {
        let call = self.client.call(LIMIT);
        let answer = call.retrieve_model().model(id).send().await;
        answer.map(progenitor_client::ResponseValue::into_inner).map_err(|error| Error::of_call(error, &call.inner))
    }
}
