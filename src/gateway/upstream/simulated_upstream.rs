//! The simulator as an upstream: it sends the same JSON and the same events as a real upstream, image by image.
//!
//! Drawing keeps a processor busy, so it runs on blocking threads, at most as many at once as there are processors. A
//! request that waits for its drawing holds no pixels.

mod drawing_task;
mod response;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::drawing_task::DrawingTask;
pub(crate) use self::response::SimulatedResponse;
use super::failure_cause::{AttemptFailure, FailureCause};
use super::reply::{Reply, ReplyBody, ReplyError};
use super::simulator::{self, Detail, TestImage};
use crate::gateway::prices::PARTIAL_IMAGE_TOKENS;
use crate::gateway::rules::{Job, ResponseJob};
use crate::gateway::spool::ImageUpload;
use crate::image::Size;

/// The simulator and its limit of concurrent drawings.
#[derive(Debug)]
pub(super) struct SimulatedUpstream {
    drawing_slots: Arc<Semaphore>,
}

/// The images of a job as they are drawn, in the JSON or the events of the images protocol.
#[derive(Debug)]
pub(crate) struct SimulatedBody {
    job: SimulatorJob,
    drawing: DrawingTask,
    sent_count: u32,
    is_done: bool,
}

/// One image of a job.
#[derive(Clone, Copy, Debug)]
struct ImageSpec {
    /// The index of the image, from which its seed is computed.
    index: u32,
    /// The number of the intermediate image, from 0; `None` for the final image. An intermediate image shows the final
    /// one in coarse squares.
    partial: Option<u32>,
}

/// The images to draw, with a value for everything that the request leaves open.
#[derive(Clone, Debug)]
struct SimulatorJob {
    prompt: Arc<str>,
    count: u32,
    /// The number of intermediate images; `None` if no events were requested.
    partials: Option<u32>,
    event_prefix: &'static str,
    width: u32,
    height: u32,
    format: crate::image::Format,
    compression: u8,
    detail: Detail,
    created: i64,
    /// The tokens of the input images of an edit.
    input_image_tokens: u64,
}

/// Returns the size of the first image of an edit, if it is a legal size.
fn first_input_size(job: &Job) -> Option<Size> {
    let first = job.edit_input()?.images.first()?.header.as_ref().ok()?;
    Size::new(first.properties.width, first.properties.height).ok()
}

/// Returns the level of detail for a quality; `auto` is drawn as `medium`.
fn detail_for_quality(quality: Option<&str>) -> Detail {
    match quality {
        Some("low") => Detail::Low,
        Some("high") => Detail::High,
        _ => Detail::Medium,
    }
}

/// Returns the tokens of the input images of an edit: one for each tile of 32x32 pixels (our choice: a plausible count,
/// which no upstream charges).
fn input_image_tokens(job: &Job) -> u64 {
    let tiles = |upload: &ImageUpload| match &upload.header {
        Ok(header) => {
            u64::from(header.properties.width.div_ceil(32)) * u64::from(header.properties.height.div_ceil(32))
        }
        Err(_) => 0,
    };
    job.edit_input().map_or(0, |edit_input| edit_input.images.iter().map(tiles).sum())
}

// === impl SimulatedUpstream ===

impl SimulatedUpstream {
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { drawing_slots: Arc::new(Semaphore::new(processors)) }
    }

    /// Draws the first image; the further images are drawn while the answer is read.
    pub(super) async fn draw_images(&self, job: &Job) -> Result<Reply, AttemptFailure> {
        let mut body = SimulatedBody {
            job: SimulatorJob::from_job(job),
            drawing: DrawingTask::new(&self.drawing_slots),
            sent_count: 0,
            is_done: false,
        };
        body.draw_next();
        let first = std::future::poll_fn(|cx| body.drawing.poll(cx)).await;
        body.drawing.store_image(first.map_err(|_| AttemptFailure::new(FailureCause::Failed))?);
        Ok(Reply { body: ReplyBody::Simulated(body), is_from_image_tool: false, request_id: None, status: 200 })
    }

    /// Begins a response; its image is drawn while the answer is read.
    pub(super) async fn begin_response(&self, job: &ResponseJob) -> Result<Reply, AttemptFailure> {
        let (response_job, drawing) = (job.clone(), DrawingTask::new(&self.drawing_slots));
        let body = job.body().read_with(move || SimulatedResponse::new(&response_job, drawing)).await;
        let body = ReplyBody::SimulatedResponse(Box::new(body.map_err(|_| AttemptFailure::new(FailureCause::Failed))?));
        Ok(Reply { body, is_from_image_tool: false, request_id: None, status: 200 })
    }
}

// === impl SimulatorJob ===

