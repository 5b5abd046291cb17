//! Who asks for an image, and what is done if it cannot be had.

use std::future::pending;

use super::attempt::History;
use super::ladder;
use super::made::Made;
use super::terms::Terms;
use crate::gateway::Gateway;
use crate::gateway::config::Fallback;
use crate::gateway::keys::Caller;
use crate::gateway::replay::Promise;
use crate::gateway::rules::Task;

/// Who asks, and what is done if the image cannot be had.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) caller: &'a Caller,
    /// The choice between a lesser image and none.
    pub(super) fallback: Fallback,
    /// The promise to somebody who may leave; without one the image is always wanted.
    pub(super) promise: Option<&'a Promise<Made>>,
}

// === impl Asker ===

impl Asker<'_> {
    /// Resolves when nobody wants the image any more.
    pub(super) async fn abandoned(&self) {
        match self.promise {
            Some(promise) => promise.abandoned().await,
            None => pending().await,
        }
    }

    /// The limits of one step: only a caller who wants a smaller image after every failure has time set aside for it.
    pub(super) fn terms(&self, task: Task<'_>, whole: Terms) -> Terms {
        match task {
            Task::Images(job) if self.fallback == Fallback::Always => whole.shared(ladder::below(job).is_some()),
            Task::Images(_) | Task::Response(_) => whole,
        }
    }

    /// True if a smaller image may be made. Where the larger one may have been paid for, somebody must still wait for an
    /// image, and there must be time to make one.
    pub(super) fn may_step_down(&self, history: &History, whole: &Terms) -> bool {
        let is_worth_more = || self.promise.is_none_or(Promise::is_wanted) && whole.is_worth_more();
        ladder::may_step_down(self.fallback, history) && (!history.maybe_paid() || is_worth_more())
    }
}
