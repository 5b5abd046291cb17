//! Requests that wait and need the same of an account: one verdict is true of all of them, however many there are.

use std::collections::HashMap;

use super::pool::Wanted;

/// What those who wait need, each once, and how many need it.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    ids: HashMap<Wanted, u64>,
    waiting: HashMap<u64, (Wanted, usize)>,
    next: u64,
}

// === impl Kinds ===

impl Kinds {
    /// One more waits who needs this; names what it needs. A conversation says only which of several accounts is chosen.
    pub(super) fn join(&mut self, wanted: &Wanted) -> u64 {
        let kind = Wanted { session: None, ..wanted.clone() };
        if let Some(id) = self.ids.get(&kind) {
            self.waiting.entry(*id).and_modify(|(_, count)| *count += 1);
            return *id;
        }
        self.next += 1;
        self.ids.insert(kind.clone(), self.next);
        self.waiting.insert(self.next, (kind, 1));
        self.next
    }

    /// One of them waits no longer.
    pub(super) fn leave(&mut self, id: u64) {
        let Some((kind, count)) = self.waiting.get_mut(&id) else { return };
        *count -= 1;
        if *count == 0 {
            self.ids.remove(kind);
            self.waiting.remove(&id);
        }
    }

    /// What is true of each kind that anybody waits for; nothing where it is true of none.
    pub(super) fn where_true(&self, mut of: impl FnMut(&Wanted) -> bool) -> Option<Vec<u64>> {
        let found: Vec<u64> = self.waiting.iter().filter(|(_, (kind, _))| of(kind)).map(|(id, _)| *id).collect();
        (!found.is_empty()).then_some(found)
    }
}
