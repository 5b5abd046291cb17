//! The bytes of stored answers that the nodes of a shared database have in common.
//!
//! When an answer is durable and its readers see its end, its node writes the bytes of the file to the database: one
//! answer after the other, in pieces, encrypted as they are in the file. A node that does not have the file of an answer
//! reads the pieces into a file of its own folder, where it counts and expires like its own answers. So memory holds one
//! piece, however large the answer is.
//!
//! If anything fails, only nodes with the file can send the answer, and the others give the error "outcome unknown".

mod fetched_file;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep, timeout};

use super::answer_folder::AnswerFolder;
use super::disk_budget::{EvictableStorage as _, whole_blocks};
use super::durable_answers::AnswerStorageError;
use super::pending_work::PendingGuard;
use super::sealed_file::sealed_length;
use crate::gateway::spool::positioned_io;
use crate::gateway::store::{
    AnswerPiece, ReplayStore, SharedAnswerState, SharedAnswers, StoreError, StoredAnswerRow, Timestamp,
};
use fetched_file::FetchedFile;

/// The bytes of one piece (our choice): as many as a statement moves in some milliseconds.
const PIECE_BYTES: u64 = 256 * 1024;
/// The most answers that wait until their bytes are written (our choice). Further ones are not shared.
const QUEUE_MAX: usize = 1024;
/// A node checks the space of all nodes before it has written more than one part in this many of the limit, or more than
/// these bytes, since its last check (our choice). So the total is above the limit by at most that for each node.
const CHECK_SHARE_DIVISOR: u64 = 16;
const CHECK_BYTES_MAX: u64 = 64 << 20;
/// The longest wait of a request until another node has written all pieces (our choice).
const COMPLETION_WAIT_MAX: Duration = Duration::from_secs(20);
/// The pause between two reads of the state of such an answer (our choice).
const COMPLETION_PAUSE: Duration = Duration::from_millis(100);
/// The longest time in which the pieces of an answer are read (our choice).
const FETCH_TIME_MAX: Duration = Duration::from_secs(60);

/// The shared bytes, as one node writes and reads them.
pub(super) struct AnswerSharing {
    store: Arc<dyn ReplayStore>,
    folder: Arc<AnswerFolder>,
    max_bytes: u64,
    queue: mpsc::Sender<FinishedFile>,
    /// Requests that read pieces take turns: repeats of one request then find the file that the first of them has read.
    fetch_lock: Mutex<()>,
}

/// A file whose bytes are to be written to the database.
struct FinishedFile {
    name: String,
    length: u64,
    /// Keeps the store open until the bytes are written.
    _pending: PendingGuard,
}

/// A place in the queue, for an answer whose row is about to be written.
pub(super) struct SharingSlot {
    permit: mpsc::OwnedPermit<FinishedFile>,
    length: u64,
    pending: PendingGuard,
}

/// The task that writes the bytes.
struct SharingTask {
    store: Arc<dyn ReplayStore>,
    folder: Arc<AnswerFolder>,
    max_bytes: u64,
    /// The number of bytes that may be written before the next check.
    unchecked_bytes: u64,
}

// === impl AnswerSharing ===

impl AnswerSharing {
    /// Starts the task that writes the bytes of this node's answers; `None` if no other node can share them. The task
    /// ends after this value is dropped. All nodes together write about `max_bytes`.
    pub(super) fn start(store: Arc<dyn ReplayStore>, folder: Arc<AnswerFolder>, max_bytes: u64) -> Option<Self> {
        store.shared_answers()?;
        let (queue, finished_files) = mpsc::channel(QUEUE_MAX);
        let (task_store, task_folder) = (Arc::clone(&store), Arc::clone(&folder));
        let task = SharingTask { store: task_store, folder: task_folder, max_bytes, unchecked_bytes: 0 };
        drop(tokio::runtime::Handle::current().spawn(task.run(finished_files)));
        Some(Self { store, folder, max_bytes, queue, fetch_lock: Mutex::default() })
    }

    /// Returns a place in the queue for an answer of this size; `None` if too many answers wait already, or if the
    /// answer is larger than the limit.
    pub(super) fn reserve_slot(&self, size: u64, pending: PendingGuard) -> Option<SharingSlot> {
        let length = sealed_length(size);
        if whole_blocks(length) > self.max_bytes {
            return None;
        }
        let permit = self.queue.clone().try_reserve_owned().ok()?;
        Some(SharingSlot { permit, length, pending })
    }

    /// Reads the file of an answer from the database into the folder of this node. Returns false if its bytes are not
    /// there.
    ///
    /// # Errors
    ///
    /// Returns an error if the store or the disk fails.
    pub(super) async fn fetch(&self, row: &StoredAnswerRow, expires_at: Timestamp) -> Result<bool, AnswerStorageError> {
        let Some(answers) = self.store.shared_answers() else { return Ok(false) };
        if !wait_until_complete(answers, &row.file).await? {
            return Ok(false);
        }
        let _guard = self.fetch_lock.lock().await;
        let length = sealed_length(row.size);
        // Another request of this node may have read it meanwhile.
        if self.folder.has_file(&row.file, length).await? {
            return Ok(true);
        }
        let fetch = self.fetch_pieces(answers, &row.file, length, expires_at);
        timeout(FETCH_TIME_MAX, fetch).await.map_err(|_| "the database is too slow")?
    }

