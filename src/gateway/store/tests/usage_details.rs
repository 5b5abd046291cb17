//! Tests of detailed counts: they are compared with the records that they count.

use crate::gateway::store::testing::{fold_records, record, token_usage};
use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use super::usage::{SeededRandom, random_write};
use super::*;

/// A store with random jobs, and the records that were removed from it.
struct CountedJobs {
    fixture: Fixture,
    random: SeededRandom,
    running: Vec<JobRecord>,
    closed: Vec<JobRecord>,
    removed: Vec<types::Record>,
    number: u64,
}

impl CountedJobs {
    fn new(fixture: Fixture, seed: u64) -> Self {
        let (running, closed, removed) = (Vec::new(), Vec::new(), Vec::new());
        Self { fixture, random: SeededRandom(seed), running, closed, removed, number: 0 }
    }

    async fn write_batch(&mut self) {
        let mut steps = Vec::new();
        for _ in 0..self.random.pick(&[1, 2, 7]) {
            self.number += 1;
            steps.push(random_write(&mut self.random, &mut self.running, &mut self.closed, self.number));
        }
        let writes: Vec<_> = steps
            .iter()
            .map(|(open, record)| if *open { RowWrite::Open(record) } else { RowWrite::Close(record) })
            .collect();
        write(&*self.fixture.store, &writes).await;
    }

    /// Does one of the things that happen between requests.
    #[expect(clippy::excessive_nesting, reason = "a step that ends at any point")]
    async fn disturb(&mut self) {
        let limit = self.random.pick(&[1, 2, 5, 100]);
        let (one, other) = (Arc::clone(&self.fixture.store), Arc::clone(&self.fixture.second_store));
        match self.random.below(6) {
            0 | 1 => drop(fold_records(&*one, i64::MAX, limit).await.unwrap()),
            2 => {
                let (first, second) =
                    tokio::join!(fold_records(&*one, i64::MAX, limit), fold_records(&*other, i64::MAX, limit));
                assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
            }
            3 => {
                // The process ends at any point of a step.
                let mut fold = pin!(fold_records(&*one, i64::MAX, limit));
                for _ in 0..self.random.below(40) {
                    if fold.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                    std::thread::yield_now();
                }
            }
            4 => self.remove_old_records().await,
            _ => drop(one.interrupt_running(&NodeId::only()).await.unwrap()),
        }
    }

    /// Counts outcomes that have replaced provisional ones: in steps of their own, seconds later.
    async fn count_replaced(&self) {
        while fold_records(&*self.fixture.store, 0, 1).await.unwrap() {}
    }

    async fn remove_old_records(&mut self) {
        // No record is removed within seconds of its outcome.
        self.count_replaced().await;
        let before = all_records(&*self.fixture.store).await;
        let time = at(self.random.pick(&["2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z", "2027-01-01T00:00:00Z"]));
        let limit = self.random.pick(&[1, 3, 1000]);
        self.fixture.store.remove_expired_rows(RetentionClass::Records, time, limit).await.unwrap();
        let after = all_records(&*self.fixture.store).await;
        let left = ids(&after);
        self.removed.extend(before.into_iter().filter(|record| !left.contains(&record.request_id.as_str())));
    }

    /// Compares every grouping, with several filters, with the sums of the records.
    #[expect(clippy::excessive_nesting, reason = "every filter, grouping and record")]
    async fn check(&self) {
        self.count_replaced().await;
        let mut records = all_records(&*self.fixture.store).await;
        records.extend(self.removed.iter().cloned());
        for (filter, passes) in filters() {
            let read = self.fixture.store.usage_details(&filter, &UsageGrouping::ALL).await.unwrap();
            assert_eq!(read.pending_records, 0);
            for (grouping, found) in UsageGrouping::ALL.into_iter().zip(read.groups) {
                let mut expected = BTreeMap::<String, UsageDetails>::new();
                for record in records.iter().filter(|record| passes(record)) {
                    if let Some(value) = value_of(record, grouping) {
                        expected.entry(value).or_default().add(&details_of(record));
                    }
                }
                assert_eq!(found.into_iter().collect::<BTreeMap<_, _>>(), expected, "{grouping:?} {filter:?}");
            }
        }
    }
}

type RecordPredicate = fn(&types::Record) -> bool;

