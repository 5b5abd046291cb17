//! Stores an answer while it arrives.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use super::answer_head::AnswerHead;
use super::disk_budget::{EvictableStorage, reserve, run_with_timeout};
use super::sealed_file::SealedFile;
use super::stored_answer::{StoredAnswer, StoredAnswerEnd};

/// The writer of one stored answer. If it is dropped before [`AnswerRecorder::mark_complete`], the answer counts as
/// broken off.
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
    /// Begins an answer. Without a file, its bytes are passed on to the present readers and are not stored.
    pub(super) fn begin(
        answer: Arc<StoredAnswer>,
        head: AnswerHead,
        file: io::Result<SealedFile>,
        storage: Arc<dyn EvictableStorage>,
    ) -> Self {
        let file = file
            .inspect_err(|error| tracing::error!(%error, "no file could be created for an answer: it is not stored"));
        let file = file.ok().map(Arc::new);
        answer.begin(head, file.clone());
        Self { answer, output: file.map(|frames| RecorderFile { frames, storage, next_frame: 0 }) }
    }

    /// Writes a body to its end. Returns an error if the body breaks off.
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
            let (remaining, is_full) = self.answer.append(bytes);
            bytes = remaining;
            if is_full && !self.write_tail().await {
                self.answer.discard_tail_when_read().await;
            }
        }
    }

    /// Writes the frame in memory to the file. Returns false if that fails or the answer has no file. After one failure
    /// nothing more is written, because later frames would follow a gap.
    async fn write_tail(&mut self) -> bool {
        let Some(output) = &mut self.output else { return false };
        match output.write_tail(&self.answer).await {
            Ok(()) => true,
            Err(error) => {
                // The file remains until its last reference is dropped. If the process is killed before that, the name
                // of the file shows the next process that the answer is lost.
                tracing::warn!(%error, "an answer is not stored: there is no space on disk");
                self.output = None;
                self.answer.mark_unstored();
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

    /// Marks the answer as complete: its readers then see the end.
    pub(super) fn mark_complete(mut self) {
        self.answer.end(StoredAnswerEnd::Complete);
        self.output = None;
    }
}

impl Drop for AnswerRecorder {
    fn drop(&mut self) {
        // This has no effect after `mark_complete`.
        self.answer.end(StoredAnswerEnd::Broken);
        if let Some(output) = &self.output {
            output.frames.spawn_unlink();
        }
    }
}

// === impl RecorderFile ===

impl RecorderFile {
    /// Encrypts and writes the frame in memory on a blocking thread, so that a stalled disk delays no other task.
    async fn write_tail(&mut self, answer: &StoredAnswer) -> io::Result<()> {
        let frame = answer.tail();
        if frame.is_empty() {
            return Ok(());
        }
        let (storage, frames, number) = (Arc::clone(&self.storage), Arc::clone(&self.frames), self.next_frame);
        let write = move || {
            // Reserving space may remove older files, which may block too.
            let reservation = reserve(&*storage, frame.len() as u64)?;
            frames.write(number, frame).map(|()| reservation)
        };
        let reservation = run_with_timeout(self.storage.free(), write).await?;
        self.next_frame += 1;
        answer.note_tail_written(reservation);
        Ok(())
    }
}
