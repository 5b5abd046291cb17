//! Tests of the ledger: durability, exactly one record for each job, and shared commits.

mod changed_limits;
mod late_commits;
mod reservations;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Child;
use std::sync::atomic::Ordering;

use tempfile::TempDir;
use tokio::task::JoinSet;

use super::AttemptClass::{MaybePaid, NothingDone};
use super::*;
use crate::gateway::money::Usd;
use crate::gateway::store::testing::{
    REFUSED_REQUEST_ID, RecordStoreDouble, child_dir, new_store, record, spawn_child, token_usage,
};
use crate::gateway::store::{CostBasis, InstallationStore as _, RecordFilter, SqlStore, UsageStore};
use crate::wire::admin::types;

struct Fixture {
    ledger: Ledger,
    store: Arc<RecordStoreDouble>,
    sqlite: Arc<SqlStore>,
    dir: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let (dir, sqlite) = new_store().await;
        let store = RecordStoreDouble::wrapping(&sqlite);
        let ledger = Ledger::start_for_test(Arc::clone(&store)).await;
        Self { ledger, store, sqlite, dir }
    }

    async fn open(&self, id: &str) -> OpenRecord {
        self.ledger.open_for_test(draft(id)).await.unwrap()
    }

    fn commits(&self) -> usize {
        self.store.commits.load(Ordering::Relaxed)
    }

    async fn wait_until(&self, is_ready: impl Fn(&Self) -> bool) {
        while !is_ready(self) {
            tokio::task::yield_now().await;
        }
    }

    async fn records(&self) -> Vec<types::Record> {
        self.sqlite.list_records(&RecordFilter::default()).await.unwrap()
    }

    async fn record(&self) -> types::Record {
        self.records().await.remove(0)
    }

    /// Returns the states of all records, as another process reads them.
    async fn states(&self) -> BTreeMap<String, JobState> {
        states(&SqlStore::open_sqlite(self.dir.path(), None).await.unwrap()).await
    }
}

async fn states(store: &SqlStore) -> BTreeMap<String, JobState> {
    let records = store.list_records(&RecordFilter::default()).await.unwrap();
    let count = records.len();
    let states: BTreeMap<_, _> =
        records.into_iter().map(|record| (record.request_id.to_string(), record.state)).collect();
    assert_eq!(states.len(), count, "a request id is duplicated");
    states
}

fn draft(id: &str) -> JobRecord {
    record! {
        request_id: id.to_owned(),
        operation: "create_image".to_owned(),
        model: Some("gpt-image-2".to_owned()),
        n: Some(1),
        account: Some("primary".to_owned()),
        group: "default".to_owned(),
        user: "usr_1",
        key: "key_1",
        fingerprint: Some([7; 32]),
        max_cost_usd: Some(Usd::from_nanos(211_000_000)),
        ..JobRecord::default()
    }
}

#[tokio::test]
async fn a_record_gets_the_cost_of_its_tokens() {
    let fixture = Fixture::new().await;
    let mut open = fixture.open("r1").await;
    let call = open.begin_attempt("primary");
    open.end_attempt(call, None, Some(200));
    open.add_delivered(types::RecordImage { size: None, output_format: None, quality: None });
    let usage = token_usage! { input_tokens: Some(17), output_tokens: Some(196), ..TokenUsage::default() };
    open.set_usage(ModelUsage { image: Some(usage), ..ModelUsage::default() });
    open.close(JobOutcome::succeeded()).await.unwrap();
    let record = fixture.record().await;
    // 17 x 5 + 196 x 30 millionths of a dollar
    assert_eq!((record.cost_usd, record.cost_basis), (Some(0.005_965), Some(CostBasis::Exact)));
    assert!(record.price_version.unwrap().starts_with("gpt-image-2@"));
}