fn filters() -> Vec<(UsageFilter, RecordPredicate)> {
    let (any, text) = (UsageFilter::default, |text: &str| Some(text.to_owned()));
    let day = |day: &str| Some(day.parse::<UtcDay>().unwrap());
    vec![
        (any(), |_| true),
        (UsageFilter { owner: Some("usr_1".into()), ..any() }, |record| record.user.as_str() == "usr_1"),
        (UsageFilter { key: text("key_2"), ..any() }, |record| record.key.as_str() == "key_2"),
        (UsageFilter { user: text("usr_2"), ..any() }, |record| record.user.as_str() == "usr_2"),
        (UsageFilter { group: text("other"), ..any() }, |record| record.group == "other"),
        (UsageFilter { owner: Some("usr_2".into()), key: text("key_1"), ..any() }, |_| false),
        (UsageFilter { owner: Some("usr_1".into()), group: text("default"), ..any() }, |record| {
            record.user.as_str() == "usr_1" && record.group == "default"
        }),
        (UsageFilter { since: day("2026-11-21"), until: day("2026-11-21"), ..any() }, |record| {
            UtcDay::from(Timestamp::from(record.created_at)).to_string() == "2026-11-21"
        }),
        (UsageFilter { until: day("2026-11-20"), key: text("key_3"), ..any() }, |record| {
            UtcDay::from(Timestamp::from(record.created_at)).to_string() == "2026-11-20"
                && record.key.as_str() == "key_3"
        }),
    ]
}

fn value_of(record: &types::Record, grouping: UsageGrouping) -> Option<String> {
    let time = Timestamp::from(record.created_at).to_string();
    let optional = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(match grouping {
        UsageGrouping::Day => time[..10].to_owned(),
        UsageGrouping::Hour => time[..13].to_owned(),
        UsageGrouping::Key => record.key.to_string(),
        UsageGrouping::User => record.user.to_string(),
        UsageGrouping::Group => record.group.clone(),
        UsageGrouping::Account => optional(&record.account),
        UsageGrouping::Model => optional(&record.model),
        UsageGrouping::Size => optional(&record.size),
        UsageGrouping::Quality => optional(&record.quality),
        UsageGrouping::Reason if record.state == JobState::Succeeded => return None,
        UsageGrouping::Reason => record.error_reason.map(types::RecordReason::as_str).unwrap_or_default().to_owned(),
    })
}

fn details_of(record: &types::Record) -> UsageDetails {
    let is_succeeded = record.state == JobState::Succeeded;
    let [input, output, total] = all_tokens(record).map(Option::unwrap_or_default);
    let (usage, host) = (record.usage.clone().unwrap_or_default(), record.host_usage.clone().unwrap_or_default());
    let kinds = |details: Option<types::RecordTokens>| {
        let count = |count: fn(&types::RecordTokens) -> Option<u64>| details.as_ref().and_then(count).unwrap_or(0);
        (count(|details| details.text_tokens), count(|details| details.image_tokens))
    };
    let (input_kinds, output_kinds) = (kinds(usage.input_tokens_details), kinds(usage.output_tokens_details));
    let cached = kinds(usage.cached_tokens_details);
    let mut durations = DurationCounts::default();
    if let Some(latency) = record.latency_ms.filter(|_| is_succeeded) {
        durations.add(latency);
    }
    UsageDetails {
        requests: 1,
        succeeded: u64::from(is_succeeded),
        images: record.delivered.len() as u64,
        input_tokens: input,
        output_tokens: output,
        total_tokens: total,
        input_text_tokens: input_kinds.0,
        input_image_tokens: input_kinds.1,
        input_cached_tokens: cached.0 + cached.1,
        output_text_tokens: output_kinds.0,
        output_image_tokens: output_kinds.1,
        host_input_tokens: host.input_tokens.unwrap_or_default(),
        host_output_tokens: host.output_tokens.unwrap_or_default(),
        cost_nano_usd: record.cost_usd.and_then(Usd::from_dollars).unwrap_or_default().nanos(),
        cost_unknown: u64::from(record.cost_usd.is_none()),
        durations,
        ..UsageDetails::default()
    }
}

