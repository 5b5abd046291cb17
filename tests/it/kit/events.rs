//! Server-sent events as a caller reads them: strict about every byte, and one at a time.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::Sender;

use serde_json::{Value, json};

use super::http::Reply;

/// One event exactly as it came.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// The type of the `event` line.
    pub(crate) name: String,
    pub(crate) data: Value,
    /// Every byte of it, the empty line included.
    pub(crate) raw: String,
}

/// The events of an answer.
pub(crate) struct Events {
    reader: BufReader<Reply>,
    /// How many heartbeat comments came.
    pub(crate) heartbeats: usize,
    /// Receives a message for each heartbeat as it comes.
    pub(crate) listener: Option<Sender<()>>,
}

/// The frame of the contract for a failure after the 200.
pub(crate) const ERROR_FRAME: &str = "event: error\ndata: {\"type\":\"error\",\"code\":\"upstream_error\",\
\"message\":\"Upstream request failed\",\"param\":null,\"error\":{\"message\":\"Upstream request failed\",\
\"type\":\"upstream_error\",\"param\":null,\"code\":\"upstream_error\"}}\n\n";

/// Checks the error frame that a failed stream must end with, and returns the text before it. The JSON of the frame may
/// have more members than the contract asks for, in any order.
#[track_caller]
pub(crate) fn before_error_frame(text: &str) -> &str {
    let end = || &text[text.floor_char_boundary(text.len().saturating_sub(600))..];
    let Some(at) = text.rfind("event: error\ndata: ") else { panic!("no error frame at the end: …{}", end()) };
    let data = Event::parse(text[at..].to_owned()).data;
    for (place, expected) in [
        ("/code", json!("upstream_error")),
        ("/message", json!("Upstream request failed")),
        ("/param", Value::Null),
        ("/error/message", json!("Upstream request failed")),
        ("/error/type", json!("upstream_error")),
        ("/error/param", Value::Null),
        ("/error/code", json!("upstream_error")),
    ] {
        assert_eq!(data.pointer(place), Some(&expected), "{place}: {data}");
    }
    let rest = &text[..at];
    assert!(rest.is_empty() || rest.ends_with("\n\n"), "the error frame does not begin an event: …{}", end());
    rest
}

// === impl Events ===

impl Events {
    /// Reads the events of an answer; panics if the answer is not a stream.
    #[track_caller]
    pub(crate) fn from_reply(reply: Reply) -> Self {
        if reply.status != 200 {
            let answer = reply.finish().expect("an answer");
            panic!("status {}: {:.600}", answer.status, answer.text());
        }
        let header = |name: &str| super::http::find_header(&reply.headers, name);
        assert_eq!(header("content-type"), Some("text/event-stream; charset=utf-8"));
        assert_eq!(header("content-length"), None);
        assert!(header("x-request-id").is_some_and(|id| !id.is_empty()), "{:?}", reply.headers);
        Self { reader: BufReader::with_capacity(1 << 17, reply), heartbeats: 0, listener: None }
    }

    /// The next event, or `None` at the proper end; heartbeats are counted and skipped. Panics at an event that does
    /// not have the shape of the contract; a stream that breaks off is an error.
    #[track_caller]
    pub(crate) fn next(&mut self) -> std::io::Result<Option<Event>> {
        let mut raw = String::new();
        loop {
            let start = raw.len();
            if self.reader.read_line(&mut raw)? == 0 {
                assert!(raw.is_empty(), "the stream ends inside an event: {raw:.300}");
                return Ok(None);
            }
            if &raw[start..] != "\n" {
                continue;
            }
            if raw == ": keep-alive\n\n" {
                self.heartbeats += 1;
                // A listener that is gone needs no more messages.
                let _ = self.listener.as_ref().map(|listener| listener.send(()));
                raw.clear();
                continue;
            }
            let event = Event::parse(raw);
            if let Some(operation) = self.reader.get_ref().operation() {
                operation.check_event(&event.data);
            }
            return Ok(Some(event));
        }
    }

    /// Everything until the proper end.
    #[track_caller]
    pub(crate) fn remaining(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().expect("a stream that does not break off") {
            events.push(event);
        }
        events
    }
}

impl Read for Events {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.reader.read(buffer)
    }
}

// === impl Event ===

impl Event {
    /// Accepts exactly two lines with one space after each colon, the name and then JSON that names the same type,
    /// followed by an empty line. Panics at anything else.
    #[track_caller]
    fn parse(raw: String) -> Self {
        let found = raw.strip_prefix("event: ").and_then(|rest| rest.split_once("\ndata: "));
        let (name, rest) = found.unwrap_or_else(|| panic!("not a frame of the contract: {raw:.300}"));
        let json = rest.strip_suffix("\n\n").expect("an empty line");
        assert!(!json.contains(['\n', '\r']) && !name.contains('\r'), "more than two lines: {raw:.300}");
        let data: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json:.300}"));
        assert_eq!(data["type"].as_str(), Some(name), "the `event` line and the `type` of the data differ");
        Self { name: name.to_owned(), data, raw }
    }
}
