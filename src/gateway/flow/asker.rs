//! Who asks for an image, and what is done if it cannot be had.

use std::future::pending;

use super::attempt::History;
use super::ladder;
use super::made::Made;
use super::siblings::Siblings;
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

    /// True if a smaller image may be made after these failures.
    pub(super) fn may_step_down(&self, history: &History, whole: &Terms) -> bool {
        ladder::may_step_down(self.fallback, history) && self.wants_less(whole)
    }

    /// Resolves when the image of a call that is made now is given up for a smaller one: its share of the time is used up,
    /// and a smaller one would really follow. If none would, the call keeps all of the time, because it may be paid for.
    pub(super) fn given_up(&self, terms: &Terms, siblings: Option<&Siblings>) -> impl Future<Output = ()> {
        let share_is_over = terms.share_is_over();
        async move {
            share_is_over.await;
            if !self.wants_less(terms) || siblings.is_some_and(|siblings| !siblings.may_step_down()) {
                pending::<()>().await;
            }
        }
    }

    /// True if there is time for a smaller image. Who accepts that both are paid for must still wait for it as well.
    fn wants_less(&self, terms: &Terms) -> bool {
        let is_wanted = || self.promise.is_none_or(Promise::is_wanted);
        terms.is_worth_more() && (self.fallback != Fallback::Always || is_wanted())
    }
}
