//! Checks requests for images and responses under the dialects of their caller: adapts the fields, and advises on dialects
//! if the rules refuse them.

use chrono::Utc;
use http::HeaderMap;
use serde_json::{Map, Value};

use super::gif_conversion;
use super::image_services::ImageServices;
use super::request_failure::{RequestFailure, unreadable_body_error};
use super::request_options::RequestOptions;
use crate::error::{Error, Rejection};
use crate::gateway::admission::CountedJson;
use crate::gateway::config::{Dialect, DialectSet};
use crate::gateway::dialects::{self, Adaptations, ToolChanges};
use crate::gateway::keys::Caller;
use crate::gateway::rules::{self, ImageModels, Job, ResponseJob};
use crate::gateway::spool::{EditForm, SpooledBytes};

/// A part of the path of every parameter of a listed tool.
const TOOLS: &str = "tools[";

/// Adapts and checks the body of a generation.
///
/// # Errors
///
/// Returns the first broken rule, with the invalid parameter. Its message names the dialects that accept the request, and
/// the failure states the changes that were made before the rule was checked.
pub(super) async fn check_generation(
    services: &ImageServices,
    caller: &Caller,
    options: &RequestOptions,
    body: &CountedJson,
) -> Result<Job, RequestFailure> {
    let models = &services.settings.image_models.for_group(caller.group_name());
    let declared = caller.dialects();
    let deployment = options.deployment.as_deref();
    let mut fields = read_object(body).await?;
    let adaptations = adapt(models, declared, deployment, &mut fields);
    match models.check_generation_fields(fields, Utc::now()) {
        Ok(job) => Ok(job.with_adaptations(adaptations)),
        // Only a refused body is read a second time.
        Err(rejection) => {
            let check = |fields| models.check_generation_fields(fields, Utc::now()).map(drop);
            let original = read_object(body).await?;
            let request = AdaptedRequest { declared, deployment, gifs: &[] };
            let rejection = with_advice(models, request, original, rejection, check);
            Err(RequestFailure::new(rejection.into(), adaptations.text()))
        }
    }
}

/// Reads the fields of a body.
async fn read_object(body: &CountedJson) -> Result<Map<String, Value>, Error> {
    Ok(body.parse_with(rules::read_object).await?)
}

/// Adapts and checks the form of an edit.
///
/// # Errors
///
/// Returns the first broken rule, as [`check_generation`] does, or an error if an upload could not be read back from disk
/// or converted.
pub(super) async fn check_edit(
    services: &ImageServices,
    caller: &Caller,
    options: &RequestOptions,
    mut form: EditForm,
) -> Result<Job, RequestFailure> {
    let models = &services.settings.image_models.for_group(caller.group_name());
    let declared = caller.dialects();
    let deployment = options.deployment.as_deref();
    let (original, is_multipart) = (form.fields.clone(), form.is_multipart);
    let mut adaptations = adapt(models, declared, deployment, &mut form.fields);
    if form.mask.as_ref().is_some_and(|mask| dialects::reads_as_mask(declared, &mask.param)) {
        adaptations.note_mask_list();
    }
    let spool = services.spool.for_request(options.admission());
    let mut gifs = gif_conversion::find_gifs(&spool, &form).await?;
    if declared.contains(Dialect::Gif) {
        // A refused field costs no conversion.
        let checked = models.check_edit_fields(form.fields.clone(), is_multipart);
        if checked.is_ok() {
            let converted = gif_conversion::convert_gifs(&spool, &mut form, &gifs, &mut adaptations).await;
            converted.map_err(|error| RequestFailure::new(error, adaptations.text()))?;
        }
        // No advice names a dialect that is declared already.
        gifs.clear();
    }
    match models.check_edit(form, Utc::now()) {
        Ok(job) => Ok(job.with_adaptations(adaptations)),
        Err(Error::Invalid(rejection)) => {
            let rejection = if rejection.param.as_ref().is_some_and(|param| gifs.contains(param)) {
                let advice = dialects::advice([Dialect::Gif].into_iter().collect(), "parameter");
                Rejection { message: rejection.message + &advice, ..rejection }
            } else {
                let check = |fields| models.check_edit_fields(fields, is_multipart);
                with_advice(models, AdaptedRequest { declared, deployment, gifs: &gifs }, original, rejection, check)
            };
            Err(RequestFailure::new(rejection.into(), adaptations.text()))
        }
        Err(error) => Err(RequestFailure::new(error, adaptations.text())),
    }
}

