//! The waiting requests, without any I/O: users take turns, the keys of a user take turns, and the requests of a key
//! are served in order of arrival. A user with a thousand requests, or with a thousand keys, delays only itself.
//!
//! Implements C10 of the failure catalogue.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::gateway::keys::{Caller, KeyId};
use crate::gateway::store::UserId;

/// The user and the API key that a request comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequesterId {
    user: UserId,
    key: KeyId,
}

/// The requests that wait.
#[derive(Debug)]
pub(super) struct FairQueue<W> {
    /// The users that have a request waiting, in the order of their turns.
    order: VecDeque<UserId>,
    users: HashMap<UserId, UserQueue<W>>,
    total: usize,
    next_ticket: u64,
}

/// The requests of one user.
#[derive(Debug)]
struct UserQueue<W> {
    /// The keys that have a request waiting, in the order of their turns.
    order: VecDeque<KeyId>,
    /// The requests of each key, in order of arrival.
    keys: HashMap<KeyId, BTreeMap<u64, W>>,
    total: usize,
}

/// Identifies one waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QueueTicket(u64);

// === impl RequesterId ===

impl RequesterId {
    pub(super) fn from_caller(caller: &Caller) -> Self {
        let key = caller.key().clone();
        // Keys without a user have nothing in common, so each counts as a separate user.
        let user = if caller.user().is_nobody() { UserId::from(key.as_str()) } else { caller.user().clone() };
        Self { user, key }
    }

    /// The user, or the key itself if it has no user.
    pub(super) const fn user(&self) -> &UserId {
        &self.user
    }

    /// Returns a requester whose user and key are both identified by this name.
    pub(super) fn from_name(name: &str) -> Self {
        Self { user: UserId::from(name), key: KeyId::from(name) }
    }
}

// === impl FairQueue ===

impl<W> Default for FairQueue<W> {
    fn default() -> Self {
        Self { order: VecDeque::new(), users: HashMap::new(), total: 0, next_ticket: 0 }
    }
}

impl<W> FairQueue<W> {
    pub(super) const fn len(&self) -> usize {
        self.total
    }

    /// Returns the number of waiting requests of the same user.
    pub(super) fn user_len(&self, requester: &RequesterId) -> usize {
        self.users.get(&requester.user).map_or(0, |user| user.total)
    }

