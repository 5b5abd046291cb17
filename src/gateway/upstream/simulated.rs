//! The simulator as an upstream: the same JSON that a real one sends, made picture by picture.
//!
//! Drawing is work for a processor, so it happens on blocking threads, no more of them at once than there are
//! processors: a waiting request costs no memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::reply::{Cause, Class, Failure, Reply, ReplyBody, ReplyError};
use super::simulator::{self, Detail, Picture};
use crate::gateway::rules::Job;

/// Where pictures are drawn.
#[derive(Debug)]
pub(super) struct Studio {
    easels: Arc<Semaphore>,
}

/// Pictures as they are drawn, in the JSON of the images protocol.
#[derive(Debug)]
pub(crate) struct SimulatedBody {
    order: Order,
    easels: Arc<Semaphore>,
    drawing: Option<Drawing>,
    drawn: u32,
    done: bool,
}

/// A picture that is done, or not yet.
#[derive(Debug)]
enum Drawing {
    Done(Result<String, ReplyError>),
    Running(JoinHandle<Result<String, ReplyError>>),
}

/// What is to be drawn, with everything that the request left open resolved.
#[derive(Clone, Debug)]
struct Order {
    prompt: Arc<str>,
    count: u32,
    width: u32,
    height: u32,
    format: crate::image::Format,
    compression: u8,
    detail: Detail,
    created: i64,
}

// === impl Studio ===

impl Studio {
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { easels: Arc::new(Semaphore::new(processors)) }
    }

    /// Draws the first picture; the others follow while the answer is read.
    pub(super) async fn send(&self, job: &Job) -> Result<Reply, Failure> {
        let mut body = SimulatedBody {
            order: Order::of(job),
            easels: Arc::clone(&self.easels),
            drawing: None,
            drawn: 0,
            done: false,
        };
        body.draw();
        let first = std::future::poll_fn(|cx| body.poll_picture(cx)).await;
        let first = first.map_err(|ReplyError| Failure::new(Class::F, Cause::Failed))?;
        body.drawing = Some(Drawing::Done(Ok(first)));
        Ok(Reply { body: ReplyBody::Simulated(body), simulated: true })
    }
}

// === impl Order ===

impl Order {
    fn of(job: &Job) -> Self {
        let (width, height) = job
            .size()
            .exact()
            .map_or_else(|| simulator::resolve_auto(job.prompt()), |size| (size.width(), size.height()));
        let detail = match job.quality() {
            Some("low") => Detail::Low,
            Some("high") => Detail::High,
            _ => Detail::Medium,
        };
        Self {
            prompt: job.prompt().into(),
            count: job.count(),
            width,
            height,
            format: job.format(),
            compression: job.compression(),
            detail,
            created: job.received().timestamp(),
        }
    }

    fn paint(&self, index: u32) -> Result<String, ReplyError> {
        let picture = Picture {
            prompt: &self.prompt,
            index,
            width: self.width,
            height: self.height,
            format: self.format,
            compression: self.compression,
            quality: self.detail,
        };
        let file = simulator::draw(&picture).map_err(|error| {
            tracing::error!(%error, "the simulator could not draw");
            ReplyError
        })?;
        Ok(STANDARD.encode(file))
    }

    /// Everything after the last picture.
    fn ending(&self) -> String {
        let tokens = simulator::tokens(&self.prompt, self.width, self.height, self.detail, self.count);
        let input = tokens.input_text + tokens.input_image;
        let rest = json!({
            "background": "opaque",
            "output_format": self.format.as_str(),
            "quality": match self.detail { Detail::Low => "low", Detail::Medium => "medium", Detail::High => "high" },
            "size": format!("{}x{}", self.width, self.height),
            "usage": {
                "input_tokens": input,
                "input_tokens_details": {"image_tokens": tokens.input_image, "text_tokens": tokens.input_text},
                "output_tokens": tokens.output_image,
                "output_tokens_details": {"image_tokens": tokens.output_image, "text_tokens": 0},
                "total_tokens": input + tokens.output_image,
            },
        });
        format!("],{}", &rest.to_string()[1..])
    }
}

// === impl SimulatedBody ===

impl SimulatedBody {
    /// Begins the next picture.
    fn draw(&mut self) {
        let (order, index, easels) = (self.order.clone(), self.drawn, Arc::clone(&self.easels));
        let work = async move {
            let _easel = easels.acquire_owned().await.map_err(|_| ReplyError)?;
            tokio::task::spawn_blocking(move || order.paint(index)).await.unwrap_or(Err(ReplyError))
        };
        self.drawing = Some(Drawing::Running(tokio::runtime::Handle::current().spawn(work)));
    }

    fn poll_picture(&mut self, cx: &mut Context<'_>) -> Poll<Result<String, ReplyError>> {
        match self.drawing.take() {
            None => Poll::Ready(Err(ReplyError)),
            Some(Drawing::Done(picture)) => Poll::Ready(picture),
            Some(Drawing::Running(mut task)) => match Pin::new(&mut task).poll(cx) {
                Poll::Ready(picture) => Poll::Ready(picture.unwrap_or(Err(ReplyError))),
                Poll::Pending => {
                    self.drawing = Some(Drawing::Running(task));
                    Poll::Pending
                }
            },
        }
    }

    fn frame(&self, base64: &str) -> Bytes {
        let opening =
            if self.drawn == 0 { format!(r#"{{"created":{},"data":["#, self.order.created) } else { ",".to_owned() };
        let prompt = Value::from(&*self.order.prompt);
        Bytes::from(format!(r#"{opening}{{"b64_json":"{base64}","revised_prompt":{prompt}}}"#))
    }
}

impl Body for SimulatedBody {
    type Data = Bytes;
    type Error = ReplyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        let this = &mut *self;
        if this.done {
            return Poll::Ready(None);
        }
        if this.drawn == this.order.count {
            this.done = true;
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from(this.order.ending())))));
        }
        if this.drawing.is_none() {
            this.draw();
        }
        let base64 = match ready!(this.poll_picture(cx)) {
            Ok(base64) => base64,
            Err(broken) => {
                this.done = true;
                return Poll::Ready(Some(Err(broken)));
            }
        };
        let frame = this.frame(&base64);
        this.drawn += 1;
        Poll::Ready(Some(Ok(Frame::data(frame))))
    }
}

impl Drop for SimulatedBody {
    fn drop(&mut self) {
        if let Some(Drawing::Running(task)) = &self.drawing {
            task.abort();
        }
    }
}
