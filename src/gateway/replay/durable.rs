//! Answers that outlive the process: their bytes in a file, their row in the store, for idempotency keys and for
//! orphans.

use std::sync::Arc;

use super::ReplayError;
use super::fingerprint::Digest;
use super::follower::Follower;
use super::frames::{FileKey, Frames};
use super::head::Head;
use super::keyed::{Keyed, context};
use super::orphans::Orphans;
use super::room::Room as _;
use super::tape::Tape;
use crate::gateway::store::{ReplayDone, ReplayRow, ReplayState, ReplayWrite, RequestId, State, Timestamp, Written};

/// The reason why an answer is not kept.
pub(super) type KeepError = Box<dyn std::error::Error + Send + Sync>;

/// A file that is being written, with the contents of its row.
pub(super) struct PendingFile {
    /// The name of the file when it is complete.
    pub(super) file: String,
    pub(super) key: FileKey,
    pub(super) head: Head,
}

/// The state of an earlier try of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlierTry {
    /// There is none, or a further try pays for nothing twice.
    Nothing,
    /// It runs, or its record has not been closed yet.
    Running,
    /// It may have been paid for, and its outcome is unknown.
    Unknown,
}

/// The most records of one request that are read.
const TWINS_MAX: u32 = 64;

impl Keyed {
    /// Makes an answer durable, first its bytes, then its row.
    pub(super) async fn finish(
        &self,
        row: &ReplayRow,
        answer: PendingFile,
        frames: &Arc<Frames>,
        size: u64,
    ) -> Result<(), KeepError> {
        let finished = Arc::clone(frames);
        self.shelf.free().off_worker(move || finished.finish()).await?;
        let PendingFile { file, key, head } = answer;
        let done = ReplayDone {
            status: head.status,
            headers: serde_json::to_string(&head.headers)?,
            content_type: head.content_type,
            file,
            size,
            key: self.vault.seal(&context(&row.scope, size), key.expose())?,
        };
        let finish = ReplayWrite::Finish { scope: row.scope, request_id: row.request_id.clone(), done };
        match self.ledger.write_replay(finish).await? {
            Written::Done => Ok(()),
            Written::NoEffect | Written::Taken(_) => Err("its claim was over before it".into()),
        }
    }

    /// Looks up earlier tries of this request, begun at `since` or later, in the records.
    pub(super) async fn earlier(&self, fingerprint: &Digest, since: Timestamp) -> Result<EarlierTry, ReplayError> {
        let states = self.store.twins(fingerprint, since, TWINS_MAX).await?;
        // The newest try cost nothing, so its retry is free to run, whatever happened to tries before it.
        if matches!(states.first(), Some(State::Failed | State::Refused)) {
            return Ok(EarlierTry::Nothing);
        }
        let unknown = states.contains(&State::Interrupted) || self.shelf.has_lost(fingerprint, Timestamp::now());
        Ok(match (unknown, states.contains(&State::Running)) {
            (true, _) => EarlierTry::Unknown,
            (false, true) => EarlierTry::Running,
            (false, false) => EarlierTry::Nothing,
        })
    }

    /// The row for the answer of an orphan.
    pub(super) fn orphan_row(&self, fingerprint: Digest, request_id: RequestId, expires_at: Timestamp) -> ReplayRow {
        ReplayRow {
            scope: fingerprint,
            digest: fingerprint,
            request_id,
            node: self.node.clone(),
            created_at: Timestamp::now(),
            expires_at,
        }
    }

    /// Makes the answer of an orphan durable. If several orphans answer the same request, the first one is kept;
    /// returns false for the others.
    pub(super) async fn finish_orphan(
        &self,
        row: &ReplayRow,
        answer: PendingFile,
        frames: &Arc<Frames>,
        size: u64,
    ) -> Result<bool, KeepError> {
        match self.ledger.write_replay(ReplayWrite::Claim(row.clone())).await? {
            Written::Done => self.finish(row, answer, frames, size).await.map(|()| true),
            Written::NoEffect | Written::Taken(_) => Ok(false),
        }
    }

    /// The answer that an orphan of an earlier process has left for this request, or the error "outcome unknown" if
    /// that answer is lost.
    pub(super) async fn find_orphan(self: &Arc<Self>, fingerprint: &Digest) -> Result<Option<Follower>, ReplayError> {
        let now = Timestamp::now();
        // Asked before the store is: the row may still be read that is gone when the store has answered.
        if self.forgetting().contains(fingerprint) {
            return Ok(None);
        }
        let found = self.store.find_replay(fingerprint).await?;
        let found = found.filter(|found| found.row.expires_at > now && !self.forgetting().contains(fingerprint));
        let Some(found) = found else { return Ok(None) };
        let ReplayState::Done(done) = found.state else { return Ok(Some(Orphans::unknown())) };
        let Some(tape) = self.tape_of(fingerprint, &done).await else { return Ok(Some(Orphans::unknown())) };
        let (keyed, row, file) = (Arc::clone(self), found.row, done.file);
        let given = move |whole: bool| {
            if whole {
                keyed.forget_orphan(row.scope, row.request_id, &file);
            }
        };
        Ok(Some(Follower::told(&Arc::new(tape), Box::new(given))))
    }

    /// Forgets an orphan after a retry has read all of its answer: nobody else gets it from now on.
    pub(super) fn forget_orphan(self: &Arc<Self>, scope: Digest, request_id: RequestId, file: &str) {
        self.shelf.remove(file);
        // Retries in this process see that at once, the store as soon as it can be written.
        self.forgetting().insert(scope);
        let (keyed, pending) = (Arc::clone(self), self.pending());
        let forget = async move {
            if keyed.forget(&keyed.orphan_row(scope, request_id, Timestamp::now())).await {
                keyed.forgetting().remove(&scope);
            }
            drop(pending);
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(forget));
        }
    }

    /// The answer of a row, read from its file; `None` if the file is gone.
    pub(super) async fn tape_of(&self, scope: &Digest, done: &ReplayDone) -> Option<Tape> {
        let headers = serde_json::from_str(&done.headers).ok()?;
        let head = Head { status: done.status, content_type: done.content_type.clone(), headers };
        let key = self.vault.open(&context(scope, done.size), &done.key).ok().and_then(FileKey::restore)?;
        let frames = self.shelf.reopen(&done.file, key, done.size).await.ok()?;
        Some(Tape::from_file(head, frames, done.size))
    }
}
