//! Making images.

use bytes::Bytes;
use progenitor_client::Error as WireError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::session::Head;
use super::{Client, Error, GenerateRequest, Images};
use crate::wire::types::ImagesResponse;

/// Members of the answer that say something about the images, and without which the images are as good.
const REMARKS: [&str; 6] = ["background", "model", "output_format", "quality", "size", "usage"];

/// Calls that make images; from [`Client::images`].
#[derive(Clone, Copy, Debug)]
pub struct ImageCalls<'a> {
    client: &'a Client,
}

// === impl ImageCalls ===

impl<'a> ImageCalls<'a> {
    pub(super) const fn new(client: &'a Client) -> Self {
        Self { client }
    }

    /// Makes images from a prompt, and waits for them: up to 120 seconds, or 300 above 2560x1440.
    ///
    /// A text alone is a request with all defaults.
    ///
    /// # Errors
    ///
    /// The request breaks a rule, the service cannot be reached or refuses it, or no image was made in time.
    pub async fn generate(&self, request: impl Into<GenerateRequest>) -> Result<Images, Error> {
        let request = request.into();
        let limit = request.time_limit();
        let body = request.into_wire()?;
        let call = self.client.call(limit);
        let session = &call.inner;
        let response = match call.create_image().body(body).send().await {
            Ok(value) => value.into_inner(),
            Err(WireError::InvalidResponsePayload(body, source)) if session.head().is_some_and(Head::is_success) => {
                let unread = |_| Error::of_call(WireError::InvalidResponsePayload(Bytes::new(), source), session);
                without_remarks(&body).map_err(unread)?
            }
            Err(error) => return Err(Error::of_call(error, session)),
        };
        Images::new(response, session.head())
    }
}

/// Reads an answer in which a remark is unknown. The images are paid for: they are not lost over a word about them.
fn without_remarks(body: &[u8]) -> Result<ImagesResponse, serde_json::Error> {
    let mut members: Map<String, Value> = serde_json::from_slice(body)?;
    let mut remarks: Map<String, Value> = REMARKS.iter().filter_map(|name| members.remove_entry(*name)).collect();
    members.entry("created").or_insert_with(|| 0.into());
    let response: ImagesResponse = serde_json::from_value(Value::Object(members))?;
    Ok(ImagesResponse {
        background: understood(&mut remarks, "background"),
        model: understood(&mut remarks, "model"),
        output_format: understood(&mut remarks, "output_format"),
        quality: understood(&mut remarks, "quality"),
        size: understood(&mut remarks, "size"),
        usage: understood(&mut remarks, "usage"),
        ..response
    })
}

fn understood<T: DeserializeOwned>(remarks: &mut Map<String, Value>, name: &str) -> Option<T> {
    serde_json::from_value(remarks.remove(name)?).ok()
}