#[tokio::test]
async fn a_call_that_broke_off_costs_the_most_and_the_simulator_nothing() {
    for (is_simulated, nanos, basis) in [(false, 211_000_000, CostBasis::Estimated), (true, 0, CostBasis::Exact)] {
        let fixture = Fixture::new().await;
        let mut open = fixture.open("r1").await;
        open.begin_attempt("primary");
        if is_simulated {
            open.note_simulated_attempt();
        }
        drop(open);
        fixture.ledger.drain().await;
        let record = fixture.record().await;
        assert_eq!((record.cost_usd, record.cost_basis), (Some(Usd::from_nanos(nanos).dollars()), Some(basis)));
    }
}

#[tokio::test]
async fn a_record_describes_its_job() {
    let fixture = Fixture::new().await;
    let mut open = fixture.open("r1").await;
    let first = open.begin_attempt("primary");
    open.end_attempt(first, Some(NothingDone), Some(429));
    let second = open.begin_attempt("second");
    open.end_attempt(second, None, Some(200));
    let (size, output_format) = (Some("1024x1024".to_owned()), Some("png".to_owned()));
    open.add_delivered(types::RecordImage { size, output_format, quality: None });
    let usage = |total| Some(token_usage! { total_tokens: Some(total), ..TokenUsage::default() });
    open.set_usage(ModelUsage { image: usage(409), host: usage(80), ..ModelUsage::default() });
    open.set_models(Some("gpt-image-2".to_owned()), Some("gpt-5.5".to_owned()));
    open.mark_first_byte();
    open.close(JobOutcome::succeeded()).await.unwrap();

    let record = fixture.record().await;
    assert_eq!(record.state, JobState::Succeeded);
    assert_eq!(record.account.as_deref(), Some("second"));
    let summary = |attempt: &types::RecordAttempt| (attempt.account.clone(), attempt.class, attempt.status);
    let summaries: Vec<_> = record.attempts.iter().map(summary).collect();
    assert_eq!(
        summaries,
        [(Some("primary".to_owned()), Some(NothingDone), Some(429)), (Some("second".to_owned()), None, Some(200))]
    );
    let tokens = [record.usage, record.host_usage].map(|usage| usage.and_then(|usage| usage.total_tokens));
    assert_eq!((tokens, record.cost_usd), ([Some(409), Some(80)], None));
    assert_eq!((record.image_model.as_deref(), record.host_model.as_deref()), (Some("gpt-image-2"), Some("gpt-5.5")));
    assert_eq!((record.delivered.len(), record.missing), (1, None));
    assert!(record.first_byte_ms <= record.latency_ms && record.first_byte_ms.is_some());
}

#[tokio::test]
async fn a_record_names_only_called_accounts_and_counts_missing_images() {
    let fixture = Fixture::new().await;
    fixture.open("refused").await.close(JobOutcome::refused("upstream_error")).await.unwrap();
    let mut open = fixture.open("short").await;
    let call = open.begin_attempt("primary");
    open.end_attempt(call, None, Some(200));
    open.close(JobOutcome::succeeded()).await.unwrap();
    let records = fixture.records().await;
    let values: Vec<_> = records.iter().map(|record| (record.account.as_deref(), record.missing)).collect();
    assert_eq!(values, [(None, None), (Some("primary"), Some(1))]);
}

#[tokio::test]
async fn an_attempt_that_is_running_when_the_job_ends_is_ambiguous() {
    let fixture = Fixture::new().await;
    let mut open = fixture.open("r1").await;
    open.set_drop_outcome(JobOutcome::cancelled());
    open.begin_attempt("primary");
    drop(open);
    fixture.ledger.drain().await;
    let record = fixture.record().await;
    assert_eq!((record.state, record.account.as_deref()), (JobState::Cancelled, Some("primary")));
    assert_eq!(record.attempts.iter().map(|attempt| attempt.class).collect::<Vec<_>>(), [Some(MaybePaid)]);
}

#[tokio::test]
async fn only_the_first_call_of_mark_first_byte_counts() {
    let fixture = Fixture::new().await;
    let mut open = fixture.open("r1").await;
    open.mark_first_byte();
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(3) {
        tokio::task::yield_now().await;
    }
    open.mark_first_byte();
    open.close(JobOutcome::failed("upstream")).await.unwrap();
    let record = fixture.record().await;
    assert!(record.first_byte_ms < record.latency_ms);
    assert_eq!(record.error_code.as_deref(), Some("upstream"));
}

