//! Request → `Job`, or a rejection that names the parameter.
//!
//! Pure: no clock, no socket, no store. What one field may be stands in the document and reaches this room as a table
//! ([`fields`]); what an image model can be asked for is another table, to which the operator may add ([`models`]); what
//! fields may be together stands here ([`image`], [`response`]). A refused request has cost nothing upstream.
//! It carries the size rules, the tables of request fields, and the combinations that are incompatible.

mod fields;
mod image;
mod job;
mod models;
mod response;
mod task;

pub(crate) use fields::{check as check_fields, object as read_object};
pub(crate) use job::{Job, Material};
pub(crate) use models::ImageModels;
pub(crate) use response::{ImageTool, ResponseJob};
pub(crate) use task::{SharedTask, Task};

use chrono::{DateTime, Utc};
use http::HeaderMap;

use crate::error::{Error, Rejection};
use crate::gateway::spool::{EditForm, Kept};

// === impl ImageModels ===

impl ImageModels {
    /// Checks a generation request.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, with the parameter at fault.
    pub(crate) fn generation(&self, body: &[u8], received: DateTime<Utc>) -> Result<Job, Rejection> {
        image::generation(self, body, received)
    }

    /// Checks an edit request. Its images were looked at when they came; here they are judged.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, with the parameter at fault, spelled as the caller spelled it.
    pub(crate) fn edit(&self, form: EditForm, received: DateTime<Utc>) -> Result<Job, Error> {
        image::edit(self, form, received)
    }

    /// Checks a request for a response. Of its headers those are kept that an upstream needs.
    ///
    /// # Errors
    ///
    /// The first rule that is broken, with the parameter at fault; or the disk, where it does not give the body back.
    pub(crate) fn response(
        &self,
        body: Kept,
        headers: &HeaderMap,
        received: DateTime<Utc>,
    ) -> Result<ResponseJob, Error> {
        response::response(self, body, headers, received)
    }
}

/// The same with the models of the document, for tests.
#[cfg(test)]
pub(crate) fn generation(body: &[u8], received: DateTime<Utc>) -> Result<Job, Rejection> {
    ImageModels::default().generation(body, received)
}

/// The same with the models of the document, for tests.
#[cfg(test)]
pub(crate) fn edit(form: EditForm, received: DateTime<Utc>) -> Result<Job, Error> {
    ImageModels::default().edit(form, received)
}

/// The same with the models of the document, for tests.
#[cfg(test)]
pub(crate) fn response(body: Kept, headers: &HeaderMap, received: DateTime<Utc>) -> Result<ResponseJob, Error> {
    ImageModels::default().response(body, headers, received)
}
