//! Writes an answer down as it comes.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use super::frames::Frames;
use super::head::Head;
use super::room::{Room, in_time, reserve};
use super::tape::{End, Tape};

/// Writes one tape. Dropped without an end, the answer has broken off.
pub(super) struct Recorder {
    tape: Arc<Tape>,
    sink: Option<Sink>,
}

/// The file of a tape.
struct Sink {
    frames: Arc<Frames>,
    room: Arc<dyn Room>,
    next: u64,
}

// === impl Recorder ===

impl Recorder {
    /// Begins an answer. Without a file it goes from hand to hand, and is not kept.
    pub(super) fn begin(tape: Arc<Tape>, head: Head, frames: io::Result<Frames>, room: Arc<dyn Room>) -> Self {
        let frames = frames.inspect_err(|error| tracing::error!(%error, "an answer has no file and is not kept"));
        let frames = frames.ok().map(Arc::new);
        tape.begin(head, frames.clone());
        Self { tape, sink: frames.map(|frames| Sink { frames, room, next: 0 }) }
    }

    /// Writes a whole body; `Err` where it broke off.
    pub(super) async fn pump<B>(&mut self, mut body: B) -> Result<(), B::Error>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                self.write(&data).await;
            }
        }
        Ok(())
    }

    async fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (rest, full) = self.tape.append(bytes);
            bytes = rest;
            if full && !self.keep().await {
                self.tape.hand_on().await;
            }
        }
    }

    /// Puts the frame in memory into the file. One failure is the end of keeping: what follows would have a gap before
    /// it.
    async fn keep(&mut self) -> bool {
        let Some(sink) = &mut self.sink else { return false };
        match sink.keep(&self.tape).await {
            Ok(()) => true,
            Err(error) => {
                // Its file stays until the last holder is gone: after a kill its name says that the answer is lost.
                tracing::warn!(%error, "an answer is not kept: it does not fit on disk");
                self.sink = None;
                false
            }
        }
    }

    /// All of the body has come. The file, where all of it is there; it may still be in the system's memory.
    pub(super) async fn close(&mut self) -> Option<Arc<Frames>> {
        self.keep().await;
        self.sink.as_ref().map(|sink| Arc::clone(&sink.frames))
    }

    /// Readers may see the end.
    pub(super) fn end(mut self) {
        self.tape.end(End::Complete);
        self.sink = None;
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // After a good end this says nothing new.
        self.tape.end(End::Broken);
        if let Some(sink) = &self.sink {
            sink.frames.remove();
        }
    }
}

// === impl Sink ===

impl Sink {
    /// Seals and writes on a thread that may block, so that a stalled disk holds up no other task.
    async fn keep(&mut self, tape: &Tape) -> io::Result<()> {
        let frame = tape.tail();
        if frame.is_empty() {
            return Ok(());
        }
        let (room, frames, number) = (Arc::clone(&self.room), Arc::clone(&self.frames), self.next);
        let write = move || {
            // Making room unlinks older files, which may block too.
            let reserved = reserve(&*room, frame.len() as u64)?;
            frames.write(number, frame).map(|()| reserved)
        };
        let reserved = in_time(self.room.free(), write).await?;
        self.next += 1;
        tape.kept(reserved);
        Ok(())
    }
}
