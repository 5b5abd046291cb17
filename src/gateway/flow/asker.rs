//! The caller of a job and its fallback policy, as the attempts of the job need them.

use std::future::pending;

use super::attempt::AttemptHistory;
use super::ladder;
use super::made::GatewayAnswer;
use super::siblings::FanOutProgress;
use super::terms::AttemptDeadlines;
use crate::gateway::Gateway;
use crate::gateway::config::FallbackPolicy;
use crate::gateway::keys::Caller;
use crate::gateway::replay::AnswerSender;
use crate::gateway::rules::TaskRef;

/// The caller of a job, and its policy if the image cannot be made.
#[derive(Clone, Copy)]
pub(super) struct AttemptContext<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) caller: &'a Caller,
    /// The choice between a smaller image and an error.
    pub(super) fallback: FallbackPolicy,
    /// The sending side of the answer, whose caller may leave. Without one the image is always wanted.
    pub(super) promise: Option<&'a AnswerSender<GatewayAnswer>>,
}

// === impl AttemptContext ===

impl AttemptContext<'_> {
    /// Resolves when the image is no longer wanted.
    pub(super) async fn abandoned(&self) {
        match self.promise {
            Some(promise) => promise.abandoned().await,
            None => pending().await,
        }
    }

    /// Returns the limits of one round. They reserve time for a smaller image only if one may follow every failure.
    pub(super) fn terms(&self, task: TaskRef<'_>, whole: AttemptDeadlines) -> AttemptDeadlines {
        match task {
            TaskRef::Images(job) if self.fallback == FallbackPolicy::Always => {
                whole.shared(ladder::below(job).is_some())
            }
            TaskRef::Images(_) | TaskRef::Response(_) => whole,
        }
    }

    /// True if a smaller image may be made after these failures.
    pub(super) fn may_step_down(&self, history: &AttemptHistory, whole: &AttemptDeadlines) -> bool {
        ladder::may_step_down(self.fallback, history) && self.wants_less(whole)
    }

    /// Resolves when the image of a call that is made now is given up for a smaller one: its share of the time is used
    /// up, and a smaller image would really follow. If none would, the call keeps all of the time, because it may be
    /// paid for.
    pub(super) fn given_up(
        &self,
        terms: &AttemptDeadlines,
        siblings: Option<&FanOutProgress>,
    ) -> impl Future<Output = ()> {
        let share_is_over = terms.share_is_over();
        async move {
            share_is_over.await;
            if !self.wants_less(terms) || siblings.is_some_and(|siblings| !siblings.may_step_down()) {
                pending::<()>().await;
            }
        }
    }

    /// True if there is time for a smaller image. A caller that accepts paying for both must still wait for it.
    fn wants_less(&self, terms: &AttemptDeadlines) -> bool {
        let is_wanted = || self.promise.is_none_or(AnswerSender::is_wanted);
        terms.is_worth_more() && (self.fallback != FallbackPolicy::Always || is_wanted())
    }
}