#[expect(clippy::excessive_nesting, reason = "every store, and every step of a history")]
#[tokio::test]
async fn details_match_the_records_whatever_happens_while_they_are_counted() {
    for seed in 0..3 {
        for fixture in stores().await {
            let mut jobs = CountedJobs::new(fixture, seed);
            for _ in 0..20 {
                for _ in 0..jobs.random.below(4) {
                    jobs.write_batch().await;
                }
                jobs.disturb().await;
                jobs.check().await;
            }
            // In the end, everything is counted, by whoever comes last.
            jobs.fixture.store.interrupt_running(&NodeId::only()).await.unwrap();
            while fold_records(&*jobs.fixture.second_store, i64::MAX, 10_000).await.unwrap() {}
            jobs.check().await;
            assert!(!fold_records(&*jobs.fixture.store, i64::MAX, 10_000).await.unwrap());
            assert!(jobs.number > 20 && !jobs.closed.is_empty(), "seed {seed}");
        }
    }
}

async fn add_closed(store: &dyn Store, id: &str, created_at: &str) {
    let open = record! { created_at: at(created_at), ..running_record(id) };
    let closed = record! { created_at: at(created_at), ..finished_record(id) };
    write(store, &[RowWrite::Open(&open), RowWrite::Close(&closed)]).await;
}

async fn total(store: &dyn Store) -> u64 {
    let read = store.usage_details(&UsageFilter::default(), &[UsageGrouping::Day]).await.unwrap();
    read.groups[0].iter().map(|(_, details)| details.requests).sum()
}

#[expect(clippy::excessive_nesting, reason = "every store, and every step of a history")]
#[tokio::test]
async fn records_that_come_after_the_removal_of_all_others_are_counted() {
    for Fixture { store, .. } in stores().await {
        for (round, day) in (1..).zip(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2026-01-03T00:00:00Z"]) {
            for id in ["a", "b"] {
                add_closed(&*store, &format!("{id}{round}"), day).await;
            }
            assert_eq!(total(&*store).await, round * 2);
            fold_records(&*store, i64::MAX, 100).await.unwrap();
            assert_eq!(total(&*store).await, round * 2);
            store.remove_expired_rows(RetentionClass::Records, at("2026-02-01T00:00:00Z"), 100).await.unwrap();
            assert_eq!(all_records(&*store).await, []);
            assert_eq!(total(&*store).await, round * 2);
        }
    }
}

#[tokio::test]
async fn no_record_is_removed_before_it_is_counted() {
    for Fixture { store, .. } in stores().await {
        write(&*store, &[RowWrite::Open(&running_record("running"))]).await;
        add_closed(&*store, "later", "2026-01-01T00:00:00Z").await;
        // The running record is the first, so nothing can be counted yet.
        all_records(&*store).await; // Moves the records out of their journal.
        let newest = store.newest_record().await.unwrap();
        assert!(!fold_records(&*store, newest, 100).await.unwrap());
        let remove =
            async || store.remove_expired_rows(RetentionClass::Records, at("2026-02-01T00:00:00Z"), 100).await.unwrap();
        assert_eq!(remove().await, 0);
        write(&*store, &[RowWrite::Close(&finished_record("running"))]).await;
        all_records(&*store).await; // Moves the records out of their journal.
        let newest = store.newest_record().await.unwrap();
        assert!(fold_records(&*store, newest, 100).await.unwrap());
        assert_eq!((remove().await, total(&*store).await), (1, 2));
    }
}

#[tokio::test]
async fn sums_of_details_end_at_the_largest_number() {
    for Fixture { store, .. } in stores().await {
        let usage = token_usage! { total_tokens: Some(i64::MAX as u64), ..TokenUsage::default() };
        for id in ["a", "b", "c"] {
            let cost_usd = Some(Usd::MAX);
            let closed = record! { usage: Some(usage.clone()), cost_usd, host_usage: None, ..finished_record(id) };
            write(&*store, &[RowWrite::Open(&running_record(id)), RowWrite::Close(&closed)]).await;
            fold_records(&*store, i64::MAX, 100).await.unwrap();
        }
        let read = store.usage_details(&UsageFilter::default(), &[UsageGrouping::Model]).await.unwrap();
        let (_, details) = &read.groups[0][0];
        assert_eq!(
            (details.requests, details.total_tokens, details.cost_nano_usd),
            (3, i64::MAX as u64, i64::MAX as u64)
        );
    }
}
