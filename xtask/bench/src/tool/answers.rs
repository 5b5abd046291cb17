//! The bodies of the fake upstream's answers: pieces that are built once, and pauses between events.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::picture;

const USAGE: &str = r#"{"input_tokens":50,"input_tokens_details":{"image_tokens":0,"text_tokens":50},"output_tokens":4160,"output_tokens_details":{"image_tokens":4160,"text_tokens":0},"total_tokens":4210}"#;
const PROPERTIES: &str = r#""background":"opaque","output_format":"png","quality":"high","size":"1024x1024""#;
/// The longest image that a request can ask for.
const MAX_IMAGE: usize = 64_000_000;

/// The answer that a request asks for with words such as `image=1000` in its prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnswerRequest {
    /// The length of the image in base64.
    pub(crate) image: usize,
    /// The number of intermediate images of a stream, and the length of each in base64.
    pub(crate) partials: usize,
    pub(crate) partial: usize,
    /// The time between two events.
    pub(crate) gap: Duration,
    pub(crate) is_stream: bool,
}

/// A part of a body.
#[derive(Debug)]
pub(crate) enum BodyPart {
    Data(Bytes),
    Pause(Duration),
}

/// The base64 texts that were made, by length.
#[derive(Default)]
pub(crate) struct Base64Cache(Mutex<HashMap<usize, Bytes>>);

impl AnswerRequest {
    /// Reads the order from the beginning of a request's body.
    pub(crate) fn parse(body: &[u8]) -> Self {
        let text = String::from_utf8_lossy(body);
        let number = |name: &str| {
            let value = text.split_once(name)?.1;
            let end = value.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(value.len());
            value[..end].parse::<usize>().ok()
        };
        Self {
            image: number("image=").unwrap_or(1000).min(MAX_IMAGE),
            partials: number("partials=").unwrap_or(0).min(3),
            partial: number("partial=").unwrap_or(1000).min(MAX_IMAGE),
            gap: Duration::from_millis(number("gap=").unwrap_or(0).min(1000) as u64),
            is_stream: text.contains("\"stream\":true"),
        }
    }
}

impl Base64Cache {
    fn get(&self, length: usize) -> BodyPart {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        BodyPart::Data(made.entry(length).or_insert_with(|| picture::png_base64(length).into()).clone())
    }

    /// The body of an answer of the image endpoints.
    pub(crate) fn image_answer(&self, order: &AnswerRequest) -> Vec<BodyPart> {
        vec![
            text("{\"created\":1790000000,\"data\":[{\"b64_json\":\""),
            self.get(order.image),
            text(format!("\"}}],{PROPERTIES},\"usage\":{USAGE}}}")),
        ]
    }

    /// The events of a stream of the image endpoints.
    pub(crate) fn image_events(&self, order: &AnswerRequest, prefix: &str) -> Vec<BodyPart> {
        let mut pieces = Vec::new();
        let start = |kind: &str, more: &str| {
            text(format!(
                "event: {prefix}.{kind}\ndata: {{\"type\":\"{prefix}.{kind}\",{more}\"created_at\":1790000000,\
                 {PROPERTIES},\"b64_json\":\""
            ))
        };
        for index in 0..order.partials {
            pieces.push(start("partial_image", &format!("\"partial_image_index\":{index},")));
            pieces.extend([self.get(order.partial), text("\"}\n\n"), BodyPart::Pause(order.gap)]);
        }
        pieces.push(start("completed", ""));
        pieces.extend([self.get(order.image), text(format!("\",\"usage\":{USAGE}}}\n\n"))]);
        pieces
    }

    /// The body of an answer of `/v1/responses`.
    pub(crate) fn response(&self, order: &AnswerRequest) -> Vec<BodyPart> {
        vec![
            text(
                "{\"id\":\"resp_bench\",\"object\":\"response\",\"created_at\":1790000000,\"status\":\"completed\",\
                 \"model\":\"gpt-5.5\",\"output\":[{\"id\":\"ig_bench\",\"type\":\"image_generation_call\",\
                 \"status\":\"completed\",\"output_format\":\"png\",\"quality\":\"high\",\"size\":\"1024x1024\",\
                 \"result\":\"",
            ),
            self.get(order.image),
            text(
                "\"}],\"tools\":[{\"type\":\"image_generation\"}],\"usage\":{\"input_tokens\":50,\
                 \"input_tokens_details\":{\"cached_tokens\":0},\"output_tokens\":40,\
                 \"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":90}}",
            ),
        ]
    }
}

fn text(text: impl Into<String>) -> BodyPart {
    BodyPart::Data(Bytes::from(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::cases::BenchCase;

    fn body(case: BenchCase) -> Vec<u8> {
        case.request("k").into_iter().take(2000).collect()
    }

    fn joined(pieces: Vec<BodyPart>) -> String {
        let data = |piece| match piece {
            BodyPart::Data(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            BodyPart::Pause(_) => String::new(),
        };
        pieces.into_iter().map(data).collect()
    }

    #[test]
    fn each_case_gets_what_it_asks_for() {
        let order = AnswerRequest::parse(&body(BenchCase::Stream));
        let gap = Duration::from_millis(20);
        assert_eq!(order, AnswerRequest { image: 2_000_000, partials: 3, partial: 1_000_000, gap, is_stream: true });
        for (case, image) in [(BenchCase::Small, 1000), (BenchCase::Large, 28_000_000), (BenchCase::Upload, 1000)] {
            let order = AnswerRequest::parse(&body(case));
            assert_eq!((order.image, order.partials, order.is_stream), (image, 0, false), "{case:?}");
        }
        assert_eq!(AnswerRequest::parse(&body(BenchCase::Response)).image, 2_000_000);
    }

    #[test]
    fn plain_answers_are_json() {
        let order = AnswerRequest::parse(b"image=1000");
        for pieces in [Base64Cache::default().image_answer(&order), Base64Cache::default().response(&order)] {
            serde_json::from_str::<serde_json::Value>(&joined(pieces)).unwrap();
        }
    }

    #[test]
    fn a_stream_has_an_event_for_each_image() {
        let text = joined(
            Base64Cache::default().image_events(&AnswerRequest::parse(b"image=400 partials=3 partial=400"), "x"),
        );
        let events: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(events.len(), 4);
        for event in events {
            serde_json::from_str::<serde_json::Value>(event.split_once("data: ").unwrap().1).unwrap();
        }
    }
}
