//! Checks a request for images: each field against the table, the combinations of fields, and the input images.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::job::{EditInput, Job};
use super::models::{self, ImageModels};
use super::{added_fields, fields};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::config::{ImageModelSpec, ModelAlias};
use crate::gateway::spool::{EditForm, ImageUpload};
use crate::image::{ImageFileError, ImageHeader};
use crate::tables::{Field, IMAGE_EDIT_FIELDS, IMAGE_GENERATION_FIELDS};
use crate::wire::types::ImageGenerationRequest;

/// Fields that are not sent upstream. The value of `safety_identifier` is sent as `user`.
const UNFORWARDED_FIELDS: &[&str] = &["response_format", "safety_identifier"];
/// Fields that are sent upstream only if the caller asks for a stream.
const STREAM_FIELDS: &[&str] = &["partial_images", "stream"];
const TRANSPARENT: &str = "transparent";

/// Checks a generation request.
pub(super) fn check_generation(
    models: &ImageModels,
    mut object: Map<String, Value>,
    received: DateTime<Utc>,
) -> Result<Job, Rejection> {
    let checked = check_field_rules(models, RequestForm::Generation, &mut object)?;
    let fields = upstream_fields(&object, checked.added_fields);
    let request = read_request(object)?;
    Ok(Job::new(checked.model, request, fields, received, None).with_model_alias(checked.alias))
}

/// Checks an edit request. The file headers of its images were read during the upload; this function checks them.
pub(super) fn check_edit(models: &ImageModels, form: EditForm, received: DateTime<Utc>) -> Result<Job, Error> {
    let mut object = form.fields;
    let checked = check_edit_fields(models, &mut object, form.is_multipart)?;
    added_fields::check_files(&checked.model, &form.files)?;
    check_input_images(&form.images, form.mask.as_ref())?;
    let input = EditInput { images: form.images, mask: form.mask, files: form.files };
    let fields = upstream_fields(&object, checked.added_fields);
    let request = read_request(object)?;
    Ok(Job::new(checked.model, request, fields, received, Some(input)).with_model_alias(checked.alias))
}

/// Checks the fields of an edit request, without its images.
pub(super) fn check_edit_fields(
    models: &ImageModels,
    object: &mut Map<String, Value>,
    is_multipart: bool,
) -> Result<CheckedFields, Rejection> {
    let form = if is_multipart { RequestForm::MultipartEdit } else { RequestForm::JsonEdit };
    check_field_rules(models, form, object)
}

/// The results of the rules on fields.
pub(super) struct CheckedFields {
    model: Arc<ImageModelSpec>,
    /// The name that the request has for the model, if it is not the id.
    alias: Option<ModelAlias>,
    /// The fields that only this model has.
    added_fields: Map<String, Value>,
}

/// The operation of a request, and for an edit the form of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestForm {
    Generation,
    JsonEdit,
    MultipartEdit,
}

/// Applies every rule on single fields and on combinations of fields, with the id in place of another name for the model.
/// The rules for edits and generations differ only in the table.
fn check_field_rules(
    models: &ImageModels,
    form: RequestForm,
    object: &mut Map<String, Value>,
) -> Result<CheckedFields, Rejection> {
    let is_edit = form != RequestForm::Generation;
    let table: &'static [Field] = if is_edit { IMAGE_EDIT_FIELDS } else { IMAGE_GENERATION_FIELDS };
    let alias = replace_alias(models, object);
    let model = models.model_or_default(object.get("model").and_then(Value::as_str));
    let added_fields = added_fields::take_fields(&model, table, object, is_edit, form == RequestForm::MultipartEdit)?;
    fields::remove_unserved_nulls(object);
    remove_input_fidelity("", &model, object)?;
    check_transparency("", &model, object)?;
    fields::check_restricted("", table, |field| models.restriction(&model, field), object)?;
    check_stream_combinations(&model, object)?;
    check_format_combinations("", &model, object)?;
    Ok(CheckedFields { model, alias, added_fields })
}

/// Reads fields that passed every rule as the request of the document. The fields of an edit are those of a generation.
fn read_request(fields: Map<String, Value>) -> Result<ImageGenerationRequest, Rejection> {
    serde_json::from_value(Value::Object(fields)).map_err(|error| {
        tracing::error!(%error, "a request that passed the rules is not that of the document");
        Rejection::for_body(RejectionReason::InvalidValue, format!("The request cannot be read: {error}."))
    })
}

/// Replaces another name for a model by the id of the model. Returns the change.
pub(super) fn replace_alias(models: &ImageModels, object: &mut Map<String, Value>) -> Option<ModelAlias> {
    let alias = models.alias(object.get("model")?.as_str()?)?;
    object.insert("model".to_owned(), alias.model.clone().into());
    Some(alias.clone())
}

