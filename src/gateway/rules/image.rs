//! Checks a request for images: its fields by the table, then their combinations, then its input images.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::fields;
use super::job::{EditInput, Job};
use super::models::{self, ImageModels};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::config::ImageModelSpec;
use crate::gateway::spool::{EditForm, ImageUpload};
use crate::image::{ImageFileError, ImageHeader};
use crate::tables::{Field, IMAGE_EDIT_FIELDS, IMAGE_GENERATION_FIELDS};

/// Fields that the gateway understands and the upstream does not need.
const GATEWAY_FIELDS: &[&str] = &["response_format", "safety_identifier"];
/// Fields that have a meaning only in a stream.
const STREAM_FIELDS: &[&str] = &["partial_images", "stream"];
const TRANSPARENT: &str = "transparent";

/// Checks a generation request.
pub(super) fn check_generation(models: &ImageModels, body: &[u8], received: DateTime<Utc>) -> Result<Job, Rejection> {
    let mut object = fields::parse_object(body)?;
    let model = check_field_rules(models, IMAGE_GENERATION_FIELDS, &mut object)?;
    Ok(Job::new(model, &object, upstream_fields(&object), received, None))
}

/// Checks an edit request. Its images were read when they came; here they are checked.
pub(super) fn check_edit(models: &ImageModels, form: EditForm, received: DateTime<Utc>) -> Result<Job, Error> {
    let mut object = form.fields;
    let model = check_field_rules(models, IMAGE_EDIT_FIELDS, &mut object)?;
    check_input_images(&form.images, form.mask.as_ref())?;
    let input = EditInput { images: form.images, mask: form.mask };
    Ok(Job::new(model, &object, upstream_fields(&object), received, Some(input)))
}

/// Applies every rule on fields, alone and together. An edit and a generation differ only in the images.
fn check_field_rules(
    models: &ImageModels,
    table: &'static [Field],
    object: &mut Map<String, Value>,
) -> Result<Arc<ImageModelSpec>, Rejection> {
    let model = models.model_or_default(object.get("model").and_then(Value::as_str));
    remove_input_fidelity("", &model, object)?;
    check_transparency("", &model, object)?;
    fields::check_restricted("", table, |field| models.restriction(&model, field), object)?;
    check_stream_combinations(object)?;
    check_format_combinations("", &model, object)?;
    Ok(model)
}

/// Checks the input images: each must be an image; a mask must fit the first one and mark the region to change.
fn check_input_images(images: &[ImageUpload], mask: Option<&ImageUpload>) -> Result<(), Error> {
    let first = images.first().ok_or_else(|| {
        Rejection::new("image", RejectionReason::MissingParameter, "Missing required parameter: 'image'.")
    })?;
    for image in images {
        image_header(image)?;
    }
    let Some(mask) = mask else { return Ok(()) };
    let (reference, found) = (image_header(first)?.properties, image_header(mask)?);
    let refuse =
        |message: String| Err(Rejection::new(mask.param.clone(), RejectionReason::InvalidValue, message).into());
    if found.properties.format != reference.format {
        let (mask, image) = (found.properties.format, reference.format);
        return refuse(format!("Invalid mask: it must have the format of the first image, {image}, but it is {mask}."));
    }
    if (found.properties.width, found.properties.height) != (reference.width, reference.height) {
        let (width, height) = (found.properties.width, found.properties.height);
        let (wide, high) = (reference.width, reference.height);
        return refuse(format!(
            "Invalid mask: it must have the size of the first image, {wide}x{high}, but it is {width}x{height}."
        ));
    }
    if !found.has_alpha {
        return refuse(
            "Invalid mask: it must have an alpha channel; its transparent region is the region to change.".to_owned(),
        );
    }
    Ok(())
}

fn image_header(upload: &ImageUpload) -> Result<ImageHeader, Error> {
    upload.header.map_err(|flaw| match flaw {
        // Our own disk failed, which says nothing about the image.
        ImageFileError::Unreadable(kind) => {
            tracing::error!(%kind, "an upload could not be read back from the spool");
            Error::Unavailable
        }
        flaw => {
            Rejection::new(upload.param.clone(), RejectionReason::InvalidValue, format!("Invalid image: {flaw}")).into()
        }
    })
}

