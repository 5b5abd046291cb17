//! Counts answers that were sent again without a new job. The counts are kept in memory, and written every few seconds
//! with the cost of the job that had made the answer. If the process is killed, the last seconds are lost.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::gateway::keys::Caller;
use crate::gateway::store::{KeyId, ReplayCount, RequestId, StoreError, Timestamp, UsageDetailStore};

/// The most counts that are kept (our choice): a job whose cost is not known yet may run for many minutes. Further replays
/// are not counted.
const COUNTS_MAX: usize = 100_000;

/// The most counts that one transaction writes (our choice). The write of a record may have to wait for it.
const BATCH_COUNTS: usize = 50;

/// The hour, the key and the request whose answer it was.
type CountKey = (String, KeyId, RequestId);

/// The counts that have not been written yet.
#[derive(Debug, Default)]
pub(super) struct ReplayCounter(Mutex<HashMap<CountKey, ReplayCount>>);

// === impl ReplayCounter ===

impl ReplayCounter {
    pub(super) fn note(&self, caller: &Caller, request_id: &RequestId) {
        self.add(ReplayCount {
            request_id: request_id.clone(),
            key: caller.key().clone(),
            user: caller.user().clone(),
            group: caller.group_name().to_owned(),
            hour: hour_of(Timestamp::now()),
            count: 1,
        });
    }

    fn add(&self, replay: ReplayCount) {
        let mut counts = self.lock();
        let key = (replay.hour.clone(), replay.key.clone(), replay.request_id.clone());
        if counts.len() < COUNTS_MAX || counts.contains_key(&key) {
            let count = replay.count;
            let added = |counted: &mut ReplayCount| counted.count = counted.count.saturating_add(count);
            counts.entry(key).and_modify(added).or_insert(replay);
        }
    }

    /// Writes the counts of jobs that have ended. If the store fails, all counts are kept for the next write.
    pub(super) async fn write(&self, store: &dyn UsageDetailStore) -> Result<(), StoreError> {
        let counts: Vec<ReplayCount> = self.lock().drain().map(|(_, count)| count).collect();
        let mut chunks = counts.chunks(BATCH_COUNTS);
        while let Some(chunk) = chunks.next() {
            match store.add_replays(chunk).await {
                Ok(running) => running.into_iter().for_each(|count| self.add(count)),
                Err(error) => {
                    std::iter::once(chunk).chain(chunks).flatten().for_each(|count| self.add(count.clone()));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CountKey, ReplayCount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the hour of a time, such as `2026-11-21T03`.
fn hour_of(time: Timestamp) -> String {
    let mut text = time.to_string();
    text.truncate("2026-11-21T03".len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::store::testing::{finished_record, new_store, record, running_record};
    use crate::gateway::store::{NodeId, RecordStore as _, RowWrite, UsageDetails, UsageFilter, UsageGrouping};

    fn replay(request: &str) -> ReplayCount {
        ReplayCount {
            request_id: request.into(),
            key: "key_1".into(),
            user: "usr_1".into(),
            group: "default".to_owned(),
            hour: hour_of("2026-11-23T04:05:06Z".parse().unwrap()),
            count: 1,
        }
    }

    fn replays_of(details: &UsageDetails) -> [u64; 3] {
        [details.replays, details.replayed_images, details.saved_nano_usd]
    }

    #[tokio::test]
    async fn a_replay_is_counted_once_with_the_cost_of_its_job_after_that_has_ended() {
        let (_dir, store) = new_store().await;
        let counter = ReplayCounter::default();
        let cost = crate::gateway::money::Usd::from_nanos(40_000_000);
        store.write_rows(&NodeId::only(), &[RowWrite::Open(&running_record("r1"))]).await.unwrap();
        for request in ["r1", "r1", "removed"] {
            counter.add(replay(request));
        }
        let counts = async |grouping| {
            let read = store.usage_details(&UsageFilter::default(), &[grouping]).await.unwrap();
            let group = read.groups.into_iter().next().unwrap();
            let row = |(value, details): (String, UsageDetails)| (value, replays_of(&details));
            group.into_iter().map(row).filter(|(_, counts)| counts[0] > 0).collect::<Vec<_>>()
        };
        counter.write(&*store).await.unwrap();
        assert_eq!(counts(UsageGrouping::Model).await, [(String::new(), [1, 0, 0])]);
        let closed = record! { cost_usd: Some(cost), ..finished_record("r1") };
        store.write_rows(&NodeId::only(), &[RowWrite::Close(&closed)]).await.unwrap();
        counter.write(&*store).await.unwrap();
        counter.write(&*store).await.unwrap();
        let expected = [(String::new(), [1, 0, 0]), ("gpt-image-2".to_owned(), [2, 2, 80_000_000])];
        assert_eq!(counts(UsageGrouping::Model).await, expected);
        assert_eq!(counts(UsageGrouping::Hour).await, [("2026-11-23T04".to_owned(), [3, 2, 80_000_000])]);
        assert_eq!(counts(UsageGrouping::Reason).await, []);
        crate::gateway::store::InstallationStore::close(&*store).await;
        counter.add(replay("r1"));
        counter.write(&*store).await.unwrap_err();
        assert_eq!(counter.lock().len(), 1, "a failed write keeps the counts");
    }
}
