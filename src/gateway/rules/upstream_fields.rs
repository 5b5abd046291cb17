//! The fields of a request for images as they are sent upstream, and their text.

use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;
use serde_json::{Map, Value};

/// The fields of a job. Their JSON text is made once: it identifies the request, and is the body of the call.
#[derive(Clone, Debug, Default)]
pub(super) struct UpstreamFields {
    fields: Map<String, Value>,
    json: OnceLock<Bytes>,
}

// === impl UpstreamFields ===

impl UpstreamFields {
    pub(super) const fn new(fields: Map<String, Value>) -> Self {
        Self { fields, json: OnceLock::new() }
    }

    /// Returns the fields as a JSON object, in the order of their names: the map is sorted.
    ///
    /// # Errors
    ///
    /// Returns an error if a value cannot be serialized.
    pub(super) fn json(&self) -> serde_json::Result<&Bytes> {
        if let Some(json) = self.json.get() {
            return Ok(json);
        }
        let json = serde_json::to_vec(&self.fields)?;
        Ok(self.json.get_or_init(|| json.into()))
    }

    /// Returns the fields to change them.
    pub(super) fn change(&mut self) -> &mut Map<String, Value> {
        self.json = OnceLock::new();
        &mut self.fields
    }
}

impl Deref for UpstreamFields {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.fields
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_has_the_fields_in_the_order_of_their_names_and_follows_a_change() {
        let fields = [("size", json!("1x1")), ("model", json!("m")), ("n", json!(2))];
        let mut fields =
            UpstreamFields::new(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
        assert_eq!(fields.json().unwrap().as_ref(), br#"{"model":"m","n":2,"size":"1x1"}"#);
        fields.change().remove("n");
        assert_eq!(fields.json().unwrap().as_ref(), br#"{"model":"m","size":"1x1"}"#);
        assert_eq!(fields.clone().json().unwrap().as_ptr(), fields.json().unwrap().as_ptr(), "a copy shares the text");
    }
}
