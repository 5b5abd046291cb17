//! An answer that may be given a second time, as far as the database knows it. Its bytes lie in a file.

use super::{NodeId, RequestId, Timestamp};

/// The claim to be the one who makes an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplayRow {
    /// What is answered once: a hash of whose request it is, for what, and under which name. Unique.
    pub(crate) scope: [u8; 32],
    /// A hash of what was asked.
    pub(crate) digest: [u8; 32],
    /// The request that makes the answer.
    pub(crate) request_id: RequestId,
    /// The process that serves it.
    pub(crate) node: NodeId,
    /// When the claim was made.
    pub(crate) created_at: Timestamp,
    /// From when on it may be claimed anew.
    pub(crate) expires_at: Timestamp,
}

/// The answer itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplayDone {
    /// Its status.
    pub(crate) status: u16,
    /// The type of its body.
    pub(crate) content_type: String,
    /// Its other headers, as JSON.
    pub(crate) headers: String,
    /// The name of the file with its body.
    pub(crate) file: String,
    /// How long the file is.
    pub(crate) size: u64,
    /// The key of the file, sealed by the vault.
    pub(crate) key: Vec<u8>,
}

/// A claim with what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredReplay {
    /// The claim.
    pub(crate) row: ReplayRow,
    /// What became of it.
    pub(crate) state: ReplayState,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReplayState {
    /// The answer is being made, or its process is gone.
    Running,
    /// The answer is there.
    Done(ReplayDone),
}

/// What came of the attempt to claim.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, and never kept")]
pub(crate) enum Claimed {
    /// The claim is ours: nobody else will make this answer.
    New,
    /// Somebody has claimed it before.
    Taken(StoredReplay),
}
