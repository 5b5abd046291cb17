//! The four operations, and what a caller of each of them was told.

use serde_json::{Value, json};

use crate::kit::{Answer, Call, Form, alpha_png, base64_filler, before_error_frame, request};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Generation,
    Edit,
    GenerationStream,
    EditStream,
}

/// The verdict on one answer, as far as it can be seen from outside.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Told {
    /// A whole answer with these images (of a stream the final one) and this usage.
    Whole { images: Vec<String>, usage: Value },
    /// An error with this status.
    Error(u16),
    /// It had begun, and cannot be taken for a whole answer.
    Broken,
}

// === impl Operation ===

impl Operation {
    pub(super) const ALL: [Self; 4] = [Self::Generation, Self::Edit, Self::GenerationStream, Self::EditStream];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Generation => "generation",
            Self::Edit => "edit",
            Self::GenerationStream => "generation, streamed",
            Self::EditStream => "edit, streamed",
        }
    }

    pub(super) fn streams(self) -> bool {
        matches!(self, Self::GenerationStream | Self::EditStream)
    }

    /// A request with these fields over the minimum; a stream asks for two partial images.
    pub(super) fn call(self, secret: &str, mut with: Value) -> Call {
        if self.streams() {
            with["stream"] = json!(true);
            with["partial_images"] = json!(2);
        }
        let fields = request(with);
        if matches!(self, Self::Generation | Self::GenerationStream) {
            return Call::generation().key(secret).json(&fields);
        }
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let fields = fields.as_object().expect("fields").iter();
        let form = fields.fold(Form::new(), |form, (name, value)| form.text(name, &text(value)));
        form.file("image[]", &alpha_png(64, 64)).call().key(secret)
    }

    /// Judges an answer; what fits no rule at all is a panic.
    #[track_caller]
    pub(super) fn read(self, answer: &Answer) -> Told {
        if answer.status != 200 {
            has_advice(answer);
            return Told::Error(answer.status);
        }
        if self.streams() { stream(answer) } else { plain(answer) }
    }
}

/// ERR: the shape that every client reads, a request id, and a word on whether to try again.
#[track_caller]
fn has_advice(answer: &Answer) {
    let error = answer.error_object(answer.status);
    assert!(["true", "false"].contains(&answer.should_retry().unwrap_or_default()), "ERR: no advice: {error}");
    let wait = answer.header("retry-after").map(|wait| wait.parse::<u64>().expect("ERR: whole seconds"));
    assert!(wait.is_none_or(|wait| (1..=60).contains(&wait)), "ERR: retry-after {wait:?}");
}

#[track_caller]
fn plain(answer: &Answer) -> Told {
    if !answer.complete {
        return Told::Broken;
    }
    let json = answer.json();
    let images = json["data"].as_array().expect("data").iter();
    let images = images.map(|image| image["b64_json"].as_str().expect("an image").to_owned()).collect();
    Told::Whole { images, usage: json["usage"].clone() }
}

#[track_caller]
fn stream(answer: &Answer) -> Told {
    assert!(answer.complete, "a stream has a proper end even when it fails");
    let text = answer.text();
    let completed = text.matches(".completed\ndata: ").count();
    assert!(completed <= 1, "{completed} final images");
    if completed == 0 || text.contains("event: error\n") {
        let rest = before_error_frame(&text);
        let whole = rest.split("\n\n").any(|frame| frame.contains(".completed\ndata: ") && data(frame).is_some());
        assert!(!whole, "an error after a whole final image");
        return Told::Broken;
    }
    let last = text.trim_end().rsplit("\n\n").find(|frame| !frame.starts_with(':')).unwrap_or_default();
    let data = data(last).expect("JSON in the final event");
    assert!(last.contains(".completed\ndata: "), "the final image is not the last event: {last:.200}");
    Told::Whole { images: vec![data["b64_json"].as_str().expect("an image").to_owned()], usage: data["usage"].clone() }
}

fn data(frame: &str) -> Option<Value> {
    serde_json::from_str(frame.split_once("\ndata: ")?.1).ok()
}

/// The base64 of the huge image that a script asks for with `b64=N`.
pub(super) fn huge(script: &str) -> Option<String> {
    let length = script.split_whitespace().find_map(|word| word.strip_prefix("b64="))?;
    let bytes: Vec<u8> = base64_filler(length.parse().expect("a length")).flat_map(|piece| piece.to_vec()).collect();
    Some(String::from_utf8(bytes).expect("base64"))
}
