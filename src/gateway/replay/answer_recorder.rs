//! Writes an answer down as it arrives.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use super::answer_head::AnswerHead;
use super::disk_budget::{EvictableStorage, reserve, run_with_timeout};
use super::sealed_file::SealedFile;
use super::stored_answer::{StoredAnswer, StoredAnswerEnd};

/// Writes one stored answer. If it is dropped before [`AnswerRecorder::mark_complete`], the answer counts as broken
/// off.
pub(super) struct AnswerRecorder {
    answer: Arc<StoredAnswer>,
    output: Option<RecorderFile>,
}

/// The file of a stored answer.
struct RecorderFile {
    frames: Arc<SealedFile>,
    storage: Arc<dyn EvictableStorage>,
    next_frame: u64,
}

// === impl AnswerRecorder ===

impl AnswerRecorder {
    /// Begins an answer. Without a file its bytes are passed on to the current readers, and are not kept.
    pub(super) fn begin(
        answer: Arc<StoredAnswer>,
        head: AnswerHead,
        frames: io::Result<SealedFile>,
        storage: Arc<dyn EvictableStorage>,
    ) -> Self {
        let frames = frames
            .inspect_err(|error| tracing::error!(%error, "no file could be created for an answer: it is not stored"));
        let frames = frames.ok().map(Arc::new);
        answer.begin(head, frames.clone());
        Self { answer, output: frames.map(|frames| RecorderFile { frames, storage, next_frame: 0 }) }
    }

    /// Writes a complete body; returns an error if the body broke off.
    pub(super) async fn record_body<B>(&mut self, mut body: B) -> Result<(), B::Error>
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
            let (rest, full) = self.answer.append(bytes);
            bytes = rest;
            if full && !self.write_tail().await {
                self.answer.discard_tail_when_read().await;
            }
        }
    }

    /// Writes the frame in memory to the file. After one failure nothing more is kept: later frames would follow a gap.
    async fn write_tail(&mut self) -> bool {
        let Some(output) = &mut self.output else { return false };
        match output.write_tail(&self.answer).await {
            Ok(()) => true,
            Err(error) => {
                // The file remains until its last holder drops it. If the process is killed before that, the name of
                // the file shows the next process that the answer is lost.
                tracing::warn!(%error, "an answer is not stored: there is no space on disk");
                self.output = None;
                false
            }
        }
    }

    /// Writes the last frame after the complete body. Returns the file if it contains the complete body. The operating
    /// system may not have written all of it to the disk yet.
    pub(super) async fn finish_file(&mut self) -> Option<Arc<SealedFile>> {
        self.write_tail().await;
        self.output.as_ref().map(|output| Arc::clone(&output.frames))
    }

    /// Lets readers see the end.
    pub(super) fn mark_complete(mut self) {
        self.answer.end(StoredAnswerEnd::Complete);
        self.output = None;
    }
}

impl Drop for AnswerRecorder {
    fn drop(&mut self) {
        // After a complete end this has no effect.
        self.answer.end(StoredAnswerEnd::Broken);
        if let Some(output) = &self.output {
            output.frames.spawn_unlink();
        }
    }
}

// === impl RecorderFile ===

impl RecorderFile {
    /// Encrypts and writes the frame on a thread that may block, so that a stalled disk delays no other task.
    async fn write_tail(&mut self, answer: &StoredAnswer) -> io::Result<()> {
        let frame = answer.tail();
        if frame.is_empty() {
            return Ok(());
        }
        let (storage, frames, number) = (Arc::clone(&self.storage), Arc::clone(&self.frames), self.next_frame);
        let write = move || {
            // Reserving space may remove older files, which may block too.
            let reserved = reserve(&*storage, frame.len() as u64)?;
            frames.write(number, frame).map(|()| reserved)
        };
        let reserved = run_with_timeout(self.storage.free(), write).await?;
        self.next_frame += 1;
        answer.note_tail_written(reserved);
        Ok(())
    }
}
