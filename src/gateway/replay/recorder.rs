//! Writes an answer down as it arrives.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use super::frames::SealedFile;
use super::head::AnswerHead;
use super::room::{EvictableStorage, in_time, reserve};
use super::tape::{StoredAnswer, StoredAnswerEnd};

/// Writes one stored answer. If it is dropped without an end, the answer has broken off.
pub(super) struct AnswerRecorder {
    tape: Arc<StoredAnswer>,
    sink: Option<RecorderFile>,
}

/// The file of a stored answer.
struct RecorderFile {
    frames: Arc<SealedFile>,
    room: Arc<dyn EvictableStorage>,
    next: u64,
}

// === impl AnswerRecorder ===

impl AnswerRecorder {
    /// Begins an answer. Without a file its bytes are passed on to the current readers, and are not kept.
    pub(super) fn begin(
        tape: Arc<StoredAnswer>,
        head: AnswerHead,
        frames: io::Result<SealedFile>,
        room: Arc<dyn EvictableStorage>,
    ) -> Self {
        let frames = frames
            .inspect_err(|error| tracing::error!(%error, "no file could be created for an answer: it is not stored"));
        let frames = frames.ok().map(Arc::new);
        tape.begin(head, frames.clone());
        Self { tape, sink: frames.map(|frames| RecorderFile { frames, room, next: 0 }) }
    }

    /// Writes a complete body; returns an error if the body broke off.
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

    /// Writes the frame in memory to the file. After one failure nothing more is kept: later frames would follow a gap.
    async fn keep(&mut self) -> bool {
        let Some(sink) = &mut self.sink else { return false };
        match sink.keep(&self.tape).await {
            Ok(()) => true,
            Err(error) => {
                // The file remains until its last holder drops it: after a kill its name shows that the answer is lost.
                tracing::warn!(%error, "an answer is not stored: there is no space on disk");
                self.sink = None;
                false
            }
        }
    }

    /// Ends the writing after the complete body. Returns the file if it has the complete body, which the operating
    /// system may still have in memory.
    pub(super) async fn close(&mut self) -> Option<Arc<SealedFile>> {
        self.keep().await;
        self.sink.as_ref().map(|sink| Arc::clone(&sink.frames))
    }

    /// Lets readers see the end.
    pub(super) fn end(mut self) {
        self.tape.end(StoredAnswerEnd::Complete);
        self.sink = None;
    }
}

impl Drop for AnswerRecorder {
    fn drop(&mut self) {
        // After a complete end this has no effect.
        self.tape.end(StoredAnswerEnd::Broken);
        if let Some(sink) = &self.sink {
            sink.frames.remove();
        }
    }
}

// === impl RecorderFile ===

impl RecorderFile {
    /// Seals and writes on a thread that may block, so that a stalled disk delays no other task.
    async fn keep(&mut self, tape: &StoredAnswer) -> io::Result<()> {
        let frame = tape.tail();
        if frame.is_empty() {
            return Ok(());
        }
        let (room, frames, number) = (Arc::clone(&self.room), Arc::clone(&self.frames), self.next);
        let write = move || {
            // Making space removes older files, which may block too.
            let reserved = reserve(&*room, frame.len() as u64)?;
            frames.write(number, frame).map(|()| reserved)
        };
        let reserved = in_time(self.room.free(), write).await?;
        self.next += 1;
        tape.kept(reserved);
        Ok(())
    }
}