#[tokio::test]
async fn an_open_record_is_durable_before_open_returns() {
    let fixture = Fixture::new().await;
    std::mem::forget(fixture.open("r1").await);
    // The record is never closed. A second ledger starts on the same database, as after a kill.
    let store = Arc::new(SqlStore::open_sqlite(fixture.dir.path(), None).await.unwrap());
    let next = Ledger::start_for_test(Arc::clone(&store)).await;
    let expected = BTreeMap::from([("r1".to_owned(), JobState::Interrupted)]);
    assert_eq!(states(&store).await, expected);
    // The start of a third ledger changes nothing.
    drop(next);
    Ledger::start_for_test(Arc::clone(&store)).await;
    assert_eq!(states(&store).await, expected);
}

#[tokio::test]
async fn an_outcome_is_durable_when_closing_resolves() {
    let fixture = Fixture::new().await;
    fixture.open("r1").await.close(JobOutcome::refused("moderation_blocked")).await.unwrap();
    assert_eq!(fixture.states().await, BTreeMap::from([("r1".to_owned(), JobState::Refused)]));
    assert_eq!(fixture.ledger.unsettled_records(), 0);
}

#[tokio::test]
async fn a_dropped_record_is_interrupted() {
    let fixture = Fixture::new().await;
    drop(fixture.open("panicked").await);
    let mut streaming = fixture.open("left").await;
    streaming.set_drop_outcome(JobOutcome::cancelled());
    drop(streaming);
    drop(fixture.open("closed").await.close(JobOutcome::succeeded()));
    fixture.ledger.drain().await;
    let expected = [
        ("closed".to_owned(), JobState::Succeeded),
        ("left".to_owned(), JobState::Cancelled),
        ("panicked".to_owned(), JobState::Interrupted),
    ];
    assert_eq!(fixture.states().await, BTreeMap::from(expected));
}

#[tokio::test]
async fn messages_that_arrive_during_a_commit_share_the_next_one() {
    const JOBS: usize = 100;
    let fixture = Fixture::new().await;
    fixture.store.hold_writes();
    let mut jobs = JoinSet::new();
    let spawn = |jobs: &mut JoinSet<OpenRecord>, id: usize| {
        let ledger = fixture.ledger.clone();
        jobs.spawn(async move { ledger.open_for_test(draft(&format!("r{id}"))).await.unwrap() });
    };
    spawn(&mut jobs, 0);
    fixture.wait_until(|fixture| fixture.commits() == 1).await;
    for id in 1..JOBS {
        spawn(&mut jobs, id);
    }
    fixture.wait_until(|fixture| fixture.ledger.unsettled_records() == JOBS).await;
    fixture.store.write_permits.add_permits(2);
    let open = jobs.join_all().await;
    assert_eq!(fixture.commits(), 2);

    // All outcomes fit into two more commits: one for the first, and one for the others.
    let commits: Vec<_> = open.into_iter().map(|open| open.close(JobOutcome::succeeded())).collect();
    fixture.store.write_permits.add_permits(2);
    for commit in commits {
        commit.await.unwrap();
    }
    assert!(fixture.commits() <= 4);
    assert_eq!(fixture.states().await.len(), JOBS);
}

#[tokio::test]
async fn an_intent_that_cannot_be_stored_leaves_no_record() {
    let fixture = Fixture::new().await;
    fixture.store.failure.set(Some(|| StoreError::Busy));
    assert!(matches!(fixture.ledger.open_for_test(draft("r1")).await, Err(LedgerError::Store(_))));
    fixture.store.failure.set(None);
    fixture.ledger.drain().await;
    assert_eq!((fixture.states().await, fixture.commits()), (BTreeMap::new(), 1));
}