    /// Appends a request to those of the same key.
    pub(super) fn push(&mut self, requester: RequesterId, waiter: W) -> QueueTicket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.total += 1;
        let RequesterId { user, key } = requester;
        if !self.users.contains_key(&user) {
            self.order.push_back(user.clone());
        }
        self.users.entry(user).or_default().push(key, ticket, waiter);
        QueueTicket(ticket)
    }

    /// Removes a request that no longer waits.
    pub(super) fn remove(&mut self, requester: &RequesterId, ticket: QueueTicket) -> Option<W> {
        let user = self.users.get_mut(&requester.user)?;
        let waiter = user.remove(&requester.key, ticket)?;
        self.total -= 1;
        if user.total == 0 {
            self.users.remove(&requester.user);
            self.order.retain(|other| *other != requester.user);
        }
        Some(waiter)
    }

    /// Takes out the request whose turn it is among those for which `is_servable` returns true. The other users, and
    /// the other keys of this user, then have their turns before this user and this key.
    pub(super) fn take_next(&mut self, mut is_servable: impl FnMut(&W) -> bool) -> Option<W> {
        let found = self.order.iter().enumerate().find_map(|(turn, user)| {
            let (key, ticket) = self.users.get(user)?.first_servable(&mut is_servable)?;
            Some((turn, RequesterId { user: user.clone(), key }, ticket))
        });
        let (turn, requester, ticket) = found?;
        self.order.remove(turn);
        self.order.push_back(requester.user.clone());
        if let Some(user) = self.users.get_mut(&requester.user) {
            user.end_turn(&requester.key);
        }
        self.remove(&requester, ticket)
    }

    /// Calls `visit` for every request.
    pub(super) fn for_each_mut(&mut self, visit: impl FnMut(&mut W)) {
        let entries = self.users.values_mut().flat_map(|user| user.keys.values_mut());
        entries.flat_map(BTreeMap::values_mut).for_each(visit);
    }

    /// Takes out all requests for which `matches` returns true, for each user and key in order of arrival.
    pub(super) fn take_matching(&mut self, mut matches: impl FnMut(&W) -> bool) -> Vec<W> {
        let mut found = Vec::new();
        for user in &self.order {
            let waiting = self.users.get(user).into_iter().flat_map(UserQueue::iter);
            let matching = waiting.filter(|(.., waiter)| matches(waiter));
            found.extend(
                matching.map(|(key, ticket, _)| (RequesterId { user: user.clone(), key: key.clone() }, ticket)),
            );
        }
        found.into_iter().filter_map(|(requester, ticket)| self.remove(&requester, ticket)).collect()
    }

    /// Takes out a request of the user with the most requests: the newest one of its key with the most requests. Does
    /// nothing if that user would then have fewer requests than this requester's user with one more.
    pub(super) fn evict_from_longest_user(&mut self, requester: &RequesterId) -> Option<W> {
        let (user, longest) = self.users.iter().max_by_key(|(_, user)| user.total)?;
        let (key, ticket, _) = longest.newest_of_longest()?;
        let evicted = RequesterId { user: user.clone(), key };
        (longest.total > self.user_len(requester) + 1).then(|| self.remove(&evicted, ticket)).flatten()
    }

    /// Takes out the newest request of the same user's key with the most requests. Does nothing if that key would then
    /// have fewer requests than this requester's key with one more.
    pub(super) fn evict_from_longest_key(&mut self, requester: &RequesterId) -> Option<W> {
        let user = self.users.get(&requester.user)?;
        let own_len = user.keys.get(&requester.key).map_or(0, BTreeMap::len);
        let (key, ticket, length) = user.newest_of_longest()?;
        let evicted = RequesterId { user: requester.user.clone(), key };
        (length > own_len + 1).then(|| self.remove(&evicted, ticket)).flatten()
    }
}

// === impl UserQueue ===

impl<W> Default for UserQueue<W> {
    fn default() -> Self {
        Self { order: VecDeque::new(), keys: HashMap::new(), total: 0 }
    }
}

impl<W> UserQueue<W> {
    fn push(&mut self, key: KeyId, ticket: u64, waiter: W) {
        self.total += 1;
        let entries = self.keys.entry(key.clone()).or_default();
        if entries.is_empty() {
            self.order.push_back(key);
        }
        entries.insert(ticket, waiter);
    }

    fn remove(&mut self, key: &KeyId, ticket: QueueTicket) -> Option<W> {
        let entries = self.keys.get_mut(key)?;
        let waiter = entries.remove(&ticket.0)?;
        self.total -= 1;
        if entries.is_empty() {
            self.keys.remove(key);
            self.order.retain(|other| other != key);
        }
        Some(waiter)
    }

    /// Returns the first request, in the order of the turns, for which `is_servable` returns true.
    fn first_servable(&self, is_servable: &mut impl FnMut(&W) -> bool) -> Option<(KeyId, QueueTicket)> {
        let mut waiting = self.iter();
        waiting.find(|(.., waiter)| is_servable(waiter)).map(|(key, ticket, _)| (key.clone(), ticket))
    }

    fn end_turn(&mut self, key: &KeyId) {
        self.order.retain(|other| other != key);
        self.order.push_back(key.clone());
    }

    fn iter(&self) -> impl Iterator<Item = (&KeyId, QueueTicket, &W)> {
        let entries = self.order.iter().filter_map(|key| Some((key, self.keys.get(key)?)));
        entries
            .flat_map(|(key, entries)| entries.iter().map(move |(ticket, waiter)| (key, QueueTicket(*ticket), waiter)))
    }

