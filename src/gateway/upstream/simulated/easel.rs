//! One picture at a time, on a blocking thread, as soon as there is a place for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::gateway::upstream::reply::ReplyError;

type Painted = Result<String, ReplyError>;

/// Where one answer has its pictures drawn.
#[derive(Debug)]
pub(super) struct Easel {
    places: Arc<Semaphore>,
    drawing: Option<Drawing>,
}

/// A picture that is done, or not yet.
#[derive(Debug)]
enum Drawing {
    Done(String),
    Running(JoinHandle<Painted>),
}

// === impl Easel ===

impl Easel {
    pub(super) fn new(places: &Arc<Semaphore>) -> Self {
        Self { places: Arc::clone(places), drawing: None }
    }

    /// Whether no picture has been begun.
    pub(super) const fn is_empty(&self) -> bool {
        self.drawing.is_none()
    }

    /// Begins the next picture.
    pub(super) fn draw(&mut self, paint: impl FnOnce() -> Painted + Send + 'static) {
        let places = Arc::clone(&self.places);
        let work = async move {
            let place = places.acquire_owned().await.map_err(|_| ReplyError)?;
            // A picture that is being drawn cannot be stopped: its place is taken until it is done, whoever has left.
            let draw = move || {
                let _place = place;
                paint()
            };
            tokio::task::spawn_blocking(draw).await.unwrap_or(Err(ReplyError))
        };
        self.drawing = Some(Drawing::Running(tokio::runtime::Handle::current().spawn(work)));
    }

    /// Puts a picture back that nobody has used yet.
    pub(super) fn keep(&mut self, picture: String) {
        self.drawing = Some(Drawing::Done(picture));
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Painted> {
        match self.drawing.take() {
            None => Poll::Ready(Err(ReplyError)),
            Some(Drawing::Done(picture)) => Poll::Ready(Ok(picture)),
            Some(Drawing::Running(mut task)) => match Pin::new(&mut task).poll(cx) {
                Poll::Ready(picture) => Poll::Ready(picture.unwrap_or(Err(ReplyError))),
                Poll::Pending => {
                    self.drawing = Some(Drawing::Running(task));
                    Poll::Pending
                }
            },
        }
    }
}

impl Drop for Easel {
    fn drop(&mut self) {
        if let Some(Drawing::Running(task)) = &self.drawing {
            task.abort();
        }
    }
}