/// Adapts and checks a request for a response, for which its whole body is read. Dialects change only its image tools.
///
/// # Errors
///
/// Returns the first broken rule, as [`check_generation`] does, or an error if the body could not be read back from disk.
pub(super) async fn check_response(
    services: &ImageServices,
    caller: &Caller,
    headers: &HeaderMap,
    body: SpooledBytes,
) -> Result<ResponseJob, RequestFailure> {
    let (body_reader, declared) = (body.clone(), caller.dialects());
    let (models, headers) = (services.settings.image_models.for_group(caller.group_name()), headers.clone());
    let check = move || check_response_body(&models, declared, &headers, body);
    body_reader.read_with(check).await.map_err(|error| unreadable_body_error(&error))?
}

fn check_response_body(
    models: &ImageModels,
    declared: DialectSet,
    headers: &HeaderMap,
    body: SpooledBytes,
) -> Result<ResponseJob, RequestFailure> {
    let (received, mut changes) = (Utc::now(), ToolChanges::new(declared));
    let error = match models.check_response(body.clone(), headers, received, &mut changes) {
        Ok(job) => return Ok(job),
        Err(Error::Invalid(rejection)) if rejection.param.as_deref().is_some_and(|param| param.contains(TOOLS)) => {
            let mut changes = ToolChanges::new(DialectSet::all());
            // Only a refused body is read a second time.
            let checked = models.check_response(body, headers, received, &mut changes).map(drop);
            let helpful = |path: Option<&str>| changes.dialects(path);
            match checked {
                Ok(()) => add_advice(rejection, declared, Ok(()), helpful),
                Err(Error::Invalid(other)) => add_advice(rejection, declared, Err(other), helpful),
                // The body cannot be read again.
                Err(_) => rejection,
            }
            .into()
        }
        Err(error) => error,
    };
    Err(RequestFailure::new(error, changes.text()))
}

fn adapt(
    models: &ImageModels,
    declared: DialectSet,
    deployment: Option<&str>,
    fields: &mut Map<String, Value>,
) -> Adaptations {
    dialects::adapt(declared, deployment, |id| models.find(id), fields)
}

/// The properties of a request on which its adaptation depends.
struct AdaptedRequest<'a> {
    /// The dialects that its caller has declared.
    declared: DialectSet,
    deployment: Option<&'a str>,
    /// The names of GIF files that were not converted.
    gifs: &'a [String],
}

/// Adds to a rejection the dialects that are not declared and accept the request, as [`add_advice`] does.
fn with_advice(
    models: &ImageModels,
    request: AdaptedRequest<'_>,
    mut fields: Map<String, Value>,
    rejection: Rejection,
    check: impl FnOnce(Map<String, Value>) -> Result<(), Rejection>,
) -> Rejection {
    let mut adaptations = adapt(models, DialectSet::all(), request.deployment, &mut fields);
    for param in request.gifs {
        adaptations.note_gif(param);
    }
    add_advice(rejection, request.declared, check(fields), |field| {
        let of_field = adaptations.iter().filter(|adaptation| field.is_none_or(|field| field == adaptation.field));
        of_field.map(|adaptation| adaptation.dialect).collect()
    })
}

/// Adds to a rejection the dialects that are not declared and accept the request. If no dialects accept the whole
/// request, those count that accept the refused parameter. `checked` is the result with every dialect, and `helpful`
/// returns the dialects that then change a field, or the request.
fn add_advice(
    rejection: Rejection,
    declared: DialectSet,
    checked: Result<(), Rejection>,
    helpful: impl Fn(Option<&str>) -> DialectSet,
) -> Rejection {
    let (accepted, field) = match checked {
        Ok(()) => ("request", None),
        Err(other) if other.param == rejection.param => return rejection,
        Err(_) => ("parameter", rejection.param.as_deref()),
    };
    let advice = dialects::advice(helpful(field).difference(declared), accepted);
    Rejection { message: rejection.message + &advice, ..rejection }
}
