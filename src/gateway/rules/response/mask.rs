//! The mask of an image tool: an image with an alpha channel, given as a data URL.
//!
//! What it must fit is somewhere in the conversation, or at the upstream, so format and size are not compared here.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::json::{self, Shape};
use crate::error::{Reason, Rejection};
use crate::gateway::rules::fields;
use crate::image::inspect;
use crate::tables::MAX_UPLOAD_IMAGE_BYTES;

const MEMBERS: &[&str] = &["file_id", "image_url"];

/// Checks a mask; `place` is its name in the words of the caller.
pub(super) fn check(place: &str, raw: &RawValue) -> Result<(), Rejection> {
    match json::shape(raw)? {
        Shape::Null => return Ok(()),
        Shape::Object => {}
        other => return Err(fields::wrong_type(place, "an object", other.as_str())),
    }
    let known = json::members(raw.get(), MEMBERS).map_err(|error| fields::not_json(&error))?;
    if let Some(other) = known.other() {
        return Err(fields::unknown(format!("{place}.{other}")));
    }
    if let Some(id) = known.get("file_id") {
        file_id(&format!("{place}.file_id"), id)?;
    }
    let name = format!("{place}.image_url");
    let url = known.get("image_url").ok_or_else(|| fields::missing(name.clone()))?;
    match json::shape(url)? {
        Shape::Null => Err(fields::missing(name)),
        Shape::Text => {
            let url: String = serde_json::from_str(url.get()).map_err(|error| fields::not_json(&error))?;
            image(&url).map_err(|problem| invalid(&name, &problem))
        }
        other => Err(fields::wrong_type(&name, "a string", other.as_str())),
    }
}

fn file_id(name: &str, raw: &RawValue) -> Result<(), Rejection> {
    match json::shape(raw)? {
        Shape::Null => Ok(()),
        Shape::Text => {
            Err(invalid(name, "there is no files endpoint here. Send the image itself as a base64 data URL."))
        }
        other => Err(fields::wrong_type(name, "a string", other.as_str())),
    }
}

/// What is wrong with the image, if anything is.
fn image(url: &str) -> Result<(), String> {
    let remote = ["http:", "https:"].iter().any(|scheme| starts_with(url, scheme));
    if remote {
        return Err("remote images are not fetched here. Send the image itself as a base64 data URL.".to_owned());
    }
    let data = url.split_once(',').filter(|(head, _)| starts_with(head, "data:") && head.ends_with(";base64"));
    let (_, data) = data.ok_or("expected a base64 data URL: 'data:image/png;base64,…'.")?;
    if data.len() as u64 / 4 * 3 >= MAX_UPLOAD_IMAGE_BYTES {
        return Err(format!("the image is not smaller than {MAX_UPLOAD_IMAGE_BYTES} bytes."));
    }
    let file = STANDARD.decode(data).map_err(|_| "the data URL is not valid base64.")?;
    let header = inspect(&file.as_slice()).map_err(|flaw| format!("{flaw}"))?;
    if header.alpha {
        Ok(())
    } else {
        Err("it must have an alpha channel; its transparent region is the region to change.".to_owned())
    }
}

fn starts_with(text: &str, start: &str) -> bool {
    text.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

fn invalid(name: &str, problem: &str) -> Rejection {
    Rejection::new(name, Reason::InvalidValue, format!("Invalid mask: {problem}"))
}
