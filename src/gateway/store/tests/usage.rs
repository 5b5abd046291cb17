//! Tests of usage counts: they are compared with the records that they count.

use super::*;
use crate::gateway::store::testing::{record, record_filter, token_usage};

/// A small random generator (splitmix64). The same seed gives the same numbers, so a run can be repeated.
pub(super) struct SeededRandom(pub(super) u64);

impl SeededRandom {
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).unwrap()]
    }
}

type CounterKey = (String, UtcDay, String, String);

/// Returns the counts that the store added up when records were closed.
async fn stored_counts(store: &dyn Store) -> BTreeMap<CounterKey, UsageCounters> {
    let mut counts = BTreeMap::new();
    let day = |day| UsageFilter { since: Some(day), until: Some(day), ..UsageFilter::default() };
    for DayCounts { day: date, .. } in store.usage_by_day(&UsageFilter::default()).await.unwrap() {
        for usage in store.usage_by_key(&day(date), None).await.unwrap() {
            counts.insert((usage.key.to_string(), date, usage.user.to_string(), usage.group), usage.counts);
        }
    }
    counts
}

fn add_record(sum: &mut UsageCounters, record: &types::Record) {
    let [input, output, total] = all_tokens(record).map(Option::unwrap_or_default);
    sum.requests += 1;
    sum.succeeded += u64::from(record.state == JobState::Succeeded);
    sum.failed += u64::from(record.state != JobState::Succeeded);
    sum.images += record.delivered.len() as u64;
    sum.input_tokens += input;
    sum.output_tokens += output;
    sum.total_tokens += total;
    sum.cost_usd = sum.cost_usd.plus(record.cost_usd.and_then(Usd::from_dollars).unwrap_or_default());
    sum.cost_unknown += u64::from(record.cost_usd.is_none());
}

/// Returns the counts computed from the records.
async fn computed_counts(store: &dyn Store) -> BTreeMap<CounterKey, UsageCounters> {
    let mut sums: BTreeMap<CounterKey, UsageCounters> = BTreeMap::new();
    for record in all_records(store).await {
        let day = Timestamp::from(record.created_at).into();
        let key = (record.key.clone(), day, record.user.clone(), record.group.clone());
        add_record(sums.entry(key).or_default(), &record);
    }
    sums
}

fn intent(random: &mut SeededRandom, id: &str) -> JobRecord {
    let key = random.pick(&["key_1", "key_2", "key_3"]);
    let user = if key == "key_3" { "usr_2" } else { "usr_1" };
    let created_at = at(random.pick(&[
        "2026-11-20T23:59:59.999Z",
        "2026-11-21T00:00:00Z",
        "2026-11-21T23:00:00Z",
        "2026-12-01T12:00:00Z",
    ]));
    let group = random.pick(&["default", "other"]).to_owned();
    // Only key_2 has no end user. An end user is named after its group, so that it spans keys and days.
    let end_user = (key != "key_2").then(|| format!("of {group}"));
    let model = Some(if key == "key_1" { "gpt-image-2" } else { "gpt-image-1.5" }.to_owned());
    let (size, quality) = (random.pick(&[None, Some("1024x1024"), Some("auto")]), random.pick(&[None, Some("high")]));
    let (size, quality) = (size.map(str::to_owned), quality.map(str::to_owned));
    record! {
        created_at,
        key: key,
        user: user,
        group,
        end_user,
        model,
        size,
        quality,
        ..running_record(id)
    }
}

