//! Draws one image at a time, on a blocking thread, as soon as a drawing slot is free.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::gateway::upstream::reply::ReplyError;

type DrawingResult = Result<String, ReplyError>;

/// The drawing task of one answer.
#[derive(Debug)]
pub(super) struct DrawingTask {
    slots: Arc<Semaphore>,
    state: Option<DrawingTaskState>,
}

/// A drawing that is done or in progress.
#[derive(Debug)]
enum DrawingTaskState {
    Done(String),
    Running(JoinHandle<DrawingResult>),
}

// === impl DrawingTask ===

impl DrawingTask {
    pub(super) fn new(slots: &Arc<Semaphore>) -> Self {
        Self { slots: Arc::clone(slots), state: None }
    }

    /// True if no drawing has begun.
    pub(super) const fn is_empty(&self) -> bool {
        self.state.is_none()
    }

    /// Begins the next image.
    pub(super) fn begin(&mut self, draw_image: impl FnOnce() -> DrawingResult + Send + 'static) {
        let places = Arc::clone(&self.slots);
        let work = async move {
            let place = places.acquire_owned().await.map_err(|_| ReplyError)?;
            // A drawing in progress cannot be stopped: its slot is taken until it is done, even if the caller has left.
            let draw = move || {
                let _place = place;
                draw_image()
            };
            tokio::task::spawn_blocking(draw).await.unwrap_or(Err(ReplyError))
        };
        self.state = Some(DrawingTaskState::Running(tokio::runtime::Handle::current().spawn(work)));
    }

    /// Stores an image that was not used yet.
    pub(super) fn store_image(&mut self, image: String) {
        self.state = Some(DrawingTaskState::Done(image));
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<DrawingResult> {
        match self.state.take() {
            None => Poll::Ready(Err(ReplyError)),
            Some(DrawingTaskState::Done(picture)) => Poll::Ready(Ok(picture)),
            Some(DrawingTaskState::Running(mut task)) => match Pin::new(&mut task).poll(cx) {
                Poll::Ready(picture) => Poll::Ready(picture.unwrap_or(Err(ReplyError))),
                Poll::Pending => {
                    self.state = Some(DrawingTaskState::Running(task));
                    Poll::Pending
                }
            },
        }
    }
}

impl Drop for DrawingTask {
    fn drop(&mut self) {
        if let Some(DrawingTaskState::Running(task)) = &self.state {
            task.abort();
        }
    }
}