impl SimulatorJob {
    fn from_job(job: &Job) -> Self {
        let size = job.size().exact().or_else(|| first_input_size(job));
        let (width, height) =
            size.map_or_else(|| simulator::resolve_auto(job.prompt()), |size| (size.width(), size.height()));
        Self {
            prompt: job.prompt().into(),
            count: job.count(),
            partials: job.is_stream().then_some(job.partial_images()),
            event_prefix: job.event_prefix(),
            width,
            height,
            format: job.format(),
            compression: job.compression(),
            detail: detail_for_quality(job.quality()),
            created: job.received_at().timestamp(),
            input_image_tokens: input_image_tokens(job),
        }
    }

    /// Returns the number of images to draw, intermediate ones included.
    fn drawing_count(&self) -> u32 {
        self.count + self.partials.unwrap_or(0)
    }

    /// Returns the description of the image with this number. In a stream the intermediate images come first.
    fn image_spec(&self, number: u32) -> ImageSpec {
        match self.partials {
            Some(partials) if number < partials => ImageSpec { index: 0, partial: Some(number) },
            Some(_) => ImageSpec { index: 0, partial: None },
            None => ImageSpec { index: number, partial: None },
        }
    }

    fn draw_base64(&self, spec: ImageSpec) -> Result<String, ReplyError> {
        let image = TestImage {
            prompt: &self.prompt,
            index: spec.index,
            partial: spec.partial,
            width: self.width,
            height: self.height,
            format: self.format,
            compression: self.compression,
            quality: self.detail,
        };
        let file = simulator::draw(&image).map_err(|error| {
            tracing::error!(%error, "the simulator could not draw");
            ReplyError::BROKEN
        })?;
        Ok(STANDARD.encode(file))
    }

    /// Returns the members that JSON answers and events have in common, without the image and the time.
    fn answer_members(&self) -> Value {
        let tokens = simulator::estimate_tokens(&self.prompt, self.width, self.height, self.detail, self.count);
        let input = tokens.input_text + self.input_image_tokens;
        let output = tokens.output_image + u64::from(self.partials.unwrap_or(0)) * PARTIAL_IMAGE_TOKENS;
        json!({
            "background": "opaque",
            "output_format": self.format.as_str(),
            "quality": self.detail.as_str(),
            "size": format!("{}x{}", self.width, self.height),
            "usage": {
                "input_tokens": input,
                "input_tokens_details": {"image_tokens": self.input_image_tokens, "text_tokens": tokens.input_text},
                "output_tokens": output,
                "output_tokens_details": {"image_tokens": output, "text_tokens": 0},
                "total_tokens": input + output,
            },
        })
    }

    /// Returns the text after the last image, which ends the JSON; events need none.
    fn closing_text(&self) -> String {
        if self.partials.is_some() { String::new() } else { format!("],{}", &self.answer_members().to_string()[1..]) }
    }

    /// Returns one image as an element of `data`, or as an event.
    fn encode_image(&self, number: u32, base64: &str) -> String {
        let spec = self.image_spec(number);
        if self.partials.is_none() {
            let opening =
                if number == 0 { format!(r#"{{"created":{},"data":["#, self.created) } else { ",".to_owned() };
            let prompt = Value::from(&*self.prompt);
            return format!(r#"{opening}{{"b64_json":"{base64}","revised_prompt":{prompt}}}"#);
        }
        let (name, mut members) =
            (if spec.partial.is_some() { "partial_image" } else { "completed" }, self.answer_members());
        members["created_at"] = self.created.into();
        if let (Some(partial), Some(object)) = (spec.partial, members.as_object_mut()) {
            object.remove("usage");
            object.insert("partial_image_index".to_owned(), partial.into());
        }
        let kind = format!("{}.{name}", self.event_prefix);
        let remaining_members = &members.to_string()[1..];
        format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"b64_json\":\"{base64}\",{remaining_members}\n\n")
    }
}

// === impl SimulatedBody ===

impl SimulatedBody {
    /// Begins to draw the next image.
    fn draw_next(&mut self) {
        let (job, spec) = (self.job.clone(), self.job.image_spec(self.sent_count));
        self.drawing.begin(move || job.draw_base64(spec));
    }
}

impl Body for SimulatedBody {
    type Data = Bytes;
    type Error = ReplyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        let this = &mut *self;
        if this.is_done {
            return Poll::Ready(None);
        }
        if this.sent_count == this.job.drawing_count() {
            this.is_done = true;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from(this.job.closing_text())))));
        }
        if this.drawing.is_empty() {
            this.draw_next();
        }
        let base64 = match ready!(this.drawing.poll(cx)) {
            Ok(base64) => base64,
            Err(error) => {
                this.is_done = true;
                return Poll::Ready(Some(Err(error)));
            }
        };
        let frame = this.job.encode_image(this.sent_count, &base64);
        this.sent_count += 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(frame)))))
    }
}