#[tokio::test]
async fn a_row_that_cannot_be_stored_does_not_block_the_others() {
    let fixture = Fixture::new().await;
    fixture.store.hold_writes();
    let mut jobs = JoinSet::new();
    for (id, unsettled) in [("first", 1), ("good", 2), (REFUSED_REQUEST_ID, 3), ("better", 4)] {
        let ledger = fixture.ledger.clone();
        jobs.spawn(async move { (id, ledger.open_for_test(draft(id)).await.is_ok()) });
        fixture.wait_until(|fixture| fixture.ledger.unsettled_records() == unsettled && fixture.commits() == 1).await;
    }
    fixture.store.write_permits.add_permits(100);
    let opened: BTreeMap<_, _> = jobs.join_all().await.into_iter().collect();
    let refused: Vec<_> = opened.iter().filter(|(_, is_open)| !**is_open).map(|(id, _)| *id).collect();
    assert_eq!((opened.len(), refused), (4, vec![REFUSED_REQUEST_ID]));
    fixture.ledger.drain().await;
}

#[tokio::test]
async fn an_intent_beyond_the_waiting_limit_is_refused_at_once() {
    let fixture = Fixture::new().await;
    fixture.store.hold_writes();
    let mut jobs = JoinSet::new();
    for id in 0..MAX_WAITING_INTENTS {
        let ledger = fixture.ledger.clone();
        jobs.spawn(async move { ledger.open_for_test(draft(&id.to_string())).await });
    }
    fixture.wait_until(|fixture| fixture.ledger.unsettled_records() == MAX_WAITING_INTENTS).await;
    assert!(matches!(fixture.ledger.open_for_test(draft("late")).await, Err(LedgerError::Overloaded)));
    jobs.shutdown().await;
    fixture.store.write_permits.add_permits(100);
    fixture.ledger.drain().await;
    drop(fixture.open("later").await);
}

#[tokio::test]
async fn a_duplicate_request_id_is_refused_and_changes_no_record() {
    let fixture = Fixture::new().await;
    let first = fixture.open("r1").await;
    assert!(matches!(fixture.ledger.open_for_test(draft("r1")).await, Err(LedgerError::Duplicate)));
    first.close(JobOutcome::succeeded()).await.unwrap();
    fixture.ledger.drain().await;
    assert_eq!(fixture.states().await, BTreeMap::from([("r1".to_owned(), JobState::Succeeded)]));
}

#[tokio::test]
async fn an_outcome_is_stored_after_the_database_recovers() {
    let fixture = Fixture::new().await;
    let (closed, dropped) = (fixture.open("closed").await, fixture.open("dropped").await);
    fixture.store.failure.set(Some(|| StoreError::Busy));
    drop(dropped);
    let before = fixture.commits();
    assert!(matches!(closed.close(JobOutcome::succeeded()).await, Err(LedgerError::Store(_))));
    assert!(fixture.commits() - before >= 3);
    assert_eq!(fixture.ledger.unsettled_records(), 2);

    fixture.store.failure.set(None);
    fixture.ledger.drain().await;
    let expected = [("closed".to_owned(), JobState::Succeeded), ("dropped".to_owned(), JobState::Interrupted)];
    assert_eq!(fixture.states().await, BTreeMap::from(expected));
}

#[tokio::test]
async fn write_trouble_is_reported_until_a_commit_succeeds() {
    let fixture = Fixture::new().await;
    let trouble = |delay: u64| fixture.ledger.write_trouble(Instant::now() + Duration::from_secs(delay));
    fixture.open("r1").await.close(JobOutcome::succeeded()).await.unwrap();
    assert_eq!(trouble(3600), None);

    fixture.store.failure.set(Some(|| StoreError::Busy));
    assert!(fixture.ledger.open_for_test(draft("r2")).await.is_err());
    assert_eq!(trouble(0), Some(WriteTrouble::Failing));
    fixture.store.failure.set(None);
    // The writer detects the recovery by itself, without any request.
    fixture.wait_until(|_| trouble(0).is_none()).await;

    fixture.store.hold_writes();
    let mut waiting = JoinSet::new();
    let ledger = fixture.ledger.clone();
    waiting.spawn(async move { ledger.open_for_test(draft("r3")).await.is_ok() });
    fixture.wait_until(|_| trouble(3600).is_some()).await;
    assert_eq!((trouble(0), trouble(3600)), (None, Some(WriteTrouble::Slow)));
    fixture.store.write_permits.add_permits(100);
    assert_eq!(waiting.join_all().await, [true]);
    fixture.ledger.drain().await;
    assert_eq!(trouble(3600), None);
}

