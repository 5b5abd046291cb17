//! The mask of an image tool: an image with an alpha channel, given as a data URL.
//!
//! The image that the mask belongs to may be at the upstream or anywhere in the conversation, so the format and the
//! size of the two are not compared.

use super::body_members::{self, JsonType, ValueSpan};
use super::body_reader::BodyReader;
use super::data_url::{DataUrl, DataUrlFault};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::rules::fields;
use crate::gateway::spool::SpooledBytes;
use crate::image::{ByteSource as _, ImageFileError, ImageHeader, inspect};
use crate::tables::MAX_UPLOAD_IMAGE_BYTES;

const MEMBERS: &[&str] = &["file_id", "image_url"];

/// Checks a mask. `path` is the path of the mask in the request.
pub(super) fn check_mask(path: &str, body: &SpooledBytes, span: ValueSpan) -> Result<(), Error> {
    match span.json_type {
        JsonType::Null => return Ok(()),
        JsonType::Object => {}
        found => return Err(fields::wrong_type(path, "an object", found.as_str()).into()),
    }
    let (mut reader, mask) = BodyReader::over_span(body, span)?;
    let known = body_members::read_members(&mut reader, mask, MEMBERS)?;
    if let Some(unknown) = known.first_unknown() {
        return Err(fields::unknown_parameter(format!("{path}.{unknown}")).into());
    }
    if let Some(id) = known.get("file_id") {
        check_file_id(&format!("{path}.file_id"), id.json_type())?;
    }
    let name = format!("{path}.image_url");
    let url = known.get("image_url").ok_or_else(|| fields::missing_parameter(name.clone()))?;
    match url.json_type() {
        JsonType::Null => Err(fields::missing_parameter(name).into()),
        JsonType::Text => match image_problem(body, url.span)? {
            None => Ok(()),
            Some(problem) => Err(invalid(&name, &problem).into()),
        },
        found => Err(fields::wrong_type(&name, "a string", found.as_str()).into()),
    }
}

fn check_file_id(name: &str, json_type: JsonType) -> Result<(), Rejection> {
    match json_type {
        JsonType::Null => Ok(()),
        JsonType::Text => Err(invalid(name, "this API does not store files. Send the image as a base64 data URL.")),
        found => Err(fields::wrong_type(name, "a string", found.as_str())),
    }
}

/// Returns what is wrong with the image of the mask; `None` if it is valid. `url` is the position of its data URL.
fn image_problem(body: &SpooledBytes, url: ValueSpan) -> Result<Option<String>, Error> {
    let file = match DataUrl::read(body, url) {
        Ok(file) => file,
        Err(DataUrlFault::Invalid(error)) => return Ok(Some(error.to_string())),
        Err(DataUrlFault::Unreadable(error)) => return Err(error),
    };
    if file.len() >= MAX_UPLOAD_IMAGE_BYTES {
        return Ok(Some(format!("the image is not smaller than {MAX_UPLOAD_IMAGE_BYTES} bytes.")));
    }
    header_problem(inspect(&file))
}

/// Returns the problem that the header of the image shows; `None` if the image is a valid mask.
fn header_problem(header: Result<ImageHeader, ImageFileError>) -> Result<Option<String>, Error> {
    match header {
        // The gateway's disk failed, which does not make the image invalid.
        Err(ImageFileError::Unreadable(kind)) => {
            tracing::error!(%kind, "a mask could not be read back");
            Err(Error::Unavailable)
        }
        Err(error) => Ok(Some(error.to_string())),
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
    fn a_failing_disk_does_not_make_a_mask_invalid() {
        let result = header_problem(Err(ImageFileError::Unreadable(std::io::ErrorKind::Other)));
        assert_eq!(result, Err(Error::Unavailable));
        assert!(matches!(header_problem(Err(ImageFileError::Unknown)), Ok(Some(_))));
    }
}
