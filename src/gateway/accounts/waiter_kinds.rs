//! The kinds of waiting requests. Requests of one kind have the same requirements, so one lease decision applies to all
//! of them, however many there are.

use std::collections::HashMap;

use super::pool::AccountRequirements;

/// The distinct requirements of the waiting requests, each with its id and the number of requests.
#[derive(Debug, Default)]
pub(super) struct WaiterKinds {
    ids: HashMap<AccountRequirements, u64>,
    waiting: HashMap<u64, (AccountRequirements, usize)>,
    last_id: u64,
}

// === impl WaiterKinds ===

impl WaiterKinds {
    /// Adds a waiting request of this kind, and returns the id of the kind. Its session must be `None`, because a
    /// session only decides which of several accounts is preferred.
    pub(super) fn add(&mut self, kind: AccountRequirements) -> u64 {
        if let Some(id) = self.ids.get(&kind) {
            self.waiting.entry(*id).and_modify(|(_, count)| *count += 1);
            return *id;
        }
        self.last_id += 1;
        self.ids.insert(kind.clone(), self.last_id);
        self.waiting.insert(self.last_id, (kind, 1));
        self.last_id
    }

    /// Removes a waiting request of this kind.
    pub(super) fn remove(&mut self, id: u64) {
        let Some((kind, count)) = self.waiting.get_mut(&id) else { return };
        *count -= 1;
        if *count == 0 {
            self.ids.remove(kind);
            self.waiting.remove(&id);
        }
    }

    /// Returns the number of waiting requests of the kinds for which `matches` returns true.
    pub(super) fn count(&self, matches: impl Fn(&AccountRequirements) -> bool) -> usize {
        self.waiting.values().filter(|(kind, _)| matches(kind)).map(|(_, count)| count).sum()
    }

    /// Returns the ids of the kinds for which `select` returns a value, each with its value.
    pub(super) fn select<T>(&self, mut select: impl FnMut(&AccountRequirements) -> Option<T>) -> HashMap<u64, T> {
        self.waiting.iter().filter_map(|(id, (kind, _))| Some((*id, select(kind)?))).collect()
    }
}