fn outcome(random: &mut SeededRandom, open: &JobRecord) -> JobRecord {
    let tokens = |random: &mut SeededRandom| (random.below(3) > 0).then(|| random.below(5000));
    let mut usage = || {
        let (input_tokens, output_tokens, total_tokens) = (tokens(random), tokens(random), tokens(random));
        Some(token_usage! { input_tokens, output_tokens, total_tokens, ..TokenUsage::default() })
            .filter(|usage| *usage != TokenUsage::default())
    };
    let (usage, host_usage) = (usage(), usage());
    let mut kinds = || {
        let (image_tokens, text_tokens) = (tokens(random), tokens(random));
        Some(types::RecordTokens { image_tokens, text_tokens })
            .filter(|kinds| kinds.image_tokens.or(kinds.text_tokens).is_some())
    };
    let (input_kinds, output_kinds, cached_kinds) = (kinds(), kinds(), kinds());
    let usage = usage.map(|usage| {
        token_usage! {
            input_tokens_details: input_kinds,
            output_tokens_details: output_kinds,
            cached_tokens_details: cached_kinds,
            ..usage
        }
    });
    let latency_ms = (random.below(5) > 0).then(|| random.below(200_000));
    let cost_usd = usage.as_ref().and_then(|usage| usage.counts.input_tokens).map(Usd::from_nanos);
    let image = types::RecordImage { size: None, output_format: Some("png".to_owned()), quality: None };
    let state = random.pick(&[
        JobState::Succeeded,
        JobState::Failed,
        JobState::Refused,
        JobState::Cancelled,
        JobState::Interrupted,
    ]);
    let error = match state {
        JobState::Failed if open.document.group == "other" => {
            Some(("rate_limit_exceeded", types::RecordReason::Throttled))
        }
        JobState::Failed => Some(("upstream_error", types::RecordReason::Network)),
        JobState::Interrupted => Some(("upstream_error", types::RecordReason::Timeout)),
        _ => None,
    };
    record! {
        state,
        account: (open.document.group == "other").then(|| "second".to_owned()),
        error_code: error.map(|(code, _)| code.to_owned()),
        error_reason: error.map(|(_, reason)| reason),
        delivered: vec![image; usize::try_from(random.below(4)).unwrap()],
        usage,
        host_usage,
        cost_usd,
        // Without a duration, an interrupted record would be one that another node has closed.
        latency_ms: latency_ms.or((state == JobState::Interrupted).then_some(1)),
        ..open.clone()
    }
}

/// Returns a random write: `true` and an intent to open, or `false` and a record to close. It is one that the ledger
/// can make, or an invalid one, which must have no effect.
pub(super) fn random_write(
    random: &mut SeededRandom,
    running: &mut Vec<JobRecord>,
    closed: &mut Vec<JobRecord>,
    number: u64,
) -> (bool, JobRecord) {
    match random.below(8) {
        0..3 => {
            let open = intent(random, &format!("r{number}"));
            running.push(open.clone());
            (true, open)
        }
        3..6 if !running.is_empty() => {
            let index = usize::try_from(random.below(running.len() as u64)).unwrap();
            let done = outcome(random, &running.swap_remove(index));
            closed.push(done.clone());
            (false, done)
        }
        // Closes the record again, perhaps with another outcome.
        6 if !closed.is_empty() => {
            let index = usize::try_from(random.below(closed.len() as u64)).unwrap();
            (false, outcome(random, &closed[index]))
        }
        // Closes a record that was never opened.
        6 => {
            let unopened = intent(random, "never");
            (false, outcome(random, &unopened))
        }
        // Opens a record whose id is taken, or, before any record was closed, one that is never closed.
        _ => (true, closed.last().cloned().unwrap_or_else(|| intent(random, "r0"))),
    }
}

/// Makes forty commits of one or more writes.
pub(super) async fn write_random_batches(store: &dyn Store, random: &mut SeededRandom) {
    let (mut running, mut closed) = (Vec::new(), Vec::new());
    for round in 0..40 {
        let size = random.pick(&[1, 1, 2, 7]);
        let steps: Vec<_> =
            (0..size).map(|index| random_write(random, &mut running, &mut closed, round * 10 + index)).collect();
        let writes: Vec<_> = steps
            .iter()
            .map(|(open, record)| if *open { RowWrite::Open(record) } else { RowWrite::Close(record) })
            .collect();
        write(store, &writes).await;
    }
}

#[tokio::test]
async fn counts_match_the_records_after_random_writes() {
    for seed in 0..8 {
        for Fixture { store, .. } in stores().await {
            let mut random = SeededRandom(seed);
            write_random_batches(&*store, &mut random).await;
            assert_eq!(stored_counts(&*store).await, computed_counts(&*store).await, "seed {seed}");
            // The next start closes each record that is still open, and counts it once.
            let interrupted = store.interrupt_running(&NodeId::only()).await.unwrap();
            assert!(interrupted > 0, "seed {seed} leaves no record open");
            assert_eq!(store.interrupt_running(&NodeId::only()).await.unwrap(), 0);
            let after = stored_counts(&*store).await;
            assert_eq!(after, computed_counts(&*store).await, "seed {seed}");
            assert_eq!(
                after.values().map(|counts| counts.requests).sum::<u64>(),
                all_records(&*store).await.len() as u64
            );
        }
    }
}

