//! Intents and outcomes whose commits take longer than their jobs wait.

use super::*;

type OpenResult = Result<OpenRecord, LedgerError>;

/// Begins to open a record whose write the store holds back. Returns as soon as the writer has its intent or, behind an
/// earlier one, when it waits for the writer.
pub(super) async fn begin_open<'a>(
    fixture: &'a Fixture,
    id: &str,
    unsettled: usize,
) -> impl Future<Output = OpenResult> + 'a {
    let mut job = Box::pin(fixture.ledger.open_for_test(draft(id)));
    let wait = fixture.wait_until(|fixture| fixture.ledger.unsettled_records() == unsettled && fixture.commits() == 1);
    tokio::select! {
        _ = &mut job => panic!("the store holds all writes"),
        () = wait => job,
    }
}

#[tokio::test]
async fn an_abandoned_intent_is_skipped_or_cancelled() {
    let fixture = Fixture::new().await;
    fixture.store.hold_writes();
    // The first intent is abandoned during its commit, the second before its commit.
    drop(begin_open(&fixture, "during", 1).await);
    drop(begin_open(&fixture, "before", 2).await);
    fixture.store.write_permits.add_permits(100);
    fixture.ledger.drain().await;
    assert_eq!(fixture.states().await, BTreeMap::from([("during".to_owned(), JobState::Cancelled)]));
}

#[tokio::test]
async fn the_wait_of_an_answer_for_its_record_has_a_time_limit() {
    let fixture = Fixture::new().await;
    let record = fixture.open("slow").await;
    fixture.store.hold_writes();
    tokio::time::pause();
    let result =
        tokio::time::timeout(Duration::from_secs(60), record.close(JobOutcome::succeeded()).with_timeout()).await;
    assert!(matches!(result, Ok(Err(LedgerError::Overloaded))), "{result:?}");
    tokio::time::resume();
    fixture.store.write_permits.add_permits(10);
    fixture.ledger.drain().await;
    assert_eq!(fixture.states().await, BTreeMap::from([("slow".to_owned(), JobState::Succeeded)]));
}

#[tokio::test]
async fn an_intent_that_is_durable_too_late_counts_as_cancelled() {
    let fixture = Fixture::new().await;
    fixture.store.hold_writes();
    let job = begin_open(&fixture, "late", 1).await;
    tokio::time::pause();
    assert!(matches!(job.await, Err(LedgerError::Overloaded)));
    tokio::time::resume();
    fixture.store.write_permits.add_permits(100);
    fixture.ledger.drain().await;
    let record = fixture.record().await;
    assert_eq!((record.state, record.attempts.len()), (JobState::Cancelled, 0));
}

#[test]
fn an_open_record_can_be_part_of_a_response_body() {
    fn check<T: Send + Sync + Unpin>() {}
    check::<(OpenRecord, open_record::CommitFuture, Ledger)>();
}
