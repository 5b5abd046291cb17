//! One branch of a fan-out: the additional state of a round that makes one image of several.

use super::attempt_history::AttemptHistory;
use super::caller_error::StopReason;
use super::fan_out_progress::FanOutProgress;
use crate::gateway::accounts::LeaseRefusal;
use crate::gateway::spool::{Spool, SpoolWriter};
use crate::gateway::upstream::{AttemptFailure, FailureCause};

/// The additional state of a round that makes one image of several.
pub(super) struct FanOutBranch<'a> {
    pub(super) progress: &'a FanOutProgress,
    /// The writer of the image's spool file, which is opened before the call.
    pub(super) writer: Option<SpoolWriter>,
}

// === impl FanOutBranch ===

impl FanOutBranch<'_> {
    /// Prepares a call after the wait for its slot. Returns true if the other calls allow it, there is time for an
    /// image, and a spool file for the image is open.
    pub(super) async fn prepare_call(&mut self, spool: &Spool, history: &mut AttemptHistory) -> bool {
        if !self.progress.has_time_for_image() {
            history.stop_reason = StopReason::NoLease(LeaseRefusal::Busy);
        }
        if !self.progress.may_begin_image() {
            return false;
        }
        if self.writer.is_none() {
            self.writer = match spool.create_writer_within_free_space().await {
                Ok(writer) => Some(writer),
                Err(error) => {
                    tracing::error!(%error, "an image cannot be stored on disk");
                    history.add_failed_call(AttemptFailure::new(FailureCause::SpoolUnavailable).into());
                    None
                }
            };
        }
        self.writer.is_some()
    }
}
