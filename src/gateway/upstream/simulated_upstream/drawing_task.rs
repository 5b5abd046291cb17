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

    /// True if no image is being drawn or waits to be taken by [`DrawingTask::poll`].
    pub(super) const fn is_empty(&self) -> bool {
        self.state.is_none()
    }

    /// Begins to draw the next image.
    pub(super) fn begin(&mut self, draw_image: impl FnOnce() -> DrawingResult + Send + 'static) {
        let slots = Arc::clone(&self.slots);
        let work = async move {
            let permit = slots.acquire_owned().await.map_err(|_| ReplyError::BROKEN)?;
            // A drawing in progress cannot be stopped, so it holds its slot until it ends, even if the caller has left.
            let draw = move || {
                let _permit = permit;
                draw_image()
            };
            tokio::task::spawn_blocking(draw).await.unwrap_or(Err(ReplyError::BROKEN))
        };
        self.state = Some(DrawingTaskState::Running(tokio::runtime::Handle::current().spawn(work)));
    }

    /// Stores a drawn image, which the next poll returns.
    pub(super) fn store_image(&mut self, image: String) {
        self.state = Some(DrawingTaskState::Done(image));
    }

    /// Resolves when the image is drawn, and takes it. Fails if [`DrawingTask::is_empty`].
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<DrawingResult> {
        match self.state.take() {
            None => Poll::Ready(Err(ReplyError::BROKEN)),
            Some(DrawingTaskState::Done(image)) => Poll::Ready(Ok(image)),
            Some(DrawingTaskState::Running(mut task)) => match Pin::new(&mut task).poll(cx) {
                Poll::Ready(image) => Poll::Ready(image.unwrap_or(Err(ReplyError::BROKEN))),
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
