//! Reads an answer of the image endpoints to its end, and keeps all of it but the images.

use std::future::poll_fn;

use bytes::Bytes;
use http_body::Body;
use serde_json::{Map, Value};

use super::event::{MemberScope, RelayEvent, RelayEventSink};
use super::stored_image::{StoredAnswerReader, StoredImageError};
use crate::stream::json::ValueInterest;

/// The members of a JSON answer, without its images.
#[derive(Debug, Default)]
pub(crate) struct AnswerMembers {
    /// The members of the answer, without `data`.
    pub(crate) members: Map<String, Value>,
    /// The members of each image, without `b64_json`.
    pub(crate) images: Vec<Map<String, Value>>,
}

/// Reads a JSON answer with images to its end. The images are not held, so their size does not matter.
///
/// # Errors
///
/// Returns an error if the answer is incomplete, cannot be read or is not JSON.
pub(crate) async fn read_answer_members<B>(answer: B) -> Result<AnswerMembers, StoredImageError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut reader = StoredAnswerReader::new(answer, AnswerMembers::default());
    while poll_fn(|cx| reader.poll_piece(cx)).await? {}
    reader.finish()
}

impl RelayEventSink for AnswerMembers {
    fn interest(&self, _scope: MemberScope, _name: &str) -> ValueInterest {
        ValueInterest::Optional
    }

    fn push(&mut self, event: RelayEvent<'_>) {
        match event {
            RelayEvent::ItemBegun { .. } => self.images.push(Map::new()),
            RelayEvent::Member { scope: MemberScope::Answer, name, value } => {
                self.members.insert(name.to_owned(), value);
            }
            RelayEvent::Member { scope: MemberScope::Item, name, value } => {
                if let Some(image) = self.images.last_mut() {
                    image.insert(name.to_owned(), value);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;
    use serde_json::json;

    use super::*;

    async fn read(answer: &str) -> Result<AnswerMembers, StoredImageError> {
        read_answer_members(Full::new(Bytes::copy_from_slice(answer.as_bytes()))).await
    }

    #[tokio::test]
    async fn everything_but_the_images_is_kept() {
        let answer = format!(
            r#"{{"created":7,"data":[{{"b64_json":"{0}","revised_prompt":"a \"cube\""}},{{"b64_json":"{0}"}}],"usage":{{"total_tokens":3}},"size":"1024x1024"}}"#,
            "iVBORw0K".repeat(9000)
        );
        let read = read(&answer).await.unwrap();
        assert_eq!(
            Value::Object(read.members),
            json!({"created": 7, "usage": {"total_tokens": 3}, "size": "1024x1024"})
        );
        assert_eq!(json!(read.images), json!([{"revised_prompt": "a \"cube\""}, {}]));
    }

    #[tokio::test]
    async fn an_answer_that_is_not_complete_is_an_error() {
        for answer in ["", r#"{"data":[{"b64_json":"iVBO"#, r#"{"created":7,"data":[]"#, "<html>"] {
            assert!(read(answer).await.is_err(), "{answer}");
        }
    }
}
