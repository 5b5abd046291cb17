//! Checks requests for images under the dialects of their caller: adapts the fields, and advises on dialects if the rules
//! refuse them.

use chrono::Utc;
use serde_json::{Map, Value};

use super::{RequestFailure, RequestOptions};
use crate::error::{Error, Rejection};
use crate::gateway::Gateway;
use crate::gateway::config::DialectSet;
use crate::gateway::dialects::{self, Adaptations};
use crate::gateway::keys::Caller;
use crate::gateway::rules::{self, Job};
use crate::gateway::spool::EditForm;

/// Adapts and checks the body of a generation.
///
/// # Errors
///
/// Returns the first broken rule, with the invalid parameter. Its message names the dialects that accept the request, and
/// the failure states the changes that were made before the rule was checked.
pub(super) fn check_generation(
    gateway: &Gateway,
    caller: &Caller,
    options: &RequestOptions,
    body: &[u8],
) -> Result<Job, RequestFailure> {
    let models = gateway.image_models();
    let declared = gateway.dialects(caller);
    let deployment = options.deployment.as_deref();
    let mut fields = rules::read_object(body).map_err(Error::from)?;
    let adaptations = adapt(gateway, declared, deployment, &mut fields);
    match models.check_generation_fields(fields, Utc::now()) {
        Ok(job) => Ok(job.with_adaptations(adaptations)),
        // Only a refused body is read a second time.
        Err(rejection) => {
            let check = |fields| models.check_generation_fields(fields, Utc::now()).map(drop);
            let original = rules::read_object(body).map_err(Error::from)?;
            let rejection = with_advice(gateway, (declared, deployment), original, rejection, check);
            Err(RequestFailure::new(rejection.into(), adaptations.text()))
        }
    }
}

/// Adapts and checks the form of an edit.
///
/// # Errors
///
/// Returns the first broken rule, as [`check_generation`] does, or an error if an upload could not be read back from
/// disk.
pub(super) fn check_edit(
    gateway: &Gateway,
    caller: &Caller,
    options: &RequestOptions,
    mut form: EditForm,
) -> Result<Job, RequestFailure> {
    let models = gateway.image_models();
    let declared = gateway.dialects(caller);
    let deployment = options.deployment.as_deref();
    let (original, is_multipart) = (form.fields.clone(), form.is_multipart);
    let mut adaptations = adapt(gateway, declared, deployment, &mut form.fields);
    if form.mask.as_ref().is_some_and(|mask| dialects::reads_as_mask(declared, &mask.param)) {
        adaptations.note_mask_list();
    }
    match models.check_edit(form, Utc::now()) {
        Ok(job) => Ok(job.with_adaptations(adaptations)),
        Err(Error::Invalid(rejection)) => {
            let check = |fields| models.check_edit_fields(fields, is_multipart);
            let rejection = with_advice(gateway, (declared, deployment), original, rejection, check);
            Err(RequestFailure::new(rejection.into(), adaptations.text()))
        }
        Err(error) => Err(RequestFailure::new(error, adaptations.text())),
    }
}

fn adapt(
    gateway: &Gateway,
    declared: DialectSet,
    deployment: Option<&str>,
    fields: &mut Map<String, Value>,
) -> Adaptations {
    dialects::adapt(declared, deployment, |id| gateway.image_models().find(id), fields)
}

/// Adds to a rejection the dialects that are not declared and accept the request. If no dialects accept the whole
/// request, those count that accept the refused parameter.
fn with_advice(
    gateway: &Gateway,
    (declared, deployment): (DialectSet, Option<&str>),
    mut fields: Map<String, Value>,
    rejection: Rejection,
    check: impl FnOnce(Map<String, Value>) -> Result<(), Rejection>,
) -> Rejection {
    let adaptations = adapt(gateway, DialectSet::all(), deployment, &mut fields);
    let (accepted, field) = match check(fields) {
        Ok(()) => ("request", None),
        Err(other) if other.param == rejection.param => return rejection,
        Err(_) => ("parameter", rejection.param.as_deref()),
    };
    let helpful = adaptations.iter().filter(|adaptation| field.is_none_or(|field| field == adaptation.field));
    let helpful: DialectSet = helpful.map(|adaptation| adaptation.dialect).collect();
    let message = rejection.message + &dialects::advice(helpful.difference(declared), accepted);
    Rejection { message, ..rejection }
}
