//! A request for images: its fields by the table, then what they may be together, then its input images.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::fields;
use super::job::{Job, Material};
use crate::error::{Error, Reason, Rejection};
use crate::gateway::spool::{EditForm, Upload};
use crate::image::{Flaw, Header};
use crate::tables::{Field, IMAGE_EDIT_FIELDS, IMAGE_GENERATION_FIELDS};
use crate::wire::types::ImageGenerationRequest;

/// Fields that the gateway understands and the upstream need not see.
const OURS: &[&str] = &["response_format", "safety_identifier"];
/// Fields that mean something only in a stream.
const STREAM: &[&str] = &["partial_images", "stream"];

/// Checks a generation request.
///
/// # Errors
///
/// The first rule that is broken, with the parameter at fault.
pub(crate) fn generation(body: &[u8], received: DateTime<Utc>) -> Result<Job, Rejection> {
    let mut object = fields::object(body)?;
    let request = settle(IMAGE_GENERATION_FIELDS, &mut object)?;
    Ok(Job::new(request, forward(&object), received, None))
}

/// Checks an edit request. Its images were looked at when they came; here they are judged.
///
/// # Errors
///
/// The first rule that is broken, with the parameter at fault, spelled as the caller spelled it.
pub(crate) fn edit(form: EditForm, received: DateTime<Utc>) -> Result<Job, Error> {
    let mut object = form.fields;
    let request = settle(IMAGE_EDIT_FIELDS, &mut object)?;
    pictures(&form.images, form.mask.as_ref())?;
    let material = Material { images: form.images, mask: form.mask };
    Ok(Job::new(request, forward(&object), received, Some(material)))
}

/// Every rule on fields, alone and together. What an edit and a generation ask for is the same beside the images.
fn settle(table: &'static [Field], object: &mut Map<String, Value>) -> Result<ImageGenerationRequest, Rejection> {
    fidelity("", object)?;
    transparency("", object)?;
    fields::check("", table, object)?;
    let request = typed(object)?;
    combinations(&request)?;
    Ok(request)
}

/// Each image must be one; a mask must fit the first image and say which region to change.
fn pictures(images: &[Upload], mask: Option<&Upload>) -> Result<(), Error> {
    let first = images
        .first()
        .ok_or_else(|| Rejection::new("image", Reason::MissingParameter, "Missing required parameter: 'image'."))?;
    for image in images {
        header(image)?;
    }
    let Some(mask) = mask else { return Ok(()) };
    let (reference, found) = (header(first)?.facts, header(mask)?);
    let refuse = |message: String| Err(Rejection::new(mask.param.clone(), Reason::InvalidValue, message).into());
    if found.facts.format != reference.format {
        let (mask, image) = (found.facts.format, reference.format);
        return refuse(format!("Invalid mask: it must have the format of the first image, {image}, but it is {mask}."));
    }
    if (found.facts.width, found.facts.height) != (reference.width, reference.height) {
        let (width, height) = (found.facts.width, found.facts.height);
        let (wide, high) = (reference.width, reference.height);
        return refuse(format!(
            "Invalid mask: it must have the size of the first image, {wide}x{high}, but it is {width}x{height}."
        ));
    }
    if !found.alpha {
        return refuse(
            "Invalid mask: it must have an alpha channel; its transparent region is the region to change.".to_owned(),
        );
    }
    Ok(())
}

fn header(upload: &Upload) -> Result<Header, Error> {
    upload.header.map_err(|flaw| match flaw {
        // Our own disk failed: that says nothing about the image.
        Flaw::Unreadable(kind) => {
            tracing::error!(%kind, "an upload could not be read back");
            Error::Unavailable
        }
        flaw => Rejection::new(upload.param.clone(), Reason::InvalidValue, format!("Invalid image: {flaw}")).into(),
    })
}

/// The table and the types come from one document, so this cannot fail; if it does, the caller still gets a reason.
fn typed(object: &Map<String, Value>) -> Result<ImageGenerationRequest, Rejection> {
    serde_json::from_value(Value::Object(object.clone()))
        .map_err(|error| Rejection::whole(Reason::InvalidValue, format!("The request is not acceptable: {error}.")))
}

/// `input_fidelity` must be omitted for this model; `null` and an empty text are ways to omit it.
pub(super) fn fidelity(place: &str, object: &mut Map<String, Value>) -> Result<(), Rejection> {
    match object.remove("input_fidelity") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) if text.is_empty() => Ok(()),
        Some(_) => {
            let message = "The model 'gpt-image-2' does not support the 'input_fidelity' parameter.";
            Err(Rejection::new(format!("{place}input_fidelity"), Reason::InvalidValue, message))
        }
    }
}

/// Asked for so often that it deserves its own sentence.
pub(super) fn transparency(place: &str, object: &Map<String, Value>) -> Result<(), Rejection> {
    if object.get("background").and_then(Value::as_str) != Some("transparent") {
        return Ok(());
    }
    let message = "Transparent background is not supported for this model. Supported values are: 'auto' and 'opaque'.";
    Err(Rejection::new(format!("{place}background"), Reason::InvalidValue, message))
}