#[tokio::test]
async fn long_texts_are_truncated_at_a_character_boundary() {
    let fixture = Fixture::new().await;
    let end_user = Some("ä".repeat(10_000));
    let open = fixture.ledger.open_for_test(record! { end_user, ..draft("r1") }).await.unwrap();
    open.close(JobOutcome::succeeded()).await.unwrap();
    let record = fixture.record().await;
    assert_eq!(record.end_user, Some("ä".repeat(JobRecord::MAX_TEXT_BYTES / 2)));
}

const ROUNDS: usize = 6;

/// Kills a process while it opens and closes records as fast as it can. Every reported event must be durable.
#[tokio::test]
async fn a_kill_neither_loses_nor_duplicates_records() {
    for round in 0..ROUNDS {
        let (dir, store) = new_store().await;
        let mut child = spawn_child(module_path!(), "child_that_records_until_it_is_killed", &dir);
        let events = kill_after(&mut child, 40 + 70 * round);

        // The lock of the killed process is gone.
        let _serving = store.lock_for_serving().unwrap();
        Ledger::start_for_test(Arc::clone(&store)).await;
        let states = states(&store).await;
        assert!(events.len() >= 20, "{}", events.len());
        for (id, event) in events {
            let state = states.get(&id).unwrap_or_else(|| panic!("{id} is lost"));
            let allowed: &[JobState] = match event.as_str() {
                "closed" => &[JobState::Succeeded],
                _ => &[JobState::Succeeded, JobState::Interrupted],
            };
            assert!(allowed.contains(state), "{id}: {event}, {state:?}");
        }
        assert!(states.values().any(|state| *state == JobState::Interrupted));
    }
}

/// Kills the child after this number of events, and returns the last event of each record.
fn kill_after(child: &mut Child, event_count: usize) -> BTreeMap<String, String> {
    let mut events = BTreeMap::new();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let parse_line = |line: String| line.split_once(' ').map(|(event, id)| (id.to_owned(), event.to_owned()));
    let parsed = lines.filter_map(parse_line).filter(|(_, event)| ["open", "closed"].contains(&event.as_str()));
    for ((id, event), count) in parsed.zip(1..) {
        events.insert(id, event);
        if count == event_count {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    events
}

#[tokio::test]
async fn child_that_records_until_it_is_killed() {
    let Some(dir) = child_dir() else { return };
    let store = SqlStore::open_sqlite(&dir, None).await.unwrap();
    let _serving = store.lock_for_serving().unwrap();
    let ledger = Ledger::start_for_test(Arc::new(store)).await;
    let mut jobs = JoinSet::new();
    for task_number in 0..16 {
        jobs.spawn(record_endlessly(ledger.clone(), task_number));
    }
    jobs.join_all().await;
}

async fn record_endlessly(ledger: Ledger, task_number: usize) {
    let report = |event: &str, id: &str| writeln!(std::io::stdout().lock(), "{event} {id}").unwrap();
    // There is always an open record, so that every kill interrupts at least one.
    let mut previous: Option<(String, OpenRecord)> = None;
    for number in 0.. {
        let id = format!("{task_number}-{number}");
        let open = ledger.open_for_test(draft(&id)).await.unwrap();
        report("open", &id);
        if let Some((id, open)) = previous.replace((id, open)) {
            open.close(JobOutcome::succeeded()).await.unwrap();
            report("closed", &id);
        }
    }
}