    /// Returns the newest request of the key with the most requests, and the number of its requests.
    fn newest_of_longest(&self) -> Option<(KeyId, QueueTicket, usize)> {
        let (key, entries) = self.keys.iter().max_by_key(|(_, entries)| entries.len())?;
        Some((key.clone(), QueueTicket(*entries.last_key_value()?.0), entries.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of a request, whose first letter is its user, and the number of the request.
    type NumberedRequest = (&'static str, u32);

    fn requester_of(key: &str) -> RequesterId {
        RequesterId { user: UserId::from(&key[..1]), key: KeyId::from(key) }
    }

    fn queue(waiting: &[NumberedRequest]) -> FairQueue<NumberedRequest> {
        let mut queue = FairQueue::default();
        for waiter in waiting {
            queue.push(requester_of(waiter.0), *waiter);
        }
        queue
    }

    fn drain(queue: &mut FairQueue<NumberedRequest>) -> Vec<NumberedRequest> {
        std::iter::from_fn(|| queue.take_next(|_| true)).collect()
    }

    #[test]
    fn users_take_turns_and_each_key_is_served_in_order() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("c", 1)]);
        assert_eq!(drain(&mut queue), [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2), ("a", 3)]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn the_keys_of_one_user_share_its_turns() {
        let mut queue = queue(&[("a1", 1), ("a2", 1), ("a3", 1), ("a1", 2), ("b", 1), ("b", 2)]);
        assert_eq!(drain(&mut queue), [("a1", 1), ("b", 1), ("a2", 1), ("b", 2), ("a3", 1), ("a1", 2)]);
    }

    #[test]
    fn many_keys_of_one_user_delay_another_user_by_one_request() {
        let mut queue = FairQueue::default();
        for number in 0..300 {
            queue.push(requester_of(&format!("a{number}")), ("a", number));
        }
        queue.take_next(|_| true);
        queue.push(requester_of("b"), ("b", 0));
        assert_eq!(queue.take_next(|_| true), Some(("a", 1)));
        assert_eq!(queue.take_next(|_| true), Some(("b", 0)));
    }

    #[test]
    fn a_request_that_cannot_be_served_does_not_block_later_ones() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("b", 1)]);
        assert_eq!(queue.take_next(|(_, number)| *number == 2), Some(("a", 2)));
        assert_eq!(queue.take_next(|(_, number)| *number == 3), None);
        assert_eq!(drain(&mut queue), [("b", 1), ("a", 1)]);
    }

    #[test]
    fn a_removed_request_leaves_no_trace() {
        let mut queue = FairQueue::default();
        let first = queue.push(requester_of("a1"), 1);
        let second = queue.push(requester_of("a2"), 2);
        assert_eq!(queue.remove(&requester_of("a2"), first), None);
        assert_eq!(queue.remove(&requester_of("a1"), first), Some(1));
        assert_eq!(queue.remove(&requester_of("a1"), first), None);
        assert_eq!((queue.len(), queue.user_len(&requester_of("a1"))), (1, 1));
        assert_eq!(queue.remove(&requester_of("a2"), second), Some(2));
        assert_eq!((queue.order.len(), queue.users.len(), queue.len()), (0, 0, 0));
    }

    #[test]
    fn take_matching_removes_all_matching_requests() {
        let mut queue = queue(&[("a", 1), ("b", 2), ("a", 3), ("b", 4)]);
        assert_eq!(queue.take_matching(|(_, number)| number % 2 == 1), [("a", 1), ("a", 3)]);
        assert_eq!((queue.len(), queue.order.len()), (2, 1));
    }

    #[test]
    fn eviction_takes_from_the_user_with_the_most_requests() {
        let mut queue = queue(&[("a1", 1), ("a1", 2), ("a2", 3), ("b", 1)]);
        assert_eq!(queue.evict_from_longest_user(&requester_of("a3")), None);
        assert_eq!(queue.evict_from_longest_user(&requester_of("c")), Some(("a1", 2)));
        assert_eq!(queue.evict_from_longest_user(&requester_of("b")), None);
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn eviction_within_a_user_takes_from_its_longest_key() {
        let mut queue = queue(&[("a1", 1), ("a1", 2), ("a1", 3), ("a2", 1), ("b", 1), ("b", 2), ("b", 3), ("b", 4)]);
        assert_eq!(queue.evict_from_longest_key(&requester_of("a2")), Some(("a1", 3)));
        assert_eq!(queue.evict_from_longest_key(&requester_of("a2")), None);
        assert_eq!(queue.evict_from_longest_key(&requester_of("a1")), None);
        assert_eq!(queue.len(), 7);
    }
}
