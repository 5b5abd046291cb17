//! Callers that ask for an image, leave at any moment, and ask again as their kind of client does.

use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use imagate::client::{Client, Images};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::CallerStage;
use crate::kit::{Answer, Call, Gateway, Program, Random, Reply, TEST_TIMEOUT, ends_within, pause, request, signal};
use crate::pages::visitor::{Visitor, post};

/// The time for which a caller asks again: longer than another node waits for the answer of a job that has ended, before it
/// counts as lost.
const ASKS_FOR: Duration = Duration::from_secs(45);
/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CallerKind {
    /// A request with an idempotency key.
    Keyed,
    /// A stream with an idempotency key.
    KeyedStream,
    /// A client that marks its retries.
    Retrying,
    /// Such a client that asks for a link.
    Link,
    /// An agent with the tools of the gateway.
    Tool,
    /// A form of the playground without a script.
    Form,
    /// The playground with its script, and a second browser of the same person.
    Script,
    /// A program whose call of the SDK ends by its own time limit.
    Sdk,
    /// A command that is stopped with Ctrl-C.
    Command,
    /// A batch that is killed.
    Batch,
}

const KINDS: [CallerKind; 10] = [
    CallerKind::Keyed,
    CallerKind::KeyedStream,
    CallerKind::Retrying,
    CallerKind::Link,
    CallerKind::Tool,
    CallerKind::Form,
    CallerKind::Script,
    CallerKind::Sdk,
    CallerKind::Command,
    CallerKind::Batch,
];

/// The outcome of a caller.
pub(super) enum ImageOutcome {
    /// The image, in base64.
    Image(String),
    /// The caller was told that its image may have been made and is lost.
    Unknown,
    /// The caller has no answer; the text is the last that it got.
    Open(String),
}

pub(super) struct ImageCaller {
    pub(super) number: usize,
    pub(super) kind: CallerKind,
    pub(super) outcome: ImageOutcome,
    prompt: String,
    /// The fields of the form.
    form: Vec<(String, String)>,
    sdk: Option<(tokio::runtime::Runtime, Client)>,
    home: TempDir,
}

impl std::fmt::Display for ImageOutcome {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Image(_) => formatter.write_str("it has the image"),
            Self::Unknown => formatter.write_str("it was told that the outcome is unknown"),
            Self::Open(text) => write!(formatter, "it has no answer: {text}"),
        }
    }
}

/// Returns the number of the caller that sent this prompt.
pub(super) fn number_in(prompt: &str) -> Option<usize> {
    prompt.strip_prefix("picture ")?.split(' ').next()?.parse().ok()
}

// === impl ImageCaller ===

impl ImageCaller {
    /// Asks for an image, and leaves at a random moment, or stays.
    pub(super) fn leave(stage: &CallerStage, number: usize, random: &mut Random) -> Self {
        let kinds = KINDS.len() as u64;
        let kind = KINDS[usize::try_from(random.between(0, kinds)).expect("an index")];
        let mut caller = Self {
            number,
            kind,
            outcome: ImageOutcome::Open("it left".to_owned()),
            prompt: format!("picture {number} [[delay={}]]", random.between(20, 250)),
            form: Vec::new(),
            sdk: None,
            home: TempDir::new().expect("a folder"),
        };
        let (moment, stays) = (Duration::from_millis(random.between(0, 300)), random.between(0, 3) == 0);
        match kind {
            CallerKind::Sdk => caller.ask_with_sdk(stage, Some(moment)),
            CallerKind::Command | CallerKind::Batch => caller.begin_command(stage, moment),
            _ => caller.begin_call(stage, moment, stays),
        }
        caller
    }

    /// True if nothing but the mark of a retry ties the repeats of the caller to its first request.
    pub(super) const fn has_no_key(&self) -> bool {
        matches!(self.kind, CallerKind::Retrying | CallerKind::Link)
    }

    /// Asks again until the caller has its image, or knows that the outcome is unknown.
    pub(super) fn ask_until_answered(&mut self, stage: &CallerStage) {
        let end = Instant::now() + ASKS_FOR;
        while matches!(self.outcome, ImageOutcome::Open(_)) && Instant::now() < end {
            match self.kind {
                CallerKind::Sdk => self.ask_with_sdk(stage, None),
                CallerKind::Command | CallerKind::Batch => self.run_command(stage),
                CallerKind::Form | CallerKind::Script => self.look_at_page(stage),
                _ => {
                    let (call, address) = self.call(stage, true);
                    let sent = call.try_send(address);
                    self.note_answer(stage, sent);
                }
            }
            pause(PAUSE);
        }
    }