#[tokio::test]
async fn counts_of_an_end_user_match_the_records() {
    for Fixture { store, .. } in stores().await {
        write_random_batches(&*store, &mut SeededRandom(7)).await;
        store.interrupt_running(&NodeId::only()).await.unwrap();
        let end_user = Some("of other".to_owned());
        let filter = record_filter! { end_user: end_user.clone(), ..RecordFilter::default() };
        let listed = store.list_records(&filter).await.unwrap();
        let expected: Vec<types::Record> =
            all_records(&*store).await.into_iter().filter(|record| record.end_user == end_user).collect();
        assert!(!expected.is_empty() && listed == expected, "{listed:?}\n{expected:?}");

        let (mut days, mut keys, mut total) = (BTreeMap::new(), BTreeMap::new(), UsageCounters::default());
        for record in &expected {
            add_record(days.entry(UtcDay::from(Timestamp::from(record.created_at))).or_default(), record);
            add_record(keys.entry(record.key.to_string()).or_default(), record);
            add_record(&mut total, record);
        }
        let filter = UsageFilter { end_user, ..UsageFilter::default() };
        let by_day = store.usage_by_day(&filter).await.unwrap();
        assert_eq!(by_day.into_iter().map(|usage| (usage.day, usage.counts)).collect::<BTreeMap<_, _>>(), days);
        let by_key = store.usage_by_key(&filter, None).await.unwrap();
        assert_eq!(
            by_key.into_iter().map(|usage| (usage.key.to_string(), usage.counts)).collect::<BTreeMap<_, _>>(),
            keys
        );
        assert_eq!(store.total_usage(&filter).await.unwrap(), total);
        // The filter includes the whole of its first and last day.
        for (day, counts) in days {
            let one_day = UsageFilter { since: Some(day), until: Some(day), ..filter.clone() };
            assert_eq!(store.total_usage(&one_day).await.unwrap(), counts, "{day}");
        }
    }
}

#[tokio::test]
async fn the_counts_of_the_days_add_up_to_the_total() {
    for Fixture { store, .. } in stores().await {
        write_random_batches(&*store, &mut SeededRandom(5)).await;
        for end_user in [None, Some("of other".to_owned())] {
            let filter = UsageFilter { end_user, ..UsageFilter::default() };
            let days = store.usage_by_day(&filter).await.unwrap();
            let sum = days.iter().fold(UsageCounters::default(), |sum, day| sum.plus(&day.counts));
            assert!(days.len() > 1);
            assert_eq!(sum, store.total_usage(&filter).await.unwrap(), "{filter:?}");
        }
        let huge = UsageCounters { images: i64::MAX as u64, cost_usd: Usd::MAX, ..UsageCounters::default() };
        assert_eq!(huge.plus(&huge), huge);
    }
}

#[tokio::test]
async fn an_end_user_is_matched_exactly_after_truncation() {
    for Fixture { store, .. } in stores().await {
        let long = "ü".repeat(200);
        for (id, end_user) in
            [("long", Some(JobRecord::truncate_text(long.clone()))), ("odd", Some(" A_%".to_owned())), ("none", None)]
        {
            let open = record! { end_user, ..running_record(id) };
            let closed = record! { state: JobState::Failed, ..open.clone() };
            write(&*store, &[RowWrite::Open(&open), RowWrite::Close(&closed)]).await;
        }
        let truncated = "ü".repeat(JobRecord::MAX_TEXT_BYTES / 2);
        let shorter = "ü".repeat(JobRecord::MAX_TEXT_BYTES / 2 - 1);
        let expected: [(&str, &[&str]); 8] = [
            (&long, &["long"]),
            (&truncated, &["long"]),
            (&shorter, &[]),
            (" A_%", &["odd"]),
            ("A_%", &[]),
            (" a_%", &[]),
            ("%", &[]),
            ("", &[]),
        ];
        for (end_user, expected_ids) in expected {
            let end_user = Some(end_user.to_owned());
            let filter = record_filter! { end_user: end_user.clone(), ..RecordFilter::default() };
            assert_eq!(ids(&store.list_records(&filter).await.unwrap()), expected_ids, "{end_user:?}");
            let filter = UsageFilter { end_user, ..UsageFilter::default() };
            assert_eq!(store.total_usage(&filter).await.unwrap().requests, expected_ids.len() as u64, "{filter:?}");
        }
    }
}

