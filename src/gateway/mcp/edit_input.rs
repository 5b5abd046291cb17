//! The input images of an edit: earlier images of the same key, or small files in the arguments.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::McpCaller;
use super::arguments::{ToolArguments, invalid_type};
use super::image_id::ImageId;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::flow;
use crate::gateway::spool::{ImageUpload, Spool, SpooledFile};
use crate::tables::{MAX_EDIT_IMAGES, MAX_UPLOAD_IMAGE_BYTES};

/// Takes the images out of the arguments, and stores them in the spool. Returns them with the mask.
///
/// # Errors
///
/// Returns 400 if a text is neither the id of a kept image of this key nor base64, 413 for an image that is too large,
/// and 503 if the spool or the store fails.
pub(super) async fn take_images(
    caller: &McpCaller,
    arguments: &mut ToolArguments,
) -> Result<(Vec<ImageUpload>, Option<ImageUpload>), Error> {
    let texts = match arguments.take("images") {
        Some(Value::Array(values)) => values,
        Some(text @ Value::String(_)) => vec![text],
        Some(_) => return Err(invalid_type("images", "an array of strings").into()),
        None => {
            let message = "'images' is missing: give the ids of earlier images, or base64.";
            return Err(Rejection::new("images", RejectionReason::MissingParameter, message).into());
        }
    };
    if texts.is_empty() || texts.len() as u64 > MAX_EDIT_IMAGES {
        let message = format!("'images' must have 1 to {MAX_EDIT_IMAGES} images.");
        return Err(Rejection::new("images", RejectionReason::InvalidValue, message).into());
    }
    let mut images = Vec::with_capacity(texts.len());
    for (index, text) in texts.iter().enumerate() {
        let param = format!("images[{index}]");
        let text = text.as_str().ok_or_else(|| invalid_type(&param, "a string"))?;
        images.push(read_image(caller, &param, text).await?);
    }
    let mask = match arguments.take_text("mask")? {
        Some(text) => Some(read_image(caller, "mask", &text).await?),
        None => None,
    };
    Ok((images, mask))
}

async fn read_image(caller: &McpCaller, param: &str, text: &str) -> Result<ImageUpload, Error> {
    let spool = caller.services.spool.for_request(&caller.admission);
    let file = match text.parse::<ImageId>() {
        Ok(id) => copy_earlier_image(caller, &spool, param, id).await?,
        Err(_) => {
            let bytes = decode(text).ok_or_else(|| unreadable_image(param))?;
            let writer = spool.create_writer().await.map_err(|error| spool_error(&error))?;
            writer.append(bytes).await.map_err(|error| spool_error(&error))?.finish()
        }
    };
    let param = param.to_owned();
    let upload = tokio::task::spawn_blocking(move || ImageUpload::new(param, file)).await;
    upload.map_err(|_| Error::Internal)
}

/// Decodes base64, alone or in a data URL.
fn decode(text: &str) -> Option<Bytes> {
    let base64 = match text.strip_prefix("data:") {
        Some(url) => url.split_once(";base64,")?.1,
        None => text,
    };
    let bytes = STANDARD.decode(base64.trim()).ok().filter(|bytes| !bytes.is_empty())?;
    Some(bytes.into())
}

async fn copy_earlier_image(
    caller: &McpCaller,
    spool: &Spool,
    param: &str,
    id: ImageId,
) -> Result<std::sync::Arc<SpooledFile>, Error> {
    let McpCaller { services, caller, .. } = caller;
    let run = flow::find_image_run(&services.replay, caller, &id.call.idempotency_key()).await?;
    let image = match run {
        Some(run) => flow::open_image(&services.cutoff, run, usize::from(id.index)).await,
        None => None,
    };
    let Some((_, mut image)) = image else {
        let message = format!("'{param}' is not kept: no finished image of this key has the id '{id}'.");
        return Err(Rejection::new(param, RejectionReason::InvalidValue, message).into());
    };
    let mut writer = spool.create_writer().await.map_err(|error| spool_error(&error))?;
    let mut length = 0;
    while let Some(frame) = image.frame().await {
        let frame = frame.map_err(|error| {
            tracing::error!(error = &*error as &dyn std::error::Error, "an earlier image cannot be read");
            Error::Unavailable
        })?;
        let Ok(piece) = frame.into_data() else { continue };
        length += piece.len() as u64;
        if length >= MAX_UPLOAD_IMAGE_BYTES {
            let message =
                format!("'{param}' is too large: an image must have fewer than {MAX_UPLOAD_IMAGE_BYTES} bytes.");
            return Err(Error::TooLarge(Rejection::new(param, RejectionReason::InvalidValue, message)));
        }
        writer = writer.append(piece).await.map_err(|error| spool_error(&error))?;
    }
    Ok(writer.finish())
}

fn unreadable_image(param: &str) -> Error {
    let message = format!(
        "'{param}' must be the id of an earlier image (img_…), or the base64 or data URL of a small image file. Paths and web addresses are not read."
    );
    Rejection::new(param, RejectionReason::InvalidValue, message).into()
}

fn spool_error(error: &io::Error) -> Error {
    tracing::error!(%error, "an image of a tool call could not be stored on disk");
    Error::Unavailable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_alone_and_in_a_data_url() {
        for text in ["QUJD", "data:image/png;base64,QUJD", "data:image/png;name=a.png;base64,QUJD", " QUJD\n"] {
            assert_eq!(decode(text), Some(Bytes::from_static(b"ABC")), "{text}");
        }
        for text in
            ["", "/tmp/cat.png", "https://example.com/cat.png", "data:image/png,QUJD", "data:;base64,", "cat.png"]
        {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
