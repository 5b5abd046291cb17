//! The four operations, and how a caller reads their answers.

use serde_json::{Value, json};

use crate::kit::{Answer, Call, Form, alpha_png, base64_filler, before_error_frame, request};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Generation,
    Edit,
    GenerationStream,
    EditStream,
}

/// One answer as the caller sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CallerResult {
    /// A complete answer with these images (of a stream only the final image) and this usage.
    Complete { images: Vec<String>, usage: Value },
    /// An error with this status.
    Error(u16),
    /// An answer that had begun and is visibly incomplete.
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

    /// A request with the required fields and these fields; a stream asks for two partial images.
    pub(super) fn call(self, secret: &str, mut fields: Value) -> Call {
        if self.streams() {
            fields["stream"] = json!(true);
            fields["partial_images"] = json!(2);
        }
        let fields = request(fields);
        if matches!(self, Self::Generation | Self::GenerationStream) {
            return Call::generation().key(secret).json(&fields);
        }
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let fields = fields.as_object().expect("fields").iter();
        let form = fields.fold(Form::new(), |form, (name, value)| form.text(name, &text(value)));
        form.file("image[]", &alpha_png(64, 64)).call().key(secret)
    }

    /// Reads an answer; panics if the answer is neither complete, nor an error, nor visibly broken.
    #[track_caller]
    pub(super) fn read(self, answer: &Answer) -> CallerResult {
        if answer.status != 200 {
            assert_error_shape(answer);
            return CallerResult::Error(answer.status);
        }
        if self.streams() { read_stream(answer) } else { read_plain(answer) }
    }
}

/// ERR: asserts the documented shape of an error, a request id, and advice about a retry.
#[track_caller]
fn assert_error_shape(answer: &Answer) {
    let error = answer.error_object(answer.status);
    assert!(
        ["true", "false"].contains(&answer.should_retry().unwrap_or_default()),
        "ERR: no `x-should-retry`: {error}"
    );
    let wait = answer.header("retry-after").map(|wait| wait.parse::<u64>().expect("ERR: whole seconds"));
    assert!(wait.is_none_or(|wait| (1..=60).contains(&wait)), "ERR: retry-after {wait:?}");
}

#[track_caller]
fn read_plain(answer: &Answer) -> CallerResult {
    if !answer.complete {
        return CallerResult::Broken;
    }
    let json = answer.json();
    let images = json["data"].as_array().expect("data").iter();
    let images = images.map(|image| image["b64_json"].as_str().expect("an image").to_owned()).collect();
    CallerResult::Complete { images, usage: json["usage"].clone() }
}

#[track_caller]
fn read_stream(answer: &Answer) -> CallerResult {
    assert!(answer.complete, "a stream must end properly even if it fails");
    let text = answer.text();
    let completed = text.matches(".completed\ndata: ").count();
    assert!(completed <= 1, "{completed} final images");
    if completed == 0 || text.contains("event: error\n") {
        let frames = before_error_frame(&text);
        let has_final_image =
            frames.split("\n\n").any(|frame| frame.contains(".completed\ndata: ") && event_data(frame).is_some());
        assert!(!has_final_image, "an error after a complete final image");
        return CallerResult::Broken;
    }
    let last = text.trim_end().rsplit("\n\n").find(|frame| !frame.starts_with(':')).unwrap_or_default();
    let data = event_data(last).expect("JSON in the final event");
    assert!(last.contains(".completed\ndata: "), "the final image is not the last event: {last:.200}");
    CallerResult::Complete {
        images: vec![data["b64_json"].as_str().expect("an image").to_owned()],
        usage: data["usage"].clone(),
    }
}

fn event_data(frame: &str) -> Option<Value> {
    serde_json::from_str(frame.split_once("\ndata: ")?.1).ok()
}

/// The base64 of the huge image that a script asks for with `b64=N`.
pub(super) fn base64_of_script(script: &str) -> Option<String> {
    let length = script.split_whitespace().find_map(|word| word.strip_prefix("b64="))?;
    let bytes: Vec<u8> = base64_filler(length.parse().expect("a length")).flat_map(|chunk| chunk.to_vec()).collect();
    Some(String::from_utf8(bytes).expect("base64"))
}