#[tokio::test]
async fn each_model_in_use_since_a_time_is_listed_once() {
    for Fixture { store, .. } in stores().await {
        let since = at("2026-11-21T00:00:00Z");
        for (id, operation, model, created_at) in [
            ("old", "create_image", Some("gpt-image-1"), "2026-11-20T23:59:59.999Z"),
            ("first", "create_image", Some("gpt-image-2"), "2026-11-21T00:00:00Z"),
            ("second", "create_image", Some("gpt-image-2"), "2026-11-22T00:00:00Z"),
            ("text", "create_response", Some("gpt-image-2"), "2026-11-22T00:00:00Z"),
            ("none", "edit_image", None, "2026-11-22T00:00:00Z"),
        ] {
            let (operation, model) = (operation.to_owned(), model.map(str::to_owned));
            let open = record! { operation, model, created_at: at(created_at), ..running_record(id) };
            write(&*store, &[RowWrite::Open(&open)]).await;
        }
        let used = |operation: &str| UsedModel { operation: operation.to_owned(), model: "gpt-image-2".to_owned() };
        assert_eq!(store.models_since(since).await.unwrap(), [used("create_image"), used("create_response")]);
    }
}

#[tokio::test]
async fn an_intent_is_not_counted_before_it_is_closed() {
    for Fixture { store, .. } in stores().await {
        write(&*store, &[RowWrite::Open(&running_record("r1"))]).await;
        assert_eq!(store.total_usage(&UsageFilter::default()).await.unwrap(), UsageCounters::default());
        assert_eq!(store.usage_by_day(&UsageFilter::default()).await.unwrap(), []);
        write(&*store, &[RowWrite::Close(&finished_record("r1"))]).await;
        let counts = store.total_usage(&UsageFilter::default()).await.unwrap();
        let expected =
            UsageCounters { requests: 1, succeeded: 1, images: 1, input_tokens: 47, output_tokens: 442, ..counts };
        assert_eq!((counts, counts.total_tokens, counts.failed), (expected, 489, 0));
    }
}