/// Checks the input images: each must be an image, and a mask must have the format and size of the first image and an
/// alpha channel.
fn check_input_images(images: &[ImageUpload], mask: Option<&ImageUpload>) -> Result<(), Error> {
    let first = images.first().ok_or_else(|| {
        Rejection::new("image", RejectionReason::MissingParameter, "Missing required parameter: 'image'.")
    })?;
    for image in images {
        image_header(image)?;
    }
    let Some(mask) = mask else { return Ok(()) };
    let (reference, mask_header) = (image_header(first)?.properties, image_header(mask)?);
    let refuse =
        |message: String| Err(Rejection::new(mask.param.clone(), RejectionReason::InvalidValue, message).into());
    if mask_header.properties.format != reference.format {
        let (mask, image) = (mask_header.properties.format, reference.format);
        return refuse(format!("Invalid mask: it must have the format of the first image, {image}, but it is {mask}."));
    }
    if (mask_header.properties.width, mask_header.properties.height) != (reference.width, reference.height) {
        let expected = format!("{}x{}", reference.width, reference.height);
        let found = format!("{}x{}", mask_header.properties.width, mask_header.properties.height);
        return refuse(format!(
            "Invalid mask: it must have the size of the first image, {expected}, but it is {found}."
        ));
    }
    if !mask_header.has_alpha {
        return refuse(
            "Invalid mask: it must have an alpha channel; its transparent region is the region to change.".to_owned(),
        );
    }
    Ok(())
}

fn image_header(upload: &ImageUpload) -> Result<ImageHeader, Error> {
    upload.header.map_err(|error| match error {
        // The gateway's disk failed, which does not make the image invalid.
        ImageFileError::Unreadable(kind) => {
            tracing::error!(%kind, "an upload could not be read back from the spool");
            Error::Unavailable
        }
        error => Rejection::new(upload.param.clone(), RejectionReason::InvalidValue, format!("Invalid image: {error}"))
            .into(),
    })
}

/// Removes `input_fidelity` if its value is `null` or "". Rejects any other value if the model does not support the
/// field; no documented model does.
pub(super) fn remove_input_fidelity(
    prefix: &str,
    model: &ImageModelSpec,
    object: &mut Map<String, Value>,
) -> Result<(), Rejection> {
    match object.remove("input_fidelity") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) if text.is_empty() => Ok(()),
        Some(value) if !model.fidelities.is_empty() => {
            object.insert("input_fidelity".to_owned(), value);
            Ok(())
        }
        Some(_) => {
            let message = format!("The model '{}' does not support the 'input_fidelity' parameter.", model.name);
            Err(Rejection::new(format!("{prefix}input_fidelity"), RejectionReason::InvalidValue, message))
        }
    }
}

/// Rejects a transparent background, unless the model supports it. Such backgrounds are requested often, so their
/// rejection has a message of its own.
pub(super) fn check_transparency(
    prefix: &str,
    model: &ImageModelSpec,
    object: &Map<String, Value>,
) -> Result<(), Rejection> {
    let is_transparent = object.get("background").and_then(Value::as_str) == Some(TRANSPARENT);
    if !is_transparent || model.backgrounds.iter().any(|word| word == TRANSPARENT) {
        return Ok(());
    }
    let message = format!(
        "Transparent background is not supported for this model. Supported values are: {}.",
        models::supported_backgrounds_text(model)
    );
    Err(Rejection::new(format!("{prefix}background"), RejectionReason::InvalidValue, message))
}

/// Rejects a stream of a model that has none, several images in a stream, and intermediate images without a stream.
fn check_stream_combinations(model: &ImageModelSpec, object: &Map<String, Value>) -> Result<(), Rejection> {
    let number = |name: &str| object.get(name).and_then(Value::as_i64);
    let is_stream = object.get("stream") == Some(&Value::Bool(true));
    let (param, message) = if is_stream && !model.can_stream {
        ("stream", format!("The model '{}' does not support streaming.", model.name))
    } else if is_stream && number("n").unwrap_or(1) > 1 {
        ("n", "Streaming is only supported with n=1.".to_owned())
    } else if number("partial_images").unwrap_or(0) > 0 && !is_stream {
        ("partial_images", "Partial images are only supported with 'stream' set to true.".to_owned())
    } else {
        return Ok(());
    };
    Err(Rejection::new(param, RejectionReason::InvalidValue, message))
}

