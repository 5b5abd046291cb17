//! The idempotency keys of calls whose answer never came to the program, kept for the next equal call.
//!
//! A call that the program drops returns no error, and so no key, although its image may be made and paid for. Its key is
//! kept under a hash of everything that makes two requests equal, also that of a call whose error leaves the outcome
//! unknown. The next equal call takes it, so that a service which pays for a key once sends the image that it has made.

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, DefaultHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::HeaderValue;

use super::Error;
#[cfg(not(target_arch = "wasm32"))]
use super::retry::random_bits;

/// The time for which a key is kept (our choice): a gateway keeps its answer for a day, and a program asks again sooner.
const KEY_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// The maximum number of keys of a client (our choice). The oldest one makes room.
const MAX_KEYS: usize = 256;

/// The keys of the unfinished calls of a client and its clones.
#[derive(Default)]
pub(super) struct UnfinishedCalls {
    /// Its keys are random, so that nobody can make requests with the same hash.
    hash_keys: RandomState,
    /// The oldest call is first.
    calls: Mutex<VecDeque<UnfinishedCall>>,
}

struct UnfinishedCall {
    request_hash: u64,
    key: HeaderValue,
    ended_at: Instant,
}

/// The key that the client has given to a call. If it is dropped before the end of the call is recorded, the key is kept
/// for the next equal call.
pub(super) struct AutomaticKey {
    unfinished_calls: Arc<UnfinishedCalls>,
    request_hash: u64,
    value: HeaderValue,
    /// True if it is the key of an unfinished call.
    is_repeat: bool,
    has_outcome: bool,
}

// === impl UnfinishedCalls ===

impl UnfinishedCalls {
    /// Returns a hasher for a request.
    pub(super) fn hasher(&self) -> DefaultHasher {
        self.hash_keys.build_hasher()
    }

    fn keep(&self, call: UnfinishedCall) {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() >= MAX_KEYS {
            calls.pop_front();
        }
        calls.push_back(call);
    }

    /// Removes and returns the key of an unfinished call with this hash, so that only one call gets it.
    fn take(&self, request_hash: u64) -> Option<HeaderValue> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        while calls.front().is_some_and(|call| call.ended_at.elapsed() >= KEY_LIFETIME) {
            calls.pop_front();
        }
        let position = calls.iter().position(|call| call.request_hash == request_hash)?;
        calls.remove(position).map(|call| call.key)
    }
}

// === impl AutomaticKey ===

impl AutomaticKey {
    /// Returns the key for a request with this hash: that of an unfinished equal call, or else one that no other call
    /// has. `None` if the platform has no random source.
    pub(super) fn for_request(unfinished_calls: &Arc<UnfinishedCalls>, request_hash: u64) -> Option<Self> {
        let earlier = unfinished_calls.take(request_hash);
        let is_repeat = earlier.is_some();
        let (value, unfinished_calls) = (earlier.or_else(new_key)?, Arc::clone(unfinished_calls));
        Some(Self { unfinished_calls, request_hash, value, is_repeat, has_outcome: false })
    }

    /// Returns the key as it is sent.
    pub(super) fn value(&self) -> HeaderValue {
        self.value.clone()
    }

    /// Records the end of the call: its answer, or its error. The key is forgotten if the outcome is known.
    pub(super) fn record_end(&mut self, error: Option<&Error>) {
        self.has_outcome = !error.is_some_and(|error| error.leaves_key(self.is_repeat));
    }
}

impl Drop for AutomaticKey {
    fn drop(&mut self) {
        if !self.has_outcome {
            let key = self.value.clone();
            let ended_at = Instant::now();
            self.unfinished_calls.keep(UnfinishedCall { request_hash: self.request_hash, key, ended_at });
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
fn new_key() -> Option<HeaderValue> {
    HeaderValue::try_from(format!("imagate-{:016x}{:016x}", random_bits(), random_bits())).ok()
}

/// Returns `None`: there is no random source without an import, and no retry that would need the key.
#[cfg(target_arch = "wasm32")]
fn new_key() -> Option<HeaderValue> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(key: &AutomaticKey) -> String {
        key.value().to_str().unwrap().to_owned()
    }

    #[test]
    fn one_equal_call_gets_the_key_of_a_dropped_one() {
        let calls = Arc::<UnfinishedCalls>::default();
        let key = |hash| AutomaticKey::for_request(&calls, hash).unwrap();
        let dropped = value(&key(1));
        let (other, mut first, second) = (key(2), key(1), key(1));
        assert!(value(&first) == dropped && value(&second) != dropped && value(&other) != dropped);
        first.record_end(None);
        drop(first);
        assert_ne!(value(&key(1)), dropped, "the call had its answer");
    }

    #[test]
    fn the_number_of_keys_is_bounded_and_the_oldest_makes_room() {
        let calls = Arc::<UnfinishedCalls>::default();
        let dropped: Vec<String> =
            (0..300).map(|hash| value(&AutomaticKey::for_request(&calls, hash).unwrap())).collect();
        assert_eq!(calls.calls.lock().unwrap().len(), MAX_KEYS);
        assert_ne!(value(&AutomaticKey::for_request(&calls, 0).unwrap()), dropped[0]);
        assert_eq!(value(&AutomaticKey::for_request(&calls, 299).unwrap()), dropped[299]);
    }

    #[test]
    fn a_key_is_kept_for_an_hour() {
        let calls = Arc::<UnfinishedCalls>::default();
        let dropped = value(&AutomaticKey::for_request(&calls, 1).unwrap());
        // A machine that has just started may have no time that long ago.
        let Some(then) = Instant::now().checked_sub(KEY_LIFETIME) else { return };
        calls.calls.lock().unwrap()[0].ended_at = then;
        assert_ne!(value(&AutomaticKey::for_request(&calls, 1).unwrap()), dropped);
    }
}
