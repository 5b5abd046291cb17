//! Turns a request into a `Job`, or into a rejection that names the parameter at fault.
//!
//! Pure: no clock, no socket, no store. The limits of each field are in the API document and reach this module as a
//! table ([`fields`]); the abilities of each image model are another table, to which the operator may add ([`models`]);
//! the rules on combinations of fields are code ([`image`], [`response`]). A refused request has cost nothing upstream.
//! This module carries the size rules, the tables of request fields, and the incompatible combinations.

mod fields;
mod image;
mod job;
mod models;
mod response;
mod task;

pub(crate) use fields::{check as check_fields, parse_object as read_object};
pub(crate) use job::{EditInput, Job};
pub(crate) use models::ImageModels;
pub(crate) use response::{ImageTool, ResponseJob};
pub(crate) use task::{SharedTask, TaskRef};

use chrono::{DateTime, Utc};
use http::HeaderMap;

use crate::error::{Error, Rejection};
use crate::gateway::spool::{EditForm, SpooledBytes};

// === impl ImageModels ===

impl ImageModels {
    /// Checks a generation request.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule, with the parameter at fault.
    pub(crate) fn check_generation(&self, body: &[u8], received: DateTime<Utc>) -> Result<Job, Rejection> {
        image::check_generation(self, body, received)
    }

    /// Checks an edit request. Its images were read when they came; here they are checked.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule, with the parameter at fault, spelled as the caller spelled it.
    pub(crate) fn check_edit(&self, form: EditForm, received: DateTime<Utc>) -> Result<Job, Error> {
        image::check_edit(self, form, received)
    }

    /// Checks a request for a response. Of its headers, those that an upstream needs are kept.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule, with its parameter, or an error if the body cannot be read back from disk.
    pub(crate) fn check_response(
        &self,
        body: SpooledBytes,
        headers: &HeaderMap,
        received: DateTime<Utc>,
    ) -> Result<ResponseJob, Error> {
        response::check_response(self, body, headers, received)
    }
}

/// Checks a generation request with the models of the document, for tests.
#[cfg(test)]
pub(crate) fn check_generation(body: &[u8], received: DateTime<Utc>) -> Result<Job, Rejection> {
    ImageModels::default().check_generation(body, received)
}

/// Checks an edit request with the models of the document, for tests.
#[cfg(test)]
pub(crate) fn check_edit(form: EditForm, received: DateTime<Utc>) -> Result<Job, Error> {
    ImageModels::default().check_edit(form, received)
}

/// Checks a request for a response with the models of the document, for tests.
#[cfg(test)]
pub(crate) fn check_response(
    body: SpooledBytes,
    headers: &HeaderMap,
    received: DateTime<Utc>,
) -> Result<ResponseJob, Error> {
    ImageModels::default().check_response(body, headers, received)
}