    async fn fetch_pieces(
        &self,
        answers: &dyn SharedAnswers,
        name: &str,
        length: u64,
        expires_at: Timestamp,
    ) -> Result<bool, AnswerStorageError> {
        let mut target = FetchedFile::create(&self.folder, name, length).await?;
        for number in 0..piece_count(length) {
            let Some(bytes) = answers.read_answer_piece(name, number).await? else { return Ok(false) };
            let (offset, expected_length) = piece_range(number, length);
            if bytes.len() as u64 != expected_length {
                return Err("a piece of an answer has another length than its file".into());
            }
            target.write(bytes, offset).await?;
        }
        target.finish(expires_at).await?;
        Ok(true)
    }

    /// Removes the bytes of an answer that nobody may get any more. A failure is not reported: they are removed with
    /// their row.
    pub(super) async fn withdraw(&self, name: &str) {
        withdraw(&*self.store, name).await;
    }
}

// === impl SharingSlot ===

impl SharingSlot {
    /// Returns the bytes that the answer will take in the database.
    pub(super) const fn bytes(&self) -> u64 {
        whole_blocks(self.length)
    }

    /// Lets the task write the bytes of this file, whose row is written.
    pub(super) fn send(self, name: String) {
        self.permit.send(FinishedFile { name, length: self.length, _pending: self.pending });
    }
}

// === impl SharingTask ===

impl SharingTask {
    async fn run(mut self, mut finished_files: mpsc::Receiver<FinishedFile>) {
        while let Some(file) = finished_files.recv().await {
            if let Err(error) = self.share(&file).await {
                tracing::warn!(
                    error = &*error as &dyn std::error::Error,
                    "other nodes cannot send an answer: its bytes were not written to the database"
                );
                withdraw(&*self.store, &file.name).await;
            }
        }
    }

    async fn share(&mut self, finished: &FinishedFile) -> Result<(), AnswerStorageError> {
        let store = Arc::clone(&self.store);
        let Some(answers) = store.shared_answers() else { return Ok(()) };
        self.make_room(answers, finished.length).await?;
        let file = Arc::new(self.folder.open_for_sharing(&finished.name).await?);
        let count = piece_count(finished.length);
        for number in 0..count {
            let (source, (offset, length)) = (Arc::clone(&file), piece_range(number, finished.length));
            let bytes = self.folder.free().run_blocking(move || read_range(&source, offset, length)).await?;
            let piece = AnswerPiece { file: &finished.name, number, is_last: number + 1 == count, bytes: &bytes };
            if !answers.write_answer_piece(piece).await? {
                // It was removed to make room, or because its claim has ended.
                break;
            }
        }
        Ok(())
    }

    async fn make_room(&mut self, answers: &dyn SharedAnswers, length: u64) -> Result<(), StoreError> {
        if length > self.unchecked_bytes {
            // The answer itself is counted already: it was announced with its row.
            answers.limit_shared_answers(self.max_bytes).await?;
            self.unchecked_bytes = (self.max_bytes / CHECK_SHARE_DIVISOR).min(CHECK_BYTES_MAX);
        }
        self.unchecked_bytes = self.unchecked_bytes.saturating_sub(length);
        Ok(())
    }
}

/// Waits until all pieces of an answer are written. Returns false if the answer is not there, or takes too long.
async fn wait_until_complete(answers: &dyn SharedAnswers, name: &str) -> Result<bool, StoreError> {
    let deadline = Instant::now() + COMPLETION_WAIT_MAX;
    loop {
        match answers.find_shared_answer(name).await? {
            Some(SharedAnswerState::Complete) => return Ok(true),
            Some(SharedAnswerState::Incomplete) if Instant::now() < deadline => sleep(COMPLETION_PAUSE).await,
            Some(SharedAnswerState::Incomplete) | None => return Ok(false),
        }
    }
}

async fn withdraw(store: &dyn ReplayStore, name: &str) {
    if let Some(answers) = store.shared_answers()
        && let Err(error) = answers.remove_shared_answer(name).await
    {
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "the bytes of an answer stay in the database until its claim expires");
    }
}

/// Returns the number of pieces of a file. An empty file has one, so that it can be complete.
fn piece_count(length: u64) -> u32 {
    u32::try_from(length.div_ceil(PIECE_BYTES)).unwrap_or(u32::MAX).max(1)
}

/// Returns the offset and the length of a piece.
fn piece_range(number: u32, length: u64) -> (u64, u64) {
    let offset = u64::from(number) * PIECE_BYTES;
    (offset, length.saturating_sub(offset).min(PIECE_BYTES))
}

fn read_range(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    positioned_io::read_exact(file, &mut bytes, offset)?;
    Ok(bytes)
}