/// Removes `input_fidelity`, which must be omitted; `null` and an empty text are ways to omit it.
pub(super) fn remove_input_fidelity(
    place: &str,
    model: &ImageModelSpec,
    object: &mut Map<String, Value>,
) -> Result<(), Rejection> {
    match object.remove("input_fidelity") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) if text.is_empty() => Ok(()),
        Some(_) => {
            let message = format!("The model '{}' does not support the 'input_fidelity' parameter.", model.name);
            Err(Rejection::new(format!("{place}input_fidelity"), RejectionReason::InvalidValue, message))
        }
    }
}

/// Rejects a transparent background. It is requested so often that it has a message of its own.
pub(super) fn check_transparency(
    place: &str,
    model: &ImageModelSpec,
    object: &Map<String, Value>,
) -> Result<(), Rejection> {
    let asked = object.get("background").and_then(Value::as_str) == Some(TRANSPARENT);
    if !asked || model.backgrounds.iter().any(|word| word == TRANSPARENT) {
        return Ok(());
    }
    let message = format!(
        "Transparent background is not supported for this model. Supported values are: {}.",
        models::background_list(model)
    );
    Err(Rejection::new(format!("{place}background"), RejectionReason::InvalidValue, message))
}

/// Rejects fields that are allowed alone but not together with streaming, or not without it.
fn check_stream_combinations(object: &Map<String, Value>) -> Result<(), Rejection> {
    let number = |name: &str| object.get(name).and_then(Value::as_i64);
    let stream = object.get("stream") == Some(&Value::Bool(true));
    let (param, message) = if stream && number("n").unwrap_or(1) > 1 {
        ("n", "Streaming is only supported with n=1.")
    } else if number("partial_images").unwrap_or(0) > 0 && !stream {
        ("partial_images", "Partial images are only supported with 'stream' set to true.")
    } else {
        return Ok(());
    };
    Err(Rejection::new(param, RejectionReason::InvalidValue, message))
}

/// Rejects fields that do not fit the format: PNG has no lossy compression, and JPEG no transparency.
pub(super) fn check_format_combinations(
    place: &str,
    model: &ImageModelSpec,
    object: &Map<String, Value>,
) -> Result<(), Rejection> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    let compression = object.get("output_compression").and_then(Value::as_i64).unwrap_or(100);
    let (param, message) = if compression != 100 && !model.compression {
        ("output_compression", format!("The model '{}' does not support compression below 100.", model.name))
    } else if compression != 100 && text("output_format").is_none_or(|format| format == "png") {
        let message = "Compression below 100 is only supported with 'output_format' 'jpeg' or 'webp'.";
        ("output_compression", message.to_owned())
    } else if text("background") == Some(TRANSPARENT) && text("output_format") == Some("jpeg") {
        let message = "Transparent background is only supported with 'output_format' 'png' or 'webp'.";
        ("background", message.to_owned())
    } else {
        return Ok(());
    };
    Err(Rejection::new(format!("{place}{param}"), RejectionReason::InvalidValue, message))
}

