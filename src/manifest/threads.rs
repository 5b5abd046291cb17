//! Divides work among several threads, if the caller of a check allows it.

use std::iter;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder};

/// The maximum number of threads that work at a time, including the calling one.
#[derive(Clone, Copy, Debug)]
pub(super) struct ThreadLimit(usize);

// === impl ThreadLimit ===

impl ThreadLimit {
    pub(super) fn new(count: usize) -> Self {
        Self(count.max(1))
    }

    /// Applies `work` to all items, and returns the results in the order of the items. With a limit of 1, no thread is
    /// started.
    pub(super) fn map_in_parallel<T: Sync, R: Send>(self, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
        let next = AtomicUsize::new(0);
        let next_result = || {
            let at = next.fetch_add(1, Ordering::Relaxed);
            Some((at, work(items.get(at)?)))
        };
        let worker = || iter::from_fn(next_result).collect::<Vec<_>>();
        let mut done = thread::scope(|scope| {
            // If the system cannot start a thread, the other threads do its work.
            let start = |_| Builder::new().spawn_scoped(scope, worker).ok();
            let handles: Vec<_> = (1..self.0.min(items.len())).filter_map(start).collect();
            let mut done = worker();
            for handle in handles {
                done.extend(handle.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            done
        });
        done.sort_unstable_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, result)| result).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn every_item_is_processed_once_and_in_order() {
        let items: Vec<usize> = (0..1000).collect();
        for count in [0, 1, 2, 7] {
            assert_eq!(ThreadLimit::new(count).map_in_parallel(&items, |item| *item), items, "{count}");
            assert_eq!(ThreadLimit::new(count).map_in_parallel(&items[..1], |item| *item), [0], "{count}");
        }
        assert_eq!(ThreadLimit::new(2).map_in_parallel(&items[..0], |item| *item), [0; 0]);
        // The barrier lets an item pass only while another thread processes another item, so both threads are used.
        let barrier = Barrier::new(2);
        let results = ThreadLimit::new(2).map_in_parallel(&items, |item| {
            barrier.wait();
            *item
        });
        assert_eq!(results, items);
    }

    #[test]
    fn the_limit_is_used_and_not_exceeded() {
        let wait = |all: &Barrier| {
            all.wait();
            thread::current().id()
        };
        // A single thread would not pass the barrier.
        let all = Barrier::new(3);
        let ids = ThreadLimit::new(3).map_in_parallel(&[&all; 3], |all| wait(all));
        assert_eq!(ids.into_iter().collect::<HashSet<_>>().len(), 3);
        let ids = ThreadLimit::new(1).map_in_parallel(&[(); 50], |()| thread::current().id());
        assert!(ids.iter().all(|id| *id == thread::current().id()));
        assert!(
            ThreadLimit::new(3)
                .map_in_parallel(&[(); 500], |()| thread::current().id())
                .into_iter()
                .collect::<HashSet<_>>()
                .len()
                <= 3
        );
    }

    #[test]
    #[should_panic(expected = "the spawned thread panics")]
    fn a_panic_is_not_lost() {
        let both = Barrier::new(2);
        let here = thread::current().id();
        ThreadLimit::new(2).map_in_parallel(&[(); 2], |()| {
            both.wait();
            assert_eq!(thread::current().id(), here, "the spawned thread panics");
        });
    }
}