#[tokio::test]
async fn counts_are_filtered_by_user_key_group_and_day() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let record = |id: &str, day: u32, key: &KeyId, user: &UserId, group: &str| {
            let created_at = at(&format!("2026-11-{day:02}T12:00:00Z"));
            record! { created_at, key: key.clone(), user: user.clone(), group: group.to_owned(), ..finished_record(id) }
        };
        let (other_key, other_user) = (KeyId::from("key_2"), UserId::from("usr_2"));
        for record in [
            record("a", 20, &row.id, &row.user, "default"),
            record("b", 21, &row.id, &row.user, "other"),
            record("c", 21, &other_key, &other_user, "other"),
            record("d", 22, &other_key, &other_user, "default"),
        ] {
            let open = record! { state: JobState::Running, ..record.clone() };
            write(&*store, &[RowWrite::Open(&open), RowWrite::Close(&record)]).await;
        }
        let days = async |filter: UsageFilter| -> Vec<(String, u64)> {
            let days = store.usage_by_day(&filter).await.unwrap();
            let sum: u64 = days.iter().map(|usage| usage.counts.requests).sum();
            assert_eq!(store.total_usage(&filter).await.unwrap().requests, sum);
            let by_key = store.usage_by_key(&filter, None).await.unwrap();
            assert_eq!(by_key.iter().map(|usage| usage.counts.requests).sum::<u64>(), sum);
            days.into_iter().map(|usage| (usage.day.to_string().split_off(8), usage.counts.requests)).collect()
        };
        let expected_days =
            |pairs: &[(&str, u64)]| pairs.iter().map(|(day, count)| ((*day).to_owned(), *count)).collect::<Vec<_>>();
        let any = UsageFilter::default;
        let (first, last) = (Some("2026-11-21".parse().unwrap()), Some("2026-11-21".parse().unwrap()));

        assert_eq!(days(any()).await, expected_days(&[("20", 1), ("21", 2), ("22", 1)]));
        assert_eq!(days(UsageFilter { since: first, ..any() }).await, expected_days(&[("21", 2), ("22", 1)]));
        assert_eq!(days(UsageFilter { until: last, ..any() }).await, expected_days(&[("20", 1), ("21", 2)]));
        assert_eq!(days(UsageFilter { since: first, until: last, ..any() }).await, expected_days(&[("21", 2)]));
        assert_eq!(days(UsageFilter { group: Some("other".to_owned()), ..any() }).await, expected_days(&[("21", 2)]));
        for handle in [row.id.as_str(), row.public_id.as_str()] {
            let filter = UsageFilter { key: Some(handle.to_owned()), ..any() };
            assert_eq!(days(filter).await, expected_days(&[("20", 1), ("21", 1)]), "{handle}");
        }
        for handle in [row.user.as_str(), "ada"] {
            let filter = UsageFilter { user: Some(handle.to_owned()), ..any() };
            assert_eq!(days(filter.clone()).await, expected_days(&[("20", 1), ("21", 1)]), "{handle}");
            assert_eq!(days(UsageFilter { owner: Some(other_user.clone()), ..filter }).await, []);
        }
        assert_eq!(
            days(UsageFilter { owner: Some(other_user.clone()), ..any() }).await,
            expected_days(&[("21", 1), ("22", 1)])
        );

        let keys = [row.id.clone(), other_key.clone(), KeyId::from("key_3")];
        let sums = store.total_usage_by_key(&keys).await.unwrap();
        let requests: Vec<_> = keys.iter().map(|key| sums.get(key).map(|counts| counts.requests)).collect();
        assert_eq!(requests, [Some(2), Some(2), None]);
        assert_eq!(store.total_usage_by_key(&[]).await.unwrap().len(), 0);
    }
}

#[tokio::test]
async fn a_user_name_equal_to_another_id_does_not_match_that_user() {
    for Fixture { store, .. } in stores().await {
        let ada = store.ensure_user(&AuditContext::command(), "ada").await.unwrap();
        let user_named_like_her_id = store.ensure_user(&AuditContext::command(), ada.id.as_str()).await.unwrap();
        for (id, user) in [("hers", &ada.id), ("his", &user_named_like_her_id.id)] {
            let open = record! { user: user.clone(), ..running_record(id) };
            write(
                &*store,
                &[RowWrite::Open(&open), RowWrite::Close(&record! { state: JobState::Failed, ..open.clone() })],
            )
            .await;
        }
        let filter = record_filter! { user: Some(ada.id.to_string()), ..RecordFilter::default() };
        assert_eq!(ids(&store.list_records(&filter).await.unwrap()), ["hers"]);
    }
}

/// An upstream that reports the largest numbers must not prevent the outcome of the job from being written, or break
/// the usage pages.
#[tokio::test]
async fn counts_are_limited_to_the_largest_integer() {
    for Fixture { store, .. } in stores().await {
        let huge = token_usage! { total_tokens: Some(u64::MAX), input_tokens: Some(u64::MAX), ..TokenUsage::default() };
        for (id, key) in [("r1", "key_1"), ("r2", "key_1"), ("r3", "key_2")] {
            let open = record! { key: key, ..running_record(id) };
            let (usage, host_usage) = (Some(huge.clone()), Some(huge.clone()));
            let cost_usd = Some(Usd::MAX);
            let closed = record! { state: JobState::Succeeded, usage, host_usage, cost_usd, ..open.clone() };
            let written = write(&*store, &[RowWrite::Open(&open), RowWrite::Close(&closed)]).await;
            assert_eq!(written, [RowWriteOutcome::Done, RowWriteOutcome::Done]);
        }
        for end_user in [None, running_record("r1").document.end_user] {
            let counts = store.total_usage(&UsageFilter { end_user, ..UsageFilter::default() }).await.unwrap();
            assert_eq!((counts.requests, counts.cost_usd), (3, Usd::MAX));
            assert_eq!((counts.total_tokens, counts.input_tokens), (i64::MAX as u64, i64::MAX as u64));
        }
    }
}
