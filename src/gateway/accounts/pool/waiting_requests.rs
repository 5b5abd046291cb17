//! The waiting requests of the pool: which of them are refused, and which get a slot that is free.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::time::Instant;

use super::{
    ANY_SEED, AccountPool, AccountPoolState, AccountRequirements, LeaseDecision, LeaseRefusal, PoolMember, QUEUE_MAX,
    RequesterId, USER_QUEUE_MAX, lease_decision,
};

// === impl AccountPoolState ===

impl AccountPoolState {
    /// True if an account has refused the model.
    pub(super) fn is_model_refused(&self, model: Option<&str>) -> bool {
        model.is_some_and(|model| self.members.iter().any(|member| member.has_refused_model(model)))
    }

    /// Returns the id of the kind of a request that begins to wait. All models that no account has refused
    /// share one kind: callers choose the model names, so the number of kinds must not depend on them.
    pub(super) fn add_to_kind(&mut self, requirements: &AccountRequirements) -> u64 {
        let model = requirements.model.clone().filter(|model| self.is_model_refused(Some(model)));
        self.kinds.add(AccountRequirements { session: None, tie_seed: None, model, ..requirements.clone() })
    }

    /// Moves the requests that wait for this model to a kind of their own.
    pub(super) fn split_kind(&mut self, model: Option<&str>) {
        let Self { queue, kinds, .. } = self;
        queue.for_each_mut(|waiter| {
            if waiter.requirements.model.as_deref() == model {
                kinds.remove(waiter.kind_id);
                let requirements = waiter.requirements.clone();
                waiter.kind_id = kinds.add(AccountRequirements { session: None, tie_seed: None, ..requirements });
            }
        });
    }

    /// Refuses and serves waiting requests after any change except a returned slot.
    pub(in super::super) fn update_queue(&mut self, pool: &Arc<AccountPool>, now: Instant) {
        if self.queue.len() > 0 {
            self.refuse_waiting(|members, requirements| match lease_decision(members, requirements, now, ANY_SEED) {
                LeaseDecision::Refuse(reason) => Some(reason),
                LeaseDecision::Grant(_) | LeaseDecision::Wait => None,
            });
            self.grant_free_slots(pool, now);
        }
    }

    /// Refuses the waiting requests for which `reason` returns a refusal.
    pub(super) fn refuse_waiting(
        &mut self,
        reason: impl Fn(&[PoolMember], &AccountRequirements) -> Option<LeaseRefusal>,
    ) {
        let Self { members, queue, kinds, .. } = self;
        let refusals = kinds.select(|requirements| reason(members, requirements));
        if refusals.is_empty() {
            return;
        }
        for waiter in queue.take_matching(|waiter| refusals.contains_key(&waiter.kind_id)) {
            kinds.remove(waiter.kind_id);
            let refusal = refusals[&waiter.kind_id];
            waiter.answer(Err(refusal));
        }
    }

    /// Grants the free slots to waiting requests, in fair order.
    pub(super) fn grant_free_slots(&mut self, pool: &Arc<AccountPool>, now: Instant) {
        while self.queue.len() > 0 && !self.stopped && self.members.iter().any(|member| member.can_grant_slot(now)) {
            let seed = self.next_seed();
            let servable = self.servable_kinds(now, seed);
            if servable.is_empty() {
                return;
            }
            // The index of the account for the request that is taken out, which the search for the request finds.
            let mut chosen = None;
            let Self { members, queue, kinds, .. } = self;
            let waiter = queue.take_next(|waiter| {
                servable.contains_key(&waiter.kind_id)
                    && match lease_decision(members, &waiter.requirements, now, seed) {
                        LeaseDecision::Grant(index) => chosen.replace(index).is_none(),
                        LeaseDecision::Wait | LeaseDecision::Refuse(_) => false,
                    }
            });
            let (Some(waiter), Some(index)) = (waiter, chosen) else { return };
            kinds.remove(waiter.kind_id);
            let slot = self.grant(pool, index, &waiter.requirements, now);
            if let Err(Ok(slot)) = waiter.sender.send(Ok(slot)) {
                // The request has just stopped waiting. Dropping the slot would take the lock, which is held here, so
                // the slot is released without it.
                self.release_slot(slot.into_returned());
            }
        }
    }

    /// Returns the kinds of waiting requests for which a slot is free, each with the index of its account. Checking kinds
    /// instead of requests is cheap, because thousands of requests are of few kinds.
    pub(super) fn servable_kinds(&self, now: Instant, seed: u64) -> HashMap<u64, usize> {
        self.kinds.select(|requirements| match lease_decision(&self.members, requirements, now, seed) {
            LeaseDecision::Grant(index) => Some(index),
            LeaseDecision::Wait | LeaseDecision::Refuse(_) => None,
        })
    }

    /// Makes room in the queue for one more request of this requester, if necessary by refusing another waiting
    /// request. Returns false if there is no room.
    pub(super) fn reserve_queue_room(&mut self, requester: &RequesterId) -> bool {
        let evicted = if self.queue.user_len(requester) >= USER_QUEUE_MAX {
            self.queue.evict_from_longest_key(requester)
        } else if self.queue.len() >= QUEUE_MAX {
            self.queue.evict_from_longest_user(requester)
        } else {
            return true;
        };
        let Some(waiter) = evicted else { return false };
        self.kinds.remove(waiter.kind_id);
        waiter.answer(Err(LeaseRefusal::Busy));
        true
    }

    /// Returns the number of waiting requests that the account can serve, or of those for large images.
    pub(in super::super) fn waiting_for(&self, member: &PoolMember, large: bool) -> usize {
        self.kinds.count(|requirements| (!large || requirements.is_large) && member.may_serve(requirements))
    }
}
