//! A job as its attempts need it: with the fallback policy, and with the caller that may leave.

use std::future::pending;

use super::attempt_deadlines::AttemptDeadlines;
use super::attempt_history::AttemptHistory;
use super::fallback_order;
use super::fan_out_progress::FanOutProgress;
use super::gateway_answer::GatewayAnswer;
use super::job_context::JobContext;
use crate::gateway::config::FallbackPolicy;
use crate::gateway::replay::AnswerSender;
use crate::gateway::rules::TaskRef;

/// A job, and whether its caller still waits.
#[derive(Clone, Copy)]
pub(super) struct AttemptContext<'a> {
    pub(super) job: &'a JobContext,
    /// The sending side of the answer, which knows whether the caller has left; `None` if the image is always wanted.
    pub(super) answer_sender: Option<&'a AnswerSender<GatewayAnswer>>,
}

// === impl AttemptContext ===

impl AttemptContext<'_> {
    /// Resolves when the image is no longer wanted.
    pub(super) async fn until_abandoned(&self) {
        match self.answer_sender {
            Some(sender) => sender.abandoned().await,
            None => pending().await,
        }
    }

    /// Returns the time limits of one round. They reserve time for a smaller image only if such an image may follow
    /// even a call that was given up.
    pub(super) fn round_deadlines(&self, task: TaskRef<'_>, request_deadlines: AttemptDeadlines) -> AttemptDeadlines {
        match task {
            TaskRef::Images(job) if self.job.fallback_policy() == FallbackPolicy::Always => {
                request_deadlines.for_round(fallback_order::next_fallback(job).is_some())
            }
            TaskRef::Images(_) | TaskRef::Response(_) => request_deadlines,
        }
    }

    /// True if a smaller image may be made after these failures.
    pub(super) fn may_fall_back(&self, history: &AttemptHistory, deadlines: &AttemptDeadlines) -> bool {
        fallback_order::may_fall_back(self.job.fallback_policy(), history) && self.may_wait_for_fallback(deadlines)
    }

    /// Resolves when a call that begins now is given up in favour of a smaller image: the call has used up its share of
    /// the time, and a smaller image may follow. Otherwise the call keeps all of the time, because it may be paid for.
    pub(super) fn until_call_is_given_up(
        &self,
        deadlines: &AttemptDeadlines,
        fan_out: Option<&FanOutProgress>,
    ) -> impl Future<Output = ()> {
        let share_is_over = deadlines.call_share_elapsed();
        async move {
            share_is_over.await;
            if !self.may_wait_for_fallback(deadlines) || fan_out.is_some_and(|progress| !progress.may_fall_back()) {
                pending::<()>().await;
            }
        }
    }

    /// True if there is time for a smaller image. If both images may be paid for, the caller must also still wait for
    /// the answer.
    fn may_wait_for_fallback(&self, deadlines: &AttemptDeadlines) -> bool {
        let is_wanted = || self.answer_sender.is_none_or(AnswerSender::is_wanted);
        deadlines.has_time_for_fallback() && (self.job.fallback_policy() != FallbackPolicy::Always || is_wanted())
    }
}
