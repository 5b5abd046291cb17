//! The ids of requests: UUIDs of version 7, which begin with the time.
//!
//! Ids that increase with the time are added at the end of the index of the records. Random ids would change another
//! page of the index with each record, however large it is.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use uuid::{Builder, Uuid};

/// The number of random bytes in an id.
const RANDOM_LENGTH: usize = 10;
/// The number of ids for which random bytes are fetched at once (our choice), because each fetch is a system call.
const IDS_PER_FETCH: usize = 100;

/// Random bytes of one thread that were not used yet.
struct RandomBytes {
    bytes: [u8; RANDOM_LENGTH * IDS_PER_FETCH],
    used: usize,
}

thread_local! {
    static RANDOM: Cell<Option<Box<RandomBytes>>> = const { Cell::new(None) };
}

/// Returns a new id.
pub(super) fn new_request_id() -> Uuid {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let milliseconds = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
    // If the system has no random numbers, `new_v4` panics, and the request fails.
    let random = next_random().unwrap_or_else(|| {
        let mut random = [0; RANDOM_LENGTH];
        random.copy_from_slice(&Uuid::new_v4().as_bytes()[..RANDOM_LENGTH]);
        random
    });
    Builder::from_unix_timestamp_millis(milliseconds, &random).into_uuid()
}

fn next_random() -> Option<[u8; RANDOM_LENGTH]> {
    let mut source = RANDOM.take().unwrap_or_else(|| {
        Box::new(RandomBytes { bytes: [0; RANDOM_LENGTH * IDS_PER_FETCH], used: RANDOM_LENGTH * IDS_PER_FETCH })
    });
    if source.used == source.bytes.len() {
        getrandom::fill(&mut source.bytes).ok()?;
        source.used = 0;
    }
    let mut random = [0; RANDOM_LENGTH];
    random.copy_from_slice(&source.bytes[source.used..source.used + RANDOM_LENGTH]);
    source.used += RANDOM_LENGTH;
    RANDOM.set(Some(source));
    Some(random)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_are_different_and_begin_with_the_time() {
        let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        let ids: Vec<Uuid> = (0..IDS_PER_FETCH * 3).map(|_| new_request_id()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
        for id in ids {
            let seconds = id.get_timestamp().expect("a time").to_unix().0;
            assert!((before..before + 60).contains(&seconds) && id.get_version_num() == 7, "{id}");
        }
    }
}
