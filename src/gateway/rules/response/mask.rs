//! The mask of an image tool: an image with an alpha channel, given as a data URL.
//!
//! The image that it must fit is in the conversation or at the upstream, so format and size are not compared here.

use super::body_members::{self, JsonType, ValueSpan};
use super::data_url::DataUrl;
use super::json_walker::JsonWalker;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::rules::fields;
use crate::gateway::spool::SpooledBytes;
use crate::image::{ByteSource as _, ImageFileError, ImageHeader, inspect};
use crate::tables::MAX_UPLOAD_IMAGE_BYTES;

const MEMBERS: &[&str] = &["file_id", "image_url"];

/// Checks a mask; `place` is its name in the words of the caller.
pub(super) fn check_mask(place: &str, body: &SpooledBytes, part: ValueSpan) -> Result<(), Error> {
    match part.json_type {
        JsonType::Null => return Ok(()),
        JsonType::Object => {}
        other => return Err(fields::wrong_type(place, "an object", other.as_str()).into()),
    }
    let known = body_members::object_members(&mut JsonWalker::over_span(body, part), MEMBERS)?;
    if let Some(other) = known.other() {
        return Err(fields::unknown_parameter(format!("{place}.{other}")).into());
    }
    if let Some(id) = known.get("file_id") {
        check_file_id(&format!("{place}.file_id"), id.json_type())?;
    }
    let name = format!("{place}.image_url");
    let url = known.get("image_url").ok_or_else(|| fields::missing_parameter(name.clone()))?;
    match url.json_type() {
        JsonType::Null => Err(fields::missing_parameter(name).into()),
        JsonType::Text => match image_problem(body, url.span)? {
            None => Ok(()),
            Some(problem) => Err(invalid(&name, &problem).into()),
        },
        other => Err(fields::wrong_type(&name, "a string", other.as_str()).into()),
    }
}

fn check_file_id(name: &str, shape: JsonType) -> Result<(), Rejection> {
    match shape {
        JsonType::Null => Ok(()),
        JsonType::Text => Err(invalid(name, "this API does not store files. Send the image as a base64 data URL.")),
        other => Err(fields::wrong_type(name, "a string", other.as_str())),
    }
}

/// Returns the problem of the image, if it has one.
fn image_problem(body: &SpooledBytes, url: ValueSpan) -> Result<Option<String>, Error> {
    let file = match DataUrl::read(body, url)? {
        Ok(file) => file,
        Err(fault) => return Ok(Some(fault.to_string())),
    };
    if file.len() >= MAX_UPLOAD_IMAGE_BYTES {
        return Ok(Some(format!("the image is not smaller than {MAX_UPLOAD_IMAGE_BYTES} bytes.")));
    }
    header_problem(inspect(&file))
}

/// Returns the problem that the first bytes of the image show, if there is one.
fn header_problem(found: Result<ImageHeader, ImageFileError>) -> Result<Option<String>, Error> {
    match found {
        // Our own disk failed, which says nothing about the image.
        Err(ImageFileError::Unreadable(kind)) => {
            tracing::error!(%kind, "a mask could not be read back");
            Err(Error::Unavailable)
        }
        Err(flaw) => Ok(Some(flaw.to_string())),
        Ok(header) if header.has_alpha => Ok(None),
        Ok(_) => Ok(Some("it must have an alpha channel; its transparent region is the region to change.".to_owned())),
    }
}

fn invalid(name: &str, problem: &str) -> Rejection {
    Rejection::new(name, RejectionReason::InvalidValue, format!("Invalid mask: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_fails_is_not_the_callers_fault() {
        let unreadable = header_problem(Err(ImageFileError::Unreadable(std::io::ErrorKind::Other)));
        assert_eq!(unreadable, Err(Error::Unavailable));
        assert!(matches!(header_problem(Err(ImageFileError::Unknown)), Ok(Some(_))));
    }
}
