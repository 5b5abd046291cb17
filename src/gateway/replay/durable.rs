//! Answers that outlive the process: their bytes in a file, their row in the store; for idempotency keys and for orphans.

use std::sync::Arc;

use super::ReplayError;
use super::fingerprint::Digest;
use super::follower::Follower;
use super::frames::{FileKey, Frames};
use super::head::Head;
use super::keyed::{Keyed, context};
use super::orphans::Orphans;
use super::tape::Tape;
use crate::gateway::store::{Claimed, ReplayDone, ReplayRow, ReplayState, RequestId, State, Timestamp};

/// Why an answer is not kept.
pub(super) type NotKept = Box<dyn std::error::Error + Send + Sync>;

/// A file that is being written, with what its row must say.
pub(super) struct Unfinished {
    /// The name that the file will have.
    pub(super) file: String,
    pub(super) key: FileKey,
    pub(super) head: Head,
}

/// What is known of an earlier try of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Earlier {
    /// Nothing that would be paid for twice.
    Nothing,
    /// It runs, or nobody has said yet that it is over.
    Running,
    /// It may have been paid for, and nobody knows.
    Unknown,
}

/// So many records of one request are looked at.
const TWINS_MAX: u32 = 64;

impl Keyed {
    /// Makes an answer durable: first its bytes, then its row. Gives back the name of its file.
    pub(super) async fn finish(
        &self,
        row: &ReplayRow,
        answer: Unfinished,
        frames: &Arc<Frames>,
        size: u64,
    ) -> Result<String, NotKept> {
        let finished = Arc::clone(frames);
        tokio::task::spawn_blocking(move || finished.finish()).await??;
        let Unfinished { file, key, head } = answer;
        let done = ReplayDone {
            status: head.status,
            headers: serde_json::to_string(&head.headers)?,
            content_type: head.content_type,
            file,
            size,
            key: self.vault.seal(&context(&row.scope, size), key.expose())?,
        };
        if !self.store.finish_replay(&row.scope, &row.request_id, &done).await? {
            return Err("its claim was over before it".into());
        }
        Ok(done.file)
    }

    /// What the records say of an earlier try of this request, which began then or later.
    pub(super) async fn earlier(&self, fingerprint: &Digest, since: Timestamp) -> Result<Earlier, ReplayError> {
        let states = self.store.twins(fingerprint, since, TWINS_MAX).await?;
        // A retry of what cost nothing, whatever happened to others before it.
        if matches!(states.first(), Some(State::Failed | State::Refused)) {
            return Ok(Earlier::Nothing);
        }
        let unknown = states.contains(&State::Interrupted) || self.shelf.has_lost(fingerprint, Timestamp::now());
        Ok(match (unknown, states.contains(&State::Running)) {
            (true, _) => Earlier::Unknown,
            (false, true) => Earlier::Running,
            (false, false) => Earlier::Nothing,
        })
    }

    /// The row of what an orphan has made.
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

    /// Makes what an orphan has made durable. Of several that answer one request the first is kept.
    pub(super) async fn finish_orphan(
        &self,
        row: &ReplayRow,
        answer: Unfinished,
        frames: &Arc<Frames>,
        size: u64,
    ) -> Result<String, NotKept> {
        match self.store.claim_replay(row).await? {
            Claimed::New => self.finish(row, answer, frames, size).await,
            Claimed::Taken(_) => Err("another orphan of the same request is kept".into()),
        }
    }

    /// What an orphan of an earlier life has left for this request: its answer, or the word that the answer is lost.
    pub(super) async fn find_orphan(self: &Arc<Self>, fingerprint: &Digest) -> Result<Option<Follower>, ReplayError> {
        let now = Timestamp::now();
        let found = self.store.find_replay(fingerprint).await?;
        let found = found.filter(|found| found.row.expires_at > now && !self.forgetting().contains(fingerprint));
        let Some(found) = found else { return Ok(None) };
        let ReplayState::Done(done) = found.state else { return Ok(Some(Orphans::unknown())) };
        let Some(tape) = self.tape_of(fingerprint, &done) else { return Ok(Some(Orphans::unknown())) };
        let (keyed, row, file) = (Arc::clone(self), found.row, done.file);
        let given = move |whole: bool| {
            if whole {
                keyed.forget_orphan(row.scope, row.request_id, &file);
            }
        };
        Ok(Some(Follower::told(&Arc::new(tape), Box::new(given))))
    }

    /// A retry has all of what an orphan had made: from now on nobody else gets it.
    pub(super) fn forget_orphan(self: &Arc<Self>, scope: Digest, request_id: RequestId, file: &str) {
        self.shelf.remove(file);
        // At once for whoever asks here, and in the store as soon as it can.
        self.forgetting().insert(scope);
        let (keyed, pending) = (Arc::clone(self), self.pending());
        let forget = async move {
            keyed.forget(&keyed.orphan_row(scope, request_id, Timestamp::now())).await;
            keyed.forgetting().remove(&scope);
            drop(pending);
        };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            drop(runtime.spawn(forget));
        }
    }

    /// The answer of a row, in its file; nothing where that is gone.
    pub(super) fn tape_of(&self, scope: &Digest, done: &ReplayDone) -> Option<Tape> {
        let headers = serde_json::from_str(&done.headers).ok()?;
        let head = Head { status: done.status, content_type: done.content_type.clone(), headers };
        let key = self.vault.open(&context(scope, done.size), &done.key).ok().and_then(FileKey::restore)?;
        let frames = self.shelf.reopen(&done.file, &key, done.size).ok()?;
        Some(Tape::from_file(head, frames, done.size))
    }
}