/// Returns the fields that go upstream: the caller's own, checked, without those that only the gateway understands.
fn upstream_fields(object: &Map<String, Value>) -> Map<String, Value> {
    let mut forward = object.clone();
    let successor = forward.get("safety_identifier").cloned();
    let stream = forward.get("stream") == Some(&Value::Bool(true));
    forward.retain(|name, _| {
        !GATEWAY_FIELDS.contains(&name.as_str()) && (stream || !STREAM_FIELDS.contains(&name.as_str()))
    });
    if let Some(identifier) = successor {
        forward.insert("user".to_owned(), identifier);
    }
    forward
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::rules::check_generation;
    use serde_json::json;

    fn with(patch: Value) -> Value {
        let mut base = json!({"model": "gpt-image-2", "prompt": "red"});
        for (key, value) in patch.as_object().expect("an object") {
            base[key] = value.clone();
        }
        base
    }

    #[track_caller]
    fn refused(patch: Value, param: &str, reason: RejectionReason) {
        let body = with(patch).to_string();
        let rejection = check_generation(body.as_bytes(), Utc::now()).expect_err(&body);
        assert_eq!(
            (rejection.param.as_deref(), rejection.reason),
            (Some(param), Some(reason)),
            "{body}: {}",
            rejection.message
        );
    }

    #[track_caller]
    fn accepted(patch: Value) -> Job {
        let body = with(patch).to_string();
        check_generation(body.as_bytes(), Utc::now()).unwrap_or_else(|rejection| panic!("{body}: {rejection:?}"))
    }

    #[test]
    fn every_field_at_its_bounds_is_accepted() {
        accepted(json!({}));
        accepted(
            json!({"n": 10, "size": "3840x2160", "quality": "high", "output_format": "webp", "output_compression": 0, "background": "opaque", "moderation": "low", "user": "u"}),
        );
        accepted(json!({"n": 1.0, "output_compression": 1e2, "stream": true, "partial_images": 3}));
        accepted(json!({"response_format": "b64_json", "input_fidelity": null, "safety_identifier": "s"}));
        accepted(
            json!({"n": null, "size": null, "quality": null, "stream": null, "partial_images": null, "user": null}),
        );
    }

    #[test]
    fn each_field_beyond_its_bounds_is_named() {
        refused(json!({"n": 0}), "n", RejectionReason::IntegerBelowMin);
        refused(json!({"n": 11}), "n", RejectionReason::IntegerAboveMax);
        refused(json!({"n": "2"}), "n", RejectionReason::InvalidType);
        refused(json!({"n": 2.5}), "n", RejectionReason::InvalidType);
        refused(json!({"n": true}), "n", RejectionReason::InvalidType);
        refused(json!({"n": 1e300}), "n", RejectionReason::IntegerAboveMax);
        refused(json!({"quality": "hd"}), "quality", RejectionReason::InvalidValue);
        refused(json!({"size": "1000x1000"}), "size", RejectionReason::InvalidValue);
        refused(json!({"prompt": " \n"}), "prompt", RejectionReason::StringBelowMin);
        refused(json!({"prompt": "x".repeat(32_001)}), "prompt", RejectionReason::StringAboveMax);
        refused(json!({"model": null}), "model", RejectionReason::InvalidType);
        refused(json!({"model": "dall-e-3"}), "model", RejectionReason::InvalidValue);
        refused(json!({"style": "vivid"}), "style", RejectionReason::UnknownParameter);
        refused(json!({"response_format": "url"}), "response_format", RejectionReason::InvalidValue);
        refused(json!({"background": "transparent"}), "background", RejectionReason::InvalidValue);
        refused(json!({"input_fidelity": "high"}), "input_fidelity", RejectionReason::InvalidValue);
    }

    #[test]
    fn incompatible_fields_are_named() {
        refused(json!({"stream": true, "n": 2}), "n", RejectionReason::InvalidValue);
        refused(json!({"partial_images": 1}), "partial_images", RejectionReason::InvalidValue);
        refused(json!({"output_compression": 99}), "output_compression", RejectionReason::InvalidValue);
        refused(
            json!({"output_compression": 99, "output_format": "png"}),
            "output_compression",
            RejectionReason::InvalidValue,
        );
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_no_object_is_refused() {
        let rejection = check_generation(br#"{"model":"gpt-image-2"}"#, Utc::now()).expect_err("no prompt");
        assert_eq!(
            (rejection.param.as_deref(), rejection.reason),
            (Some("prompt"), Some(RejectionReason::MissingParameter))
        );
        for body in ["", "[]", "1", "{", "{\"model\":\"gpt-image-2\",\"prompt\":\"\\ud800\"}", "null"] {
            let rejection = check_generation(body.as_bytes(), Utc::now()).expect_err(body);
            assert_eq!((rejection.param, rejection.reason), (None, Some(RejectionReason::InvalidJson)), "{body}");
        }
    }

    #[test]
    fn the_newer_name_of_the_end_user_wins() {
        let job = accepted(json!({"user": "u", "safety_identifier": "s"}));
        assert_eq!((job.end_user(), &job.upstream_fields()["user"]), (Some("s"), &json!("s")));
        assert_eq!(accepted(json!({"user": "u", "safety_identifier": null})).end_user(), Some("u"));
    }

    #[test]
    fn the_upstream_sees_the_callers_fields_and_none_of_ours() {
        let job = accepted(
            json!({"n": 2.0, "size": "auto", "response_format": "b64_json", "safety_identifier": "s", "quality": null}),
        );
        let forward = Value::Object(job.upstream_fields().clone());
        assert_eq!(forward, json!({"model": "gpt-image-2", "prompt": "red", "n": 2, "size": "auto", "user": "s"}));
        assert_eq!(job.end_user(), Some("s"));
    }
}