/// Rejects values that the model or the file format does not support: PNG has no lossy compression, and JPEG has no
/// transparency.
pub(super) fn check_format_combinations(
    prefix: &str,
    model: &ImageModelSpec,
    object: &Map<String, Value>,
) -> Result<(), Rejection> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let compression = object.get("output_compression").and_then(Value::as_i64).unwrap_or(100);
    let (param, message) = if compression != 100 && !model.compression {
        ("output_compression", format!("The model '{}' does not support compression below 100.", model.name))
    } else if compression != 100 && text("output_format").is_none_or(|format| matches!(format, "png" | "gif")) {
        let message = "Compression below 100 is only supported with 'output_format' 'jpeg' or 'webp'.";
        ("output_compression", message.to_owned())
    } else if text("background") == Some(TRANSPARENT) && text("output_format") == Some("jpeg") {
        let message = "Transparent background is only supported with 'output_format' 'png' or 'webp'.";
        ("background", message.to_owned())
    } else {
        return Ok(());
    };
    Err(Rejection::new(format!("{prefix}{param}"), RejectionReason::InvalidValue, message))
}

/// Returns the fields that are sent upstream: the checked fields of the caller, without [`UNFORWARDED_FIELDS`], and without
/// [`STREAM_FIELDS`] if the caller does not ask for a stream; and the fields that only the model has.
fn upstream_fields(object: &Map<String, Value>, added: Map<String, Value>) -> Map<String, Value> {
    let mut forward = object.clone();
    // `safety_identifier` has replaced `user` in the API; upstreams may know only `user`.
    let safety_identifier = forward.get("safety_identifier").cloned();
    let is_stream = forward.get("stream") == Some(&Value::Bool(true));
    forward.retain(|name, _| {
        !UNFORWARDED_FIELDS.contains(&name.as_str()) && (is_stream || !STREAM_FIELDS.contains(&name.as_str()))
    });
    if let Some(identifier) = safety_identifier {
        forward.insert("user".to_owned(), identifier);
    }
    forward.extend(added);
    forward
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::rules::check_generation;
    use serde_json::json;

    fn body_with(patch: Value) -> Value {
        let mut base = json!({"model": "gpt-image-2", "prompt": "red"});
        for (key, value) in patch.as_object().expect("an object") {
            base[key] = value.clone();
        }
        base
    }

    #[track_caller]
    fn check_refused(patch: Value, param: &str, reason: RejectionReason) {
        let body = body_with(patch).to_string();
        let rejection = check_generation(body.as_bytes(), Utc::now()).expect_err(&body);
        assert_eq!(
            (rejection.param.as_deref(), rejection.reason),
            (Some(param), Some(reason)),
            "{body}: {}",
            rejection.message
        );
    }

    #[track_caller]
    fn check_accepted(patch: Value) -> Job {
        let body = body_with(patch).to_string();
        check_generation(body.as_bytes(), Utc::now()).unwrap_or_else(|rejection| panic!("{body}: {rejection:?}"))
    }

    /// `tests/cases/images.json` has the values that are refused; it cannot see the reason.
    #[test]
    fn a_rejection_has_a_reason() {
        check_refused(json!({"n": 0}), "n", RejectionReason::IntegerBelowMin);
        check_refused(json!({"n": 11}), "n", RejectionReason::IntegerAboveMax);
        check_refused(json!({"n": 1e300}), "n", RejectionReason::IntegerAboveMax);
        check_refused(json!({"n": 2.5}), "n", RejectionReason::InvalidType);
        check_refused(json!({"quality": "hd"}), "quality", RejectionReason::InvalidValue);
        check_refused(json!({"stream": true, "n": 2}), "n", RejectionReason::InvalidValue);
        check_refused(json!({"prompt": " \n"}), "prompt", RejectionReason::StringBelowMin);
        check_refused(json!({"prompt": "x".repeat(32_001)}), "prompt", RejectionReason::StringAboveMax);
        check_refused(json!({"model": null}), "model", RejectionReason::MissingParameter);
        check_refused(json!({"style": "vivid"}), "style", RejectionReason::UnknownParameter);
        let rejection = check_generation(b"[]", Utc::now()).expect_err("no object");
        assert_eq!((rejection.param, rejection.reason), (None, Some(RejectionReason::InvalidJson)));
    }

    #[test]
    fn safety_identifier_has_precedence_over_user() {
        let job = check_accepted(json!({"user": "u", "safety_identifier": "s"}));
        assert_eq!((job.end_user(), &job.upstream_fields()["user"]), (Some("s"), &json!("s")));
        assert_eq!(check_accepted(json!({"user": "u", "safety_identifier": null})).end_user(), Some("u"));
    }

    #[test]
    fn the_upstream_gets_no_fields_of_the_gateway() {
        let job = check_accepted(
            json!({"n": 2.0, "size": "auto", "response_format": "b64_json", "safety_identifier": "s", "quality": null}),
        );
        let forward = Value::Object(job.upstream_fields().clone());
        assert_eq!(forward, json!({"model": "gpt-image-2", "prompt": "red", "n": 2, "size": "auto", "user": "s"}));
        assert_eq!(job.end_user(), Some("s"));
    }
}
