//! Tests of reservations in limits whose node has died.

use chrono::Utc;

use super::*;
use crate::gateway::store::reservations::{
    HeldMoney, NewReservation, ReservationDecision, ReservationSubject, ReservationSubjectKind,
};
use crate::gateway::store::{SharedReservations, UtcDay};

fn today() -> UtcDay {
    UtcDay::from(Utc::now().date_naive())
}

fn subject() -> ReservationSubject {
    let (kind, budget_since) = (ReservationSubjectKind::Key, today());
    ReservationSubject { kind, id: "key_1".to_owned(), budget_since, needs_last_minute: false }
}

async fn reserve(store: &SqlStore, request_id: &str) {
    let reservation = NewReservation {
        request_id: &RequestId::from(request_id),
        subjects: vec![subject()],
        today: today(),
        images: 1,
        is_waiting: false,
        is_open: true,
    };
    let decide = &mut |_| ReservationDecision::Reserve(vec![HeldMoney::default()]);
    SharedReservations::reserve(store.as_shared().unwrap(), &reservation, decide).await.unwrap();
}

/// Returns the number of places that jobs have.
async fn places(store: &SqlStore) -> u32 {
    store.as_shared().unwrap().read_usage(&[subject()], today()).await.unwrap()[0].jobs
}

async fn has_row(store: &SqlStore, node: &NodeId) -> bool {
    let query = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM nodes WHERE id = $1)").bind(node.as_str());
    query.fetch_one(store.readers.postgres()).await.unwrap()
}

/// A process that is killed between the reservation of a job and its record.
#[tokio::test]
async fn what_a_dead_node_has_reserved_without_a_record_is_given_back() {
    let (first_dir, second_dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(url) = new_postgres_database().await else { return };
    let dead = SqlStore::open_postgres(first_dir.path(), &url, Some(shared_key())).await.unwrap();
    let other = SqlStore::open_postgres(second_dir.path(), &url, Some(shared_key())).await.unwrap();
    for (store, id) in [(&dead, "r1"), (&other, "r2")] {
        store.record_heartbeat().await.unwrap();
        reserve(store, id).await;
    }
    let age = "UPDATE nodes SET seen_at = seen_at - make_interval(secs => $2) WHERE id = $1";
    for (seconds, left) in [(50.0, 2), (8.0 * 86_400.0, 1)] {
        sqlx::query(age).bind(dead.node.as_str()).bind(seconds).execute(other.writer.postgres()).await.unwrap();
        assert_eq!(other.close_records_of_dead_nodes().await.unwrap(), 0);
        assert_eq!(places(&other).await, left);
    }
    assert!(!has_row(&other, &dead.node).await && has_row(&other, &other.node).await);
}
