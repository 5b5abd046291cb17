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

/// One write to the table of answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReplayWrite {
    /// Claims to make an answer, unless somebody has a claim that is not over at its `created_at`.
    Claim(ReplayRow),
    /// Stores the answer of the running claim of this request.
    Finish {
        /// The claim that is answered.
        scope: [u8; 32],
        /// The request that has the claim.
        request_id: RequestId,
        /// The answer.
        done: ReplayDone,
    },
    /// Removes the claim of this request, and no other one of the same scope.
    Forget {
        /// The claim that is given back.
        scope: [u8; 32],
        /// The request that has the claim.
        request_id: RequestId,
    },
}