/// What each field allows by itself is not always allowed together.
fn combinations(request: &ImageGenerationRequest) -> Result<(), Rejection> {
    let stream = request.stream.unwrap_or(false);
    let count = request.n.map_or(1, |n| n.get());
    let partials = request.partial_images.map_or(0, |partials| partials.get());
    let compression = request.output_compression.map_or(100, |compression| compression.get());
    let format = request.output_format.map(|format| format.to_string());
    let (param, message) = if stream && count > 1 {
        ("n", "Streaming is only supported with n=1.")
    } else if partials > 0 && !stream {
        ("partial_images", "Partial images are only supported with 'stream' set to true.")
    } else {
        return lossless("", format.as_deref(), compression);
    };
    Err(Rejection::new(param, Reason::InvalidValue, message))
}

/// PNG knows no compression that takes something away.
pub(super) fn lossless(place: &str, format: Option<&str>, compression: i64) -> Result<(), Rejection> {
    if compression == 100 || format.is_some_and(|format| format != "png") {
        return Ok(());
    }
    let message = "Compression below 100 is only supported with 'output_format' 'jpeg' or 'webp'.";
    Err(Rejection::new(format!("{place}output_compression"), Reason::InvalidValue, message))
}

/// The request as it goes upstream: the caller's own fields, checked, without what only the gateway understands.
fn forward(object: &Map<String, Value>) -> Map<String, Value> {
    let mut forward = object.clone();
    let successor = forward.get("safety_identifier").cloned();
    let stream = forward.get("stream") == Some(&Value::Bool(true));
    forward.retain(|name, _| !OURS.contains(&name.as_str()) && (stream || !STREAM.contains(&name.as_str())));
    if let Some(identifier) = successor {
        forward.entry("user").or_insert(identifier);
    }
    forward
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with(patch: Value) -> Value {
        let mut base = json!({"model": "gpt-image-2", "prompt": "red"});
        for (key, value) in patch.as_object().expect("an object") {
            base[key] = value.clone();
        }
        base
    }

    #[track_caller]
    fn refused(patch: Value, param: &str, reason: Reason) {
        let body = with(patch).to_string();
        let rejection = generation(body.as_bytes(), Utc::now()).expect_err(&body);
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
        generation(body.as_bytes(), Utc::now()).unwrap_or_else(|rejection| panic!("{body}: {rejection:?}"))
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
        refused(json!({"n": 0}), "n", Reason::IntegerBelowMin);
        refused(json!({"n": 11}), "n", Reason::IntegerAboveMax);
        refused(json!({"n": "2"}), "n", Reason::InvalidType);
        refused(json!({"n": 2.5}), "n", Reason::InvalidType);
        refused(json!({"n": true}), "n", Reason::InvalidType);
        refused(json!({"n": 1e300}), "n", Reason::IntegerAboveMax);
        refused(json!({"quality": "hd"}), "quality", Reason::InvalidValue);
        refused(json!({"size": "1000x1000"}), "size", Reason::InvalidValue);
        refused(json!({"prompt": " \n"}), "prompt", Reason::StringBelowMin);
        refused(json!({"prompt": "x".repeat(32_001)}), "prompt", Reason::StringAboveMax);
        refused(json!({"model": null}), "model", Reason::InvalidType);
        refused(json!({"model": "dall-e-3"}), "model", Reason::InvalidValue);
        refused(json!({"style": "vivid"}), "style", Reason::UnknownParameter);
        refused(json!({"response_format": "url"}), "response_format", Reason::InvalidValue);
        refused(json!({"background": "transparent"}), "background", Reason::InvalidValue);
        refused(json!({"input_fidelity": "high"}), "input_fidelity", Reason::InvalidValue);
    }

    #[test]
    fn incompatible_fields_are_named() {
        refused(json!({"stream": true, "n": 2}), "n", Reason::InvalidValue);
        refused(json!({"partial_images": 1}), "partial_images", Reason::InvalidValue);
        refused(json!({"output_compression": 99}), "output_compression", Reason::InvalidValue);
        refused(json!({"output_compression": 99, "output_format": "png"}), "output_compression", Reason::InvalidValue);
    }

    #[test]
    fn what_is_missing_is_named_and_what_is_no_object_is_refused() {
        let rejection = generation(br#"{"model":"gpt-image-2"}"#, Utc::now()).expect_err("no prompt");
        assert_eq!((rejection.param.as_deref(), rejection.reason), (Some("prompt"), Some(Reason::MissingParameter)));
        for body in ["", "[]", "1", "{", "{\"model\":\"gpt-image-2\",\"prompt\":\"\\ud800\"}", "null"] {
            let rejection = generation(body.as_bytes(), Utc::now()).expect_err(body);
            assert_eq!((rejection.param, rejection.reason), (None, Some(Reason::InvalidJson)), "{body}");
        }
    }

    #[test]
    fn the_upstream_sees_the_callers_fields_and_none_of_ours() {
        let job = accepted(
            json!({"n": 2.0, "size": "auto", "response_format": "b64_json", "safety_identifier": "s", "quality": null}),
        );
        let forward = Value::Object(job.fields().clone());
        assert_eq!(forward, json!({"model": "gpt-image-2", "prompt": "red", "n": 2, "size": "auto", "user": "s"}));
        assert_eq!(job.end_user(), Some("s"));
    }
}
