//! Tests of reservations in limits whose node has died.

use chrono::Utc;

use super::*;
use crate::gateway::store::UtcDay;
use crate::gateway::store::reservations::{
    HeldMoney, NewReservation, ReservationDecision, ReservationSubject, ReservationSubjectKind,
};

fn today() -> UtcDay {
    UtcDay::from(Utc::now().date_naive())
}

fn subject() -> ReservationSubject {
    let (kind, budget_since) = (ReservationSubjectKind::Key, today());
    ReservationSubject { kind, id: "key_1".to_owned(), budget_since, needs_last_minute: false }
}

async fn reserve(store: &PostgresStore, request_id: &str) {
    let reservation = NewReservation {
        request_id: &RequestId::from(request_id),
        subjects: vec![subject()],
        today: today(),
        images: 1,
        is_waiting: false,
        is_open: true,
    };
    let decide = &mut |_| ReservationDecision::Reserve(vec![HeldMoney::default()]);
    SharedReservations::reserve(store, &reservation, decide).await.unwrap();
}

/// Returns the number of places that jobs have.
async fn places(store: &PostgresStore) -> u32 {
    store.read_usage(&[subject()], today()).await.unwrap()[0].jobs
}

async fn has_row(store: &PostgresStore, node: &NodeId) -> bool {
    let query = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM nodes WHERE id = $1)").bind(node.as_str());
    query.fetch_one(&store.readers).await.unwrap()
}

/// A process that is killed between the reservation of a job and its record.
#[tokio::test]
async fn what_a_dead_node_has_reserved_without_a_record_is_given_back() {
    let (first_dir, second_dir) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let Some(url) = new_postgres_database().await else { return };
    let dead = PostgresStore::open(first_dir.path(), &url, Some(shared_key())).await.unwrap();
    let other = PostgresStore::open(second_dir.path(), &url, Some(shared_key())).await.unwrap();
    for (store, id) in [(&dead, "r1"), (&other, "r2")] {
        store.record_heartbeat().await.unwrap();
        reserve(store, id).await;
    }
    let age = "UPDATE nodes SET seen_at = seen_at - make_interval(secs => $2) WHERE id = $1";
    for (seconds, left) in [(50.0, 2), (8.0 * 86_400.0, 1)] {
        sqlx::query(age).bind(dead.node.as_str()).bind(seconds).execute(&other.writer).await.unwrap();
        assert_eq!(other.close_records_of_dead_nodes().await.unwrap(), 0);
        assert_eq!(places(&other).await, left);
    }
    assert!(!has_row(&other, &dead.node).await && has_row(&other, &other.node).await);
}

/// The version before removed the rows of such nodes.
#[tokio::test]
async fn the_upgrade_gives_back_what_forgotten_nodes_have_reserved() {
    let Some(url) = new_postgres_database().await else { return };
    let mut connection = url.connect_for_migration().await.unwrap();
    let before = sqlx::migrate::Migrator::with_migrations(MIGRATIONS.iter().take(10).cloned().collect());
    before.run_direct(None, &mut connection, false).await.unwrap();
    sqlx::raw_sql(
        "INSERT INTO nodes (id, version, started_at, seen_at) VALUES ('alive', '1', now(), now()); \
         INSERT INTO limit_reservations (request_id, subject, node, day, images, nano_usd, begun_at, is_open) \
         SELECT node, 'key:key_1', node, '2026-11-20', 1, 0, now() - age, TRUE FROM (VALUES ('alive', interval '9 days'), \
         ('new', interval '1 hour'), ('forgotten', interval '9 days')) AS reserved (node, age)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    let dir = TempDir::new().unwrap();
    let store = PostgresStore::open(dir.path(), &url, None).await.unwrap();
    assert_eq!(places(&store).await, 2);
}
