//! The data that the attempts of a job hand on: of one call, of one round, and of the whole job. No I/O.

use crate::error::Error;
use crate::gateway::accounts::Lease;
use crate::gateway::ledger::AttemptHandle;
use crate::gateway::relay::{AnswerUsage, ProvenAnswer};
use crate::gateway::rules::Job;
use crate::gateway::upstream::AttemptFailure;

/// A call with a proven answer.
pub(super) struct ProvenCall {
    pub(super) proven: ProvenAnswer,
    /// The upstream's id of the call.
    pub(super) request_id: Option<String>,
}

/// A call without a proven answer, and the tokens that were charged for it all the same.
pub(super) struct FailedCall {
    pub(super) failure: AttemptFailure,
    pub(super) usage: Option<AnswerUsage>,
}

/// The result of a round.
pub(super) enum RoundOutcome {
    /// An image has begun.
    ImageBegun {
        proven: ProvenAnswer,
        lease: Lease,
        call: AttemptHandle,
        /// True if the account refuses the injected tool, so the call was made without it.
        is_tool_removed: bool,
    },
    /// The account of this lease makes one image for each call, and the job asks for several. Nothing was sent to it
    /// yet.
    OneImagePerCall(Lease),
    /// No further account may be asked.
    NoAccountLeft,
}

/// A proven answer, and the facts about how it was made.
pub(super) struct JobSuccess {
    pub(super) proven: ProvenAnswer,
    /// The lease of the attempt; `None` if each image had a call of its own, because those calls have ended.
    pub(super) lease: Option<Lease>,
    pub(super) is_simulated: bool,
    /// The number of requested images that were not made; 0 unless each image had a call of its own.
    pub(super) missing_images: u32,
    /// The smaller job that was carried out instead of the original one, if there was a fallback.
    pub(super) fallback_job: Option<Job>,
    /// True if the response was made without the injected tool.
    pub(super) was_tool_removed: bool,
    /// The tokens that were charged for failed calls and are not part of `proven`.
    pub(super) failed_call_usage: Option<AnswerUsage>,
}

/// The reason why there is no answer from an upstream.
pub(super) enum JobFailure {
    /// The error for the caller, and the failed attempt that the record shows, if one was made.
    Failed(Error, Option<Box<AttemptFailure>>),
    /// The caller no longer waits for the image, and nothing was sent to an upstream.
    Abandoned,
}

// === impl FailedCall ===

impl From<AttemptFailure> for FailedCall {
    fn from(failure: AttemptFailure) -> Self {
        Self { failure, usage: None }
    }
}
