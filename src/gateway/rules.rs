//! Turns a request into a `Job` or `ResponseJob`, or rejects it. A rejection names the invalid parameter, unless the
//! body as a whole is invalid. Other modules use the checks of single fields for other requests, such as those of the
//! admin API.
//!
//! It has no clock, socket or store; the only files that it reads are spooled bodies and uploads. The limits of each
//! field come from the API document, as a table ([`fields`]). The capabilities of each image model are another table,
//! to which the operator may add models ([`models`]). The rules on combinations of fields are code ([`image`],
//! [`response`]). A rejected request has cost nothing upstream.

mod added_fields;
mod fields;
mod image;
mod job;
mod model_parameters;
mod models;
mod response;
mod task;
mod unique_members;
mod upstream_fields;

pub(crate) use added_fields::AddedNames;
pub(crate) use fields::{
    check as check_fields, check_duplicates, is_unserved, missing_parameter, parse_object as read_object, type_name,
    wrong_type,
};
pub(crate) use job::{EditInput, Job};
pub(crate) use model_parameters::operation_names;
pub(crate) use models::ImageModels;
pub(crate) use response::{
    ContextValue, ImageTool, ResponseJob, ServingAccounts, StoredId, StoredKind, TextScope, TextWindows, UnjudgedPart,
};
pub(crate) use task::{SharedTask, TaskRef};

use chrono::{DateTime, Utc};
use http::HeaderMap;
use serde_json::{Map, Value};

use crate::error::{Error, Rejection};
use crate::gateway::dialects::ToolChanges;
use crate::gateway::spool::{EditForm, SpooledBytes};

// === impl ImageModels ===

impl ImageModels {
    /// Checks the fields of a generation request.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule, with the invalid parameter.
    pub(crate) fn check_generation_fields(
        &self,
        fields: Map<String, Value>,
        received: DateTime<Utc>,
    ) -> Result<Job, Rejection> {
        image::check_generation(self, fields, received)
    }

    /// Checks the fields of an edit request, without its images.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule, with the invalid parameter.
    pub(crate) fn check_edit_fields(
        &self,
        mut fields: Map<String, Value>,
        is_multipart: bool,
    ) -> Result<(), Rejection> {
        image::check_edit_fields(self, &mut fields, is_multipart).map(drop)
    }

    /// Checks a generation request, for tests.
    #[cfg(test)]
    pub(crate) fn check_generation(&self, body: &[u8], received: DateTime<Utc>) -> Result<Job, Rejection> {
        self.check_generation_fields(read_object(body)?, received)
    }

    /// Checks an edit request. The file headers of its images were read during the upload; this method checks them.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule, with the name of the invalid parameter as the caller spelled it, or an error if
    /// an upload could not be read back from disk.
    pub(crate) fn check_edit(&self, form: EditForm, received: DateTime<Utc>) -> Result<Job, Error> {
        image::check_edit(self, form, received)
    }

    /// Checks a request for a response. The job keeps only those headers that are forwarded upstream.
    ///
    /// Image tools are adapted as the dialects of `changes` demand, which gets the changes, also those before a rule was
    /// broken.
    ///
    /// # Errors
    ///
    /// Returns the first broken rule, with the invalid parameter, or an error if the body cannot be read from disk.
    pub(crate) fn check_response(
        &self,
        body: SpooledBytes,
        headers: &HeaderMap,
        received: DateTime<Utc>,
        changes: &mut ToolChanges,
    ) -> Result<ResponseJob, Error> {
        response::check_response(self, body, headers, received, changes)
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
    ImageModels::default().check_response(body, headers, received, &mut ToolChanges::default())
}
