//! The event streams of the upstream: every framing that the standard allows, and streams that break off.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::base64_filler;
use super::answer::{self, FILLER, UpstreamAnswer};
use super::script::Script;

/// One thing that happens in a stream.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Text(Vec<u8>),
    /// This many characters of base64.
    Filler(usize),
    /// An event is complete; the ledger notes when.
    Sent,
    Gate(String),
    Pause(Duration),
    /// Comment lines until the peer leaves.
    CommentsForever,
    /// A line without an end.
    EndlessLine,
    /// Nothing more until the peer leaves.
    Stall,
    /// The body ends properly.
    End,
    /// The connection breaks.
    Break,
}

/// Builds the steps of a stream.
struct ImageStreamBuilder<'a> {
    script: &'a Script,
    request: &'a Value,
    /// `image_generation` or `image_edit`.
    family: &'static str,
    created: usize,
    steps: Vec<Step>,
    images: Vec<String>,
    usage: Option<Value>,
    partials: u64,
    completed: u64,
}

/// Builds the stream that the script describes.
pub(super) fn build_stream(script: &Script, request: &Value, edit: bool, at: usize) -> UpstreamAnswer {
    let mut builder = ImageStreamBuilder {
        script,
        request,
        family: if edit { "image_edit" } else { "image_generation" },
        created: 1_776_000_000 + at,
        steps: Vec::new(),
        images: Vec::new(),
        usage: None,
        partials: 0,
        completed: 0,
    };
    let asked = request["partial_images"].as_u64().unwrap_or(0);
    let count = script.number("partials").unwrap_or(asked);
    let usual = "p,".repeat(usize::try_from(count).expect("a count")) + "c";
    for word in script.get("events").unwrap_or(&usual).split(',') {
        builder.add_event(word);
    }
    UpstreamAnswer {
        events: Some(builder.steps),
        content_type: "text/event-stream",
        usage: builder.usage,
        images: builder.images,
        ..UpstreamAnswer::default()
    }
}

// === impl ImageStreamBuilder ===

