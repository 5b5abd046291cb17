//! The mask of an image tool: an image with an alpha channel, given as a data URL.
//!
//! The image that it must fit is in the conversation or at the upstream, so format and size are not compared here.

use super::data_url::DataUrl;
use super::json::{self, JsonType, ValueSpan};
use super::walk::JsonWalker;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::rules::fields;
use crate::gateway::spool::SpooledBytes;
use crate::image::{ByteSource as _, ImageFileError, ImageHeader, inspect};
use crate::tables::MAX_UPLOAD_IMAGE_BYTES;

const MEMBERS: &[&str] = &["file_id", "image_url"];

/// Checks a mask; `place` is its name in the words of the caller.
pub(super) fn check(place: &str, body: &SpooledBytes, part: ValueSpan) -> Result<(), Error> {
    match part.shape {
        JsonType::Null => return Ok(()),
        JsonType::Object => {}
        other => return Err(fields::wrong_type(place, "an object", other.as_str()).into()),
    }
    let known = json::members(&mut JsonWalker::through(body, part), MEMBERS)?;
    if let Some(other) = known.other() {
        return Err(fields::unknown(format!("{place}.{other}")).into());
    }
    if let Some(id) = known.get("file_id") {
        file_id(&format!("{place}.file_id"), id.shape())?;
    }
    let name = format!("{place}.image_url");
    let url = known.get("image_url").ok_or_else(|| fields::missing(name.clone()))?;
    match url.shape() {
        JsonType::Null => Err(fields::missing(name).into()),
        JsonType::Text => match image(body, url.part)? {
            None => Ok(()),
            Some(problem) => Err(invalid(&name, &problem).into()),
        },
        other => Err(fields::wrong_type(&name, "a string", other.as_str()).into()),
    }
}

fn file_id(name: &str, shape: JsonType) -> Result<(), Rejection> {
    match shape {
        JsonType::Null => Ok(()),
        JsonType::Text => Err(invalid(name, "this API does not store files. Send the image as a base64 data URL.")),
        other => Err(fields::wrong_type(name, "a string", other.as_str())),
    }
}

/// Returns the problem of the image, if it has one.
fn image(body: &SpooledBytes, url: ValueSpan) -> Result<Option<String>, Error> {
    let file = match DataUrl::read(body, url)? {
        Ok(file) => file,
        Err(fault) => return Ok(Some(fault.to_string())),
    };
    if file.len() >= MAX_UPLOAD_IMAGE_BYTES {
        return Ok(Some(format!("the image is not smaller than {MAX_UPLOAD_IMAGE_BYTES} bytes.")));
    }
    judge(inspect(&file))
}

/// Returns the problem that the first bytes of the image show, if there is one.
fn judge(found: Result<ImageHeader, ImageFileError>) -> Result<Option<String>, Error> {
    match found {
        // Our own disk failed, which says nothing about the image.
        Err(ImageFileError::Unreadable(kind)) => {
            tracing::error!(%kind, "a mask could not be read back");
            Err(Error::Unavailable)
        }
        Err(flaw) => Ok(Some(flaw.to_string())),
        Ok(header) if header.alpha => Ok(None),
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
        let unreadable = judge(Err(ImageFileError::Unreadable(std::io::ErrorKind::Other)));
        assert_eq!(unreadable, Err(Error::Unavailable));
        assert!(matches!(judge(Err(ImageFileError::Unknown)), Ok(Some(_))));
    }
}
