//! Tests of the filters of records: each combination is compared with the records that pass it.

use super::usage::{SeededRandom, write_random_batches};
use super::*;
use crate::gateway::store::testing::record_filter;

/// True if a record passes the filter, apart from its time.
fn passes(record: &types::Record, filter: &RecordFilter) -> bool {
    let is_state = filter.state().map_or(record.state != JobState::Running, |state| record.state == state);
    is_state
        && (!filter.is_unsuccessful() || !matches!(record.state, JobState::Running | JobState::Succeeded))
        && filter.owner.as_ref().is_none_or(|owner| record.user == owner.as_str())
        && filter.query.key.as_ref().is_none_or(|key| record.key.as_str() == key)
        && filter.query.user.as_ref().is_none_or(|user| record.user.as_str() == user)
        && filter.query.group.as_ref().is_none_or(|group| record.group == *group)
        && filter.query.end_user.as_ref().is_none_or(|end_user| record.end_user.as_ref() == Some(end_user))
        && filter.query.model.as_ref().is_none_or(|model| record.model.as_ref() == Some(model))
        && filter.query.account.as_ref().is_none_or(|account| record.account.as_ref() == Some(account))
        && filter.query.size.as_ref().is_none_or(|size| record.size.as_ref() == Some(size))
        && filter.query.quality.as_ref().is_none_or(|quality| record.quality.as_ref() == Some(quality))
        && filter.query.error_code.as_ref().is_none_or(|code| record.error_code.as_ref() == Some(code))
        && filter.query.error_reason.as_ref().is_none_or(|reason| record.error_reason == Some(*reason))
}

/// A filter for each combination of values, of which some have no records.
fn combined_filters() -> Vec<RecordFilter> {
    fn each(
        filters: &[RecordFilter],
        values: &[Option<&str>],
        set: fn(&mut RecordFilter, Option<&str>),
    ) -> Vec<RecordFilter> {
        let with = |filter: &RecordFilter, value: &Option<&str>| {
            let mut filter = filter.clone();
            set(&mut filter, *value);
            filter
        };
        filters.iter().flat_map(|filter| values.iter().map(move |value| with(filter, value))).collect()
    }
    let filters = vec![RecordFilter::default()];
    let states = [None, Some("running"), Some("succeeded"), Some("failed"), Some("interrupted")];
    let filters =
        each(&filters, &states, |filter, value| filter.query.state = value.map(|state| state.parse().unwrap()));
    let filters = each(&filters, &[None, Some("key_1"), Some("key_3")], |filter, value| {
        filter.query.key = value.map(str::to_owned);
    });
    let filters = each(&filters, &[None, Some("usr_1")], |filter, value| filter.owner = value.map(UserId::from));
    let filters = each(&filters, &[None, Some("usr_2")], |filter, value| filter.query.user = value.map(str::to_owned));
    let filters = each(&filters, &[None, Some("other"), Some("none")], |filter, value| {
        filter.query.group = value.map(str::to_owned);
    });
    let filters =
        each(&filters, &[None, Some("of other")], |filter, value| filter.query.end_user = value.map(str::to_owned));
    let words = [
        None,
        Some("model"),
        Some("account"),
        Some("code"),
        Some("reason and account"),
        Some("unsuccessful"),
        Some("size"),
        Some("size and quality"),
    ];
    each(&filters, &words, |filter, value| {
        let words = value.unwrap_or_default();
        filter.query.outcome = (words == "unsuccessful").then_some(types::RecordOutcome::Unsuccessful);
        filter.query.model = words.contains("model").then(|| "gpt-image-1.5".to_owned());
        filter.query.size = words.contains("size").then(|| "1024x1024".to_owned());
        filter.query.quality = words.contains("quality").then(|| "high".to_owned());
        filter.query.account = words.contains("account").then(|| "second".to_owned());
        filter.query.error_code = words.contains("code").then(|| "upstream_error".to_owned());
        filter.query.error_reason = words.contains("reason").then_some(types::RecordReason::Throttled);
    })
}

#[tokio::test]
async fn every_combination_of_filters_lists_the_records_that_pass_it() {
    for Fixture { store, .. } in stores().await {
        write_random_batches(&*store, &mut SeededRandom(11)).await;
        let running = record_filter! { state: Some(JobState::Running), ..RecordFilter::default() };
        let mut all = all_records(&*store).await;
        all.extend(store.list_records(&running).await.unwrap());
        let mut listed_count = 0;
        for filter in combined_filters() {
            let mut expected: Vec<_> =
                all.iter().filter(|record| passes(record, &filter)).map(|record| &record.request_id).collect();
            let listed = store.list_records(&filter).await.unwrap();
            let mut listed: Vec<_> = listed.iter().map(|record| &record.request_id).collect();
            listed_count += listed.len();
            expected.sort_unstable();
            listed.sort_unstable();
            assert_eq!(listed, expected, "{filter:?}");
        }
        assert!(listed_count > all.len());
    }
}