    /// Returns the request and the address of the node that gets it.
    fn call(&mut self, stage: &CallerStage, is_repeat: bool) -> (Call, SocketAddr) {
        let node = stage.node(self.number + usize::from(is_repeat));
        let images = |fields: Value| {
            let mut fields = fields;
            fields["prompt"] = json!(self.prompt);
            Call::generation().json(&request(fields)).without_document_check().key(stage.secret())
        };
        let retries = if is_repeat { "1" } else { "0" };
        let key = format!("order-{}", self.number);
        let call = match self.kind {
            CallerKind::KeyedStream => images(json!({"stream": true})).header("idempotency-key", &key),
            CallerKind::Retrying => images(json!({})).header("x-stainless-retry-count", retries),
            CallerKind::Link => images(json!({"response_format": "url"})).header("x-stainless-retry-count", retries),
            CallerKind::Tool => {
                let call = json!({"name": "generate_image", "arguments": {"prompt": self.prompt}});
                let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call});
                Call::post("/mcp").header("accept", "application/json").json(&message).key(stage.secret())
            }
            CallerKind::Form | CallerKind::Script => self.form_call(stage, &node),
            _ => images(json!({})).header("idempotency-key", &key),
        };
        (call, node.address())
    }

    /// Returns the form of the playground, which is filled in once.
    fn form_call(&mut self, stage: &CallerStage, node: &Gateway) -> Call {
        let mut visitor = Visitor::with_cookies(node, &stage.cookies);
        if self.form.is_empty() {
            self.form = visitor.form("/studio", "/studio").with(&[("prompt", &self.prompt)]).fields;
        }
        let cookies: Vec<String> = visitor.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let call = post("/studio", &self.form).header("origin", &visitor.origin());
        let call = call.header("cookie", &cookies.join("; "));
        if self.kind == CallerKind::Script { call.header("accept", "text/event-stream") } else { call }
    }

    fn begin_call(&mut self, stage: &CallerStage, moment: Duration, stays: bool) {
        let (call, address) = self.call(stage, false);
        let Ok(stream) = call.dispatch(address) else { return };
        if !stays {
            pause(moment);
        }
        // A gateway cannot know that a client has left with an answer that it has received.
        let has_answer = stream.set_nonblocking(true).is_ok() && stream.peek(&mut [0]).is_ok_and(|read| read > 0);
        stream.set_nonblocking(false).expect("a socket");
        if stays || has_answer {
            let answer = Reply::read(stream).and_then(Reply::finish);
            self.note_answer(stage, answer);
        }
    }

    /// Notes what an answer brought.
    fn note_answer(&mut self, stage: &CallerStage, sent: std::io::Result<Answer>) {
        let answer = match sent {
            Ok(answer) if answer.complete => answer,
            Ok(answer) => return self.outcome = ImageOutcome::Open(format!("cut: {}", answer.status)),
            Err(error) => return self.outcome = ImageOutcome::Open(error.to_string()),
        };
        let text = answer.text();
        let body: Value = match self.kind {
            CallerKind::KeyedStream | CallerKind::Script => last_event(&text),
            _ => serde_json::from_str(&text).unwrap_or_default(),
        };
        let image = [&body["data"][0], &body["result"]["structuredContent"]["images"][0], &body];
        let base64 = image.iter().find_map(|image| image["b64_json"].as_str().map(str::to_owned));
        let link = image.iter().find_map(|image| image["url"].as_str());
        let failure = &body["result"]["structuredContent"]["code"];
        let picture = base64.or_else(|| link.and_then(|url| fetch(stage, self.number + 1, url)));
        self.outcome = match picture {
            Some(picture) => ImageOutcome::Image(picture),
            None if body["error"]["reason"] == "outcome_unknown" || failure == "upstream_error" => {
                ImageOutcome::Unknown
            }
            // The error event of the contract has no reason.
            None if body["type"] == "error" && body["code"] == "upstream_error" => ImageOutcome::Unknown,
            // The page of the form says it in words.
            None if self.kind == CallerKind::Form && answer.status == 502 => ImageOutcome::Unknown,
            None => ImageOutcome::Open(format!("{} {:.300} {:?}", answer.status, text, answer.header("location"))),
        };
    }

    /// Looks at the page of the form, whose address is known before the form is sent, on another node and in another
    /// browser of the same person. If the form never arrived, it is sent again.
    fn look_at_page(&mut self, stage: &CallerStage) {
        let field = |name: &str| self.form.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value);
        let page = format!("/studio/{}/{}", field("key"), field("nonce"));
        if !self.form.is_empty() && self.note_page(stage, &page) {
            return;
        }
        let (call, address) = self.call(stage, true);
        let sent = call.try_send(address);
        let path = sent.as_ref().ok().and_then(|answer| answer.header("location").map(str::to_owned));
        match path {
            Some(path) => drop(self.note_page(stage, &path)),
            None => self.note_answer(stage, sent),
        }
    }

    /// Notes what the page shows. Returns false if it knows nothing of the form.
    fn note_page(&mut self, stage: &CallerStage, page: &str) -> bool {
        let node = stage.node(self.number + 1);
        let mut visitor = Visitor::with_cookies(&node, &stage.cookies);
        // The page waits a while for its pictures.
        let shown = visitor.get(page);
        let picture = visitor.get(&format!("{page}/0"));
        let text = shown.text();
        self.outcome = match picture.status {
            200 => ImageOutcome::Image(BASE64_STANDARD.encode(&picture.body)),
            // The node was killed before the record was closed, or between that and the storing of the answer.
            _ if text.contains("Interrupted") || text.contains("but it is not stored") => ImageOutcome::Unknown,
            _ => {
                let is_running = text.contains("id=\"running\"");
                ImageOutcome::Open(format!("{} {page}, running: {is_running}", shown.status))
            }
        };
        text.contains("id=\"running\"") || text.contains("class=\"facts\"")
    }

    fn ask_with_sdk(&mut self, stage: &CallerStage, limit: Option<Duration>) {
        let base_url = stage.node(self.number).base_url();
        let (runtime, client) = self.sdk.get_or_insert_with(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            (runtime, Client::new(&base_url, stage.secret()).expect("a client"))
        });
        let asked = runtime.block_on(async {
            let images = client.images();
            tokio::time::timeout(limit.unwrap_or(TEST_TIMEOUT), images.generate(&*self.prompt)).await
        });
        let base64 = |images: &Images| images.iter().next().map(|image| image.base64().into_owned());
        self.outcome = match asked {
            Ok(Ok(images)) => base64(&images).map_or(ImageOutcome::Open("no image".to_owned()), ImageOutcome::Image),
            Ok(Err(error)) if error.reason() == Some("outcome_unknown") => ImageOutcome::Unknown,
            Ok(Err(error)) => ImageOutcome::Open(format!("{error:?}")),
            Err(_) => ImageOutcome::Open("the time limit".to_owned()),
        };
    }

    fn command(&self, stage: &CallerStage) -> Program {
        let base_url = stage.node(self.number).base_url();
        let service = ["--base-url", &base_url, "--api-key", stage.secret()];
        let program = Program::new(self.home.path());
        if self.kind == CallerKind::Batch {
            let line = json!({"prompt": self.prompt}).to_string();
            fs::write(self.home.path().join("batch.jsonl"), line).expect("a file");
            return program.args(["batch", "batch.jsonl", "-o", "images"]).args(service);
        }
        program.args(["generate", &self.prompt, "-o", "images/one.png"]).args(service)
    }

    fn begin_command(&mut self, stage: &CallerStage, moment: Duration) {
        fs::create_dir_all(self.home.path().join("images")).expect("a folder");
        let mut child = self.command(stage).spawn_with(Stdio::null(), Stdio::null(), Stdio::piped());
        pause(moment * 3);
        signal(&child, if self.kind == CallerKind::Batch { "KILL" } else { "INT" });
        assert!(ends_within(&mut child, TEST_TIMEOUT), "the command does not end");
        let mut said = String::new();
        child.stderr.iter_mut().for_each(|stderr| drop(stderr.read_to_string(&mut said)));
        self.outcome = match self.written_image() {
            Some(image) => ImageOutcome::Image(image),
            // It has got its answer before the signal, and the next command is a new request.
            None if said.contains("outcome_unknown") => ImageOutcome::Unknown,
            None => ImageOutcome::Open("stopped".to_owned()),
        };
    }

    fn run_command(&mut self, stage: &CallerStage) {
        let done = self.command(stage).run();
        self.outcome = match self.written_image() {
            Some(image) => ImageOutcome::Image(image),
            None if done.stderr.contains("outcome_unknown") => ImageOutcome::Unknown,
            None => ImageOutcome::Open(format!("{done:?}")),
        };
    }

    fn written_image(&self) -> Option<String> {
        let is_image = |path: &Path| path.extension().is_some_and(|end| end == "png");
        let entries = fs::read_dir(self.home.path().join("images")).ok()?.flatten().map(|entry| entry.path());
        let is_hidden = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let path = entries.into_iter().find(|path| is_image(path) && !is_hidden(path))?;
        Some(BASE64_STANDARD.encode(fs::read(path).expect("an image")))
    }
}

/// Returns the file to which a link leads, in base64. A link is valid on every node, and is opened again if the node ends
/// meanwhile.
fn fetch(stage: &CallerStage, number: usize, url: &str) -> Option<String> {
    let (_, path) = url.split_once("/v1/")?;
    let end = Instant::now() + ASKS_FOR;
    loop {
        let address = stage.node(number).address();
        match Call::get(&format!("/v1/{path}")).without_document_check().try_send(address) {
            Ok(answer) if answer.complete => {
                return (answer.status == 200).then(|| BASE64_STANDARD.encode(&answer.body));
            }
            Ok(_) | Err(_) if Instant::now() < end => pause(PAUSE),
            Ok(_) | Err(_) => return None,
        }
    }
}

/// Returns the data of the last event; an answer that is no stream is its only event.
fn last_event(text: &str) -> Value {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap_or(text);
    serde_json::from_str(data).unwrap_or_default()
}
