//! Stores an answer while it arrives.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body::Body;
use http_body_util::BodyExt as _;

use super::answer_folder::AnswerFolder;
use super::answer_head::AnswerHead;
use super::disk_budget::{AnswerSpace, EvictableStorage as _, reserve, run_with_timeout};
use super::fingerprint::ReplayDigest;
use super::sealed_file::{FileKey, SealedFile};
use super::stored_answer::{StoredAnswer, StoredAnswerEnd};
use super::unstored_answers::UnstoredAnswers;
use crate::gateway::store::KeyId;

/// The memory that is reserved at once for the rest of an answer (our choice).
const MEMORY_STEP_BYTES: u64 = 1024 * 1024;

/// The writer of one stored answer. If it is dropped before [`AnswerRecorder::mark_complete`], the answer counts as
/// broken off.
pub(super) struct AnswerRecorder {
    answer: Arc<StoredAnswer>,
    output: Option<RecorderFile>,
    /// The memory for what cannot be written; `None` if the answer may be passed on to its present readers only.
    memory: Option<Arc<UnstoredAnswers>>,
    /// True if space was reserved for the answer: its caller has no other way to it, so it may take the memory of others.
    has_space: bool,
    /// True if what cannot be written is kept in memory only if nobody reads the answer: its readers have it already.
    is_for_later: bool,
}

/// The file of a stored answer.
struct RecorderFile {
    folder: Arc<AnswerFolder>,
    frames: Arc<SealedFile>,
    next_frame: u64,
    /// The space that was reserved before the answer was made.
    space: Option<AnswerSpace>,
    /// The content of the future row, until the file is complete.
    pending: Option<PendingFile>,
}

/// A complete file, with the content of its future row.
pub(super) struct PendingFile {
    /// The name of the file.
    pub(super) name: String,
    pub(super) key: FileKey,
    pub(super) head: AnswerHead,
    pub(super) frames: Arc<SealedFile>,
}

// === impl AnswerRecorder ===

impl AnswerRecorder {
    /// Begins an answer in a file of this API key; the name of an unfinished file of a plain job has its fingerprint.
    pub(super) async fn begin(
        folder: &Arc<AnswerFolder>,
        answer: &Arc<StoredAnswer>,
        owner: &KeyId,
        fingerprint: Option<ReplayDigest>,
        head: AnswerHead,
    ) -> Self {
        let file = folder.create_file(owner, fingerprint).await;
        Self::new(folder, answer, head, file)
    }

    /// Begins an answer in this file. Without a file, its bytes are passed on to the present readers and are not stored.
    pub(super) fn new(
        folder: &Arc<AnswerFolder>,
        answer: &Arc<StoredAnswer>,
        head: AnswerHead,
        file: io::Result<(String, SealedFile, FileKey)>,
    ) -> Self {
        let file = file
            .inspect_err(|error| tracing::error!(%error, "no file could be created for an answer: it is not stored"));
        let file = file.ok().map(|(name, frames, key)| (name, Arc::new(frames), key));
        answer.begin(head.clone(), file.as_ref().map(|(_, frames, _)| Arc::clone(frames)));
        let output = file.map(|(name, frames, key)| {
            let pending = Some(PendingFile { name, key, head, frames: Arc::clone(&frames) });
            RecorderFile { folder: Arc::clone(folder), frames, next_frame: 0, space: None, pending }
        });
        Self { answer: Arc::clone(answer), output, memory: None, has_space: false, is_for_later: false }
    }

    /// Uses the space that was reserved for the answer, if any, and keeps in memory what cannot be written.
    pub(super) fn keep_all(&mut self, space: Option<AnswerSpace>, memory: &Arc<UnstoredAnswers>) {
        (self.memory, self.has_space) = (Some(Arc::clone(memory)), space.is_some());
        if let Some(output) = &mut self.output {
            output.space = space;
        }
    }

    /// Keeps in memory what cannot be written if nobody reads the answer by then.
    pub(super) fn keep_for_later(&mut self, memory: &Arc<UnstoredAnswers>) {
        self.is_for_later = true;
        self.keep_all(None, memory);
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
            let is_in_memory = self.answer.free_memory().is_some();
            if is_in_memory && self.reserve_memory(bytes.len() as u64) {
                return self.answer.append_in_memory(bytes);
            }
            if is_in_memory {
                self.discard_tail().await;
            }
            let (remaining, is_full) = self.answer.append(bytes);
            bytes = remaining;
            if is_full && !self.write_tail().await && !self.reserve_memory(0) {
                self.discard_tail().await;
            }
        }
    }

    /// Drops the tail when the present readers have it: a part of the answer is then lost for others.
    async fn discard_tail(&self) {
        self.answer.mark_unstored();
        self.answer.discard_tail_when_read().await;
    }

    /// Reserves memory for the tail and for bytes that follow it. Returns false if there is none, or if the answer has
    /// lost bytes before.
    fn reserve_memory(&mut self, bytes: u64) -> bool {
        let Some(memory) = self.memory.as_ref().filter(|_| !self.answer.has_gap()) else { return false };
        let missing = match self.answer.free_memory() {
            Some(free) if free >= bytes => return true,
            Some(free) => bytes - free,
            None if self.is_for_later && self.answer.has_readers() => return false,
            None => bytes.saturating_add(self.answer.tail().len() as u64),
        };
        let reserve = |bytes| memory.reserve(bytes, self.has_space);
        let reservation = reserve(missing.max(MEMORY_STEP_BYTES)).or_else(|| reserve(missing));
        let Some(reservation) = reservation else {
            self.memory = None;
            return false;
        };
        self.answer.add_memory(reservation);
        true
    }

    /// Writes the frame in memory to the file. Returns false if that fails or the answer has no file. After one failure
    /// nothing more is written, because later frames would follow a gap.
    async fn write_tail(&mut self) -> bool {
        let Some(output) = &mut self.output else { return false };
        match output.write_tail(&self.answer, self.has_space).await {
            Ok(()) => true,
            Err(error) => {
                // The file remains until its last reference is dropped. If the process is killed before that, the name
                // of the file shows the next process that the answer is lost.
                tracing::warn!(%error, "an answer is not stored: there is no space on disk");
                self.output = None;
                false
            }
        }
    }

    /// Writes the last frame after the complete body. Returns the file if it contains the complete body. The operating
    /// system may not have written all of it to the disk yet.
    pub(super) async fn finish_file(&mut self) -> Option<PendingFile> {
        self.write_tail().await;
        self.output.as_mut().and_then(|output| output.pending.take())
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
    /// If it `spares` others, the answer takes the place of no young answer of its key.
    async fn write_tail(&mut self, answer: &StoredAnswer, spares: bool) -> io::Result<()> {
        let frame = answer.tail();
        if frame.is_empty() {
            return Ok(());
        }
        let name = self.pending.as_ref().map(|pending| pending.name.clone()).unwrap_or_default();
        let (folder, frames, number) = (Arc::clone(&self.folder), Arc::clone(&self.frames), self.next_frame);
        let reserved = self.space.as_mut().and_then(|space| space.take(frame.len() as u64));
        let write = move || {
            // Reserving space may remove older files, which may block too.
            let bytes = frame.len() as u64;
            let reservation = match reserved {
                Some(reservation) => reservation,
                None if spares => reserve(&folder.sparing(&name), bytes)?,
                None => reserve(&*folder, bytes)?,
            };
            frames.write(number, frame).map(|()| reservation)
        };
        let reservation = run_with_timeout(self.folder.free(), write).await?;
        self.next_frame += 1;
        answer.note_tail_written(reservation);
        Ok(())
    }
}
