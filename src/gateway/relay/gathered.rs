//! Several answers with one image each become one answer: every image is kept on disk until the last one is decided.
//!
//! So an account is free again as soon as it has drawn, however slowly the caller reads, and before the answer begins it is
//! known how many images there are. Memory is constant, whatever the images weigh.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::course::Course;
use super::fill::{self, Asked, Usage, sum};
use super::prove::Proven;
use super::rewrite::{BEGIN, Summary, write_end};
use super::tap::{Broken, Step};
use crate::gateway::spool::{Spooled, Writer};
use crate::image::{Facts, Source as _};

/// So much of a file is read at once.
const READ: usize = 64 * 1024;

/// One image of an answer, kept.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The element of `data`, as it goes out.
    element: Arc<Spooled>,
    /// What the upstream said beside its image.
    members: Map<String, Value>,
    summary: Summary,
}

/// An image was not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unkept {
    /// Its answer broke off, and this was charged all the same.
    Broken(Broken, Option<Usage>),
    /// Our own disk did not take it, and this was charged all the same.
    Disk(io::ErrorKind, Option<Usage>),
}

/// Images that are all there, on their way out.
#[derive(Debug)]
pub(super) struct Gathered {
    asked: Asked,
    images: Vec<Kept>,
    summary: Summary,
    /// The image that is being read, and how far.
    at: usize,
    offset: u64,
    /// The next piece, read on a thread that may wait.
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

/// Reads an answer of one image to its end, onto the disk. It is read to its end also where the disk does not take it: the
/// tokens come last, and they were paid for.
pub(crate) async fn keep(proven: Proven, writer: Writer) -> Result<Kept, Unkept> {
    let mut course = proven.course;
    let mut full = None;
    let mut writer = Some(writer);
    loop {
        let step = std::future::poll_fn(|cx| course.poll_step(cx)).await;
        let step = step.map_err(|broken| match full {
            None => Unkept::Broken(broken, course.summary().usage),
            Some(kind) => Unkept::Disk(kind, course.summary().usage),
        })?;
        let (pieces, summary) = match step {
            Step::Pieces(pieces) => (pieces, None),
            Step::End(tail, summary) => (vec![tail], Some(*summary)),
        };
        for piece in pieces {
            let Some(open) = writer.take() else { break };
            match open.append(piece).await {
                Ok(open) => writer = Some(open),
                Err(error) => full = Some(error.kind()),
            }
        }
        let Some(summary) = summary else { continue };
        let Some(writer) = writer.take() else {
            return Err(Unkept::Disk(full.unwrap_or(io::ErrorKind::Other), summary.usage));
        };
        return Ok(Kept { element: writer.finish(), members: course.take_members(), summary });
    }
}

/// One answer of these images, of which there must be one. `lost` was charged for those that are not among them.
pub(crate) fn gather(images: Vec<Kept>, asked: Asked, lost: Option<Usage>) -> Proven {
    let charged = images.iter().map(|image| image.summary.usage).fold(lost, sum);
    let named = |name: fn(&Summary) -> Option<String>| images.iter().find_map(|image| name(&image.summary));
    let summary = Summary {
        delivered: images.iter().flat_map(|image| image.summary.delivered.iter().cloned()).collect(),
        usage: charged,
        image_model: named(|summary| summary.image_model.clone()),
        host_model: named(|summary| summary.host_model.clone()),
        response_id: None,
    };
    Proven { course: Course::Gathered(Box::new(Gathered { asked, images, summary, at: 0, offset: 0, reading: None })) }
}

// === impl Kept ===

impl Kept {
    /// What the image is, where its head told.
    pub(crate) fn facts(&self) -> Option<Facts> {
        self.summary.delivered.first()?.facts
    }
}

// === impl Gathered ===

impl Gathered {
    /// The next pieces for the caller.
    pub(super) fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<Step, Broken>> {
        let Some(image) = self.images.get(self.at) else {
            return Poll::Ready(Ok(Step::End(self.end(), Box::new(self.summary.clone()))));
        };
        let (file, offset) = (&image.element, self.offset);
        let reading = self.reading.get_or_insert_with(|| {
            let file = Arc::clone(file);
            Handle::current().spawn_blocking(move || read(&file, offset))
        });
        let read = ready!(Pin::new(reading).poll(cx)).map_err(io::Error::other).flatten();
        self.reading = None;
        let piece = match read {
            Ok(piece) => piece,
            Err(error) => {
                tracing::error!(%error, "an image that was kept cannot be read back");
                return Poll::Ready(Err(Broken::Lost));
            }
        };
        let before = (offset == 0).then(|| Bytes::from_static(if self.at == 0 { BEGIN } else { b"," }));
        self.offset += piece.len() as u64;
        if self.offset == file.len() {
            (self.at, self.offset) = (self.at + 1, 0);
        }
        Poll::Ready(Ok(Step::Pieces(before.into_iter().chain([piece]).collect())))
    }

    fn end(&self) -> Bytes {
        let mut members = self.images.first().map(|image| image.members.clone()).unwrap_or_default();
        let counted = self.images.iter().filter_map(|image| image.members.get("usage").and_then(fill::usage));
        members.remove("usage");
        members.extend(counted.reduce(fill::add).map(|usage| ("usage".to_owned(), usage)));
        let mut end = Vec::new();
        write_end(&mut end, &fill::members(&self.asked, &members, self.first()));
        Bytes::from(end)
    }

    pub(super) fn summary(&self) -> Summary {
        self.summary.clone()
    }

    /// What the first image is, where its head told.
    pub(super) fn first(&self) -> Option<Facts> {
        self.images.first().and_then(Kept::facts)
    }
}

fn read(file: &Spooled, offset: u64) -> io::Result<Bytes> {
    let left = file.len() - offset;
    let mut buffer = vec![0; usize::try_from(left).map_or(READ, |left| left.min(READ))];
    let count = file.read_at(offset, &mut buffer)?;
    if count == 0 && left > 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    buffer.truncate(count);
    Ok(buffer.into())
}