impl ImageStreamBuilder<'_> {
    fn add_event(&mut self, word: &str) {
        if let Some(index) = word.strip_prefix('p') {
            self.partial(index.parse().unwrap_or(self.partials));
        } else if let Some(pause) = word.strip_prefix('~') {
            self.steps.push(Step::Pause(Duration::from_millis(pause.parse().expect("milliseconds"))));
        } else if let Some(gate) = word.strip_prefix('@') {
            self.steps.push(Step::Gate(gate.to_owned()));
        } else if word.starts_with('e') && word != "eof" {
            self.error(word);
        } else if word.starts_with("failed") {
            self.failed(word);
        } else {
            self.other(word);
        }
    }

    fn other(&mut self, word: &str) {
        match word {
            "c" | "blank" | "missing" | "words" | "half" | "twin" => self.final_image(word),
            "x" => self.frame("image_generation.progress", r#"{"type":"image_generation.progress","percent":50}"#),
            "junk" => {
                self.frame(&format!("{}.completed", self.family), r#"{"type":"image_generation.completed","b64_js"#);
            }
            "k" => self.raw(": keep-alive\n\n"),
            "done" => self.raw("data: [DONE]\n\n"),
            "murmur" => self.steps.push(Step::CommentsForever),
            "flood" => self.steps.push(Step::EndlessLine),
            "stall" => self.steps.push(Step::Stall),
            "eof" => self.steps.push(Step::End),
            "cut" => self.steps.push(Step::Break),
            other => panic!("no such event in a script: {other}"),
        }
    }

    fn partial(&mut self, index: u64) {
        self.partials += 1;
        let length = self.script.number("partial-b64");
        let mut fields = self.fields("partial_image", length.is_some());
        fields.push(("partial_image_index", json!(index)));
        self.event("partial_image", fields, length);
    }

    fn final_image(&mut self, word: &str) {
        self.completed += 1;
        let length = self.script.number("b64").filter(|_| ["c", "half"].contains(&word));
        let mut fields = self.fields("completed", length.is_some());
        let mut usage = answer::usage(self.script, self.request, self.family == "image_edit", 1);
        if self.completed > 1 {
            usage = Some(json!({"total_tokens": 999_999}));
        }
        if let Some(usage) = &usage {
            fields.push(("usage", usage.clone()));
        }
        if self.script.has("revised") {
            fields.push(("revised_prompt", answer::revised(self.script, self.request)));
        }
        match word {
            "blank" => {
                fields.iter_mut().filter(|(name, _)| *name == "b64_json").for_each(|(_, value)| *value = json!(""));
            }
            "missing" | "words" => fields.retain(|(name, _)| *name != "b64_json"),
            _ => {}
        }
        if word == "words" {
            fields.push(("text", json!("I would rather not draw that.")));
        }
        if self.completed == 1 {
            self.usage = usage;
        }
        let before = self.steps.len();
        self.event("completed", fields, length);
        match word {
            "half" => self.halve(before),
            "twin" => self.double(before),
            _ => {}
        }
    }

    /// Writes the data of the event from this step on twice, as two objects in one event.
    fn double(&mut self, at: usize) {
        let Some(Step::Text(text)) = self.steps.get_mut(at) else { return };
        let event = String::from_utf8(std::mem::take(text)).expect("text");
        let data = event.lines().find(|line| line.starts_with("data:")).expect("a data line").to_owned();
        *text = event.replacen(&data, &format!("{data}{}", &data["data:".len()..]), 1).into_bytes();
    }

    fn failed(&mut self, word: &str) {
        let detail = answer::error_detail(self.script, if word == "failed" { "error" } else { "policy" });
        let response = json!({"id": "resp_1", "status": "failed", "error": detail, "output": []});
        self.frame("response.failed", &json!({"type": "response.failed", "response": response}).to_string());
    }

    /// The fields of an event as a real upstream sends them, before the edits of the script.
    fn fields(&mut self, kind: &str, huge: bool) -> Vec<(&'static str, Value)> {
        let image = if huge { FILLER.to_owned() } else { answer::image_text(self.script, self.request) };
        if !huge {
            self.images.push(image.clone());
        }
        let mut fields = vec![
            ("type", json!(format!("{}.{kind}", self.family))),
            ("b64_json", json!(image)),
            ("created_at", json!(self.created)),
        ];
        let known = answer::resolved_fields(self.script, self.request);
        fields.extend(known.into_iter().filter(|(name, _)| *name != "model"));
        if self.script.word("shape") == "usage-first" {
            // The image comes last: all small fields are known before it.
            let image = fields.remove(1);
            fields.push(image);
        }
        fields
    }

    fn event(&mut self, kind: &str, mut fields: Vec<(&'static str, Value)>, length: Option<u64>) {
        let name = format!("{}.{kind}", self.family);
        answer::apply_field_edits(self.script, &mut fields);
        let text = answer::print(self.script, &fields);
        let text = self.framed(&name, &text);
        match text.split_once(FILLER) {
            Some((before, after)) => {
                let length = usize::try_from(length.expect("a length")).expect("a length");
                self.steps.extend([
                    Step::Text(before.as_bytes().to_vec()),
                    Step::Filler(length),
                    Step::Text(after.as_bytes().to_vec()),
                    Step::Sent,
                ]);
            }
            None => self.steps.extend([Step::Text(text.into_bytes()), Step::Sent]),
        }
    }

    fn frame(&mut self, name: &str, json: &str) {
        let text = self.framed(name, json);
        self.steps.extend([Step::Text(text.into_bytes()), Step::Sent]);
    }

    fn raw(&mut self, text: &str) {
        let text = self.ended(text);
        self.steps.push(Step::Text(text.into_bytes()));
    }

    /// The lines of one event; JSON of several lines becomes several `data` lines.
    fn framed(&self, name: &str, json: &str) -> String {
        let has = |word: &str| self.script.lists("frames", word);
        let space = if has("no-space") { "" } else { " " };
        let data: String = json.trim_end().lines().map(|line| format!("data:{space}{line}\n")).collect();
        let event = if has("no-event") { String::new() } else { format!("event:{space}{name}\n") };
        let extra = if has("extra") { ": a comment\nid: 7\nretry: 3000\nunknown: field\nlonely\n" } else { "" };
        let bom = if has("bom") && self.steps.is_empty() { "\u{feff}" } else { "" };
        let is_last = name.ends_with("completed") && has("no-end");
        let end = if is_last { "" } else { "\n" };
        let lines = if has("data-first") { format!("{data}{event}") } else { format!("{event}{data}") };
        self.ended(&format!("{bom}{extra}{lines}{end}"))
    }

    fn ended(&self, text: &str) -> String {
        match self.script.word("lines") {
            "crlf" => text.replace('\n', "\r\n"),
            "cr" => text.replace('\n', "\r"),
            _ => text.to_owned(),
        }
    }

    fn error(&mut self, word: &str) {
        let detail = match word {
            "e" | "e-flat" => answer::error_detail(self.script, "error"),
            "e-policy" => answer::error_detail(self.script, "policy"),
            "e-limit" => answer::error_detail(self.script, "usage-limit"),
            "e-parameter" => answer::error_detail(self.script, "parameter"),
            other => panic!("no such event in a script: {other}"),
        };
        let mut event = json!({"type": "error", "code": detail["code"], "message": detail["message"],
                               "param": detail["param"]});
        if word != "e-flat" {
            event["error"] = detail;
        }
        self.frame("error", &event.to_string());
    }

    /// Keeps the first half of everything from this step on.
    fn halve(&mut self, from: usize) {
        let tail = self.steps.split_off(from);
        match tail.as_slice() {
            [Step::Text(before), Step::Filler(length), ..] => {
                self.steps.extend([Step::Text(before.clone()), Step::Filler(length / 8 * 4)]);
            }
            [Step::Text(text), ..] => self.steps.push(Step::Text(text[..text.len() / 2].to_vec())),
            _ => {}
        }
        self.images.truncate(usize::try_from(self.partials).expect("a count"));
    }
}

/// All bytes of a stream, without its pauses.
pub(super) fn flatten(steps: &[Step]) -> Vec<u8> {
    steps.iter().flat_map(pieces).flat_map(|piece| piece.to_vec()).collect()
}

/// The pieces of a step, if it has any.
pub(super) fn pieces(step: &Step) -> Box<dyn Iterator<Item = std::sync::Arc<Vec<u8>>> + '_> {
    match step {
        Step::Text(text) => Box::new(std::iter::once(std::sync::Arc::new(text.clone()))),
        Step::Filler(length) => Box::new(base64_filler(*length)),
        _ => Box::new(std::iter::empty()),
    }
}
