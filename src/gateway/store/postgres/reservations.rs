//! The reservations of all nodes in limits.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use super::PostgresStore;
use super::error_conversion::during;
use super::sql::transaction::transact;
use crate::gateway::money::Usd;
use crate::gateway::store::reservations::{
    NewReservation, RecentRequests, ReservationSubject, ReservationSubjectKind, SharedReservations, SubjectUsage,
};
use crate::gateway::store::{NodeId, RequestId, StoreError, UtcDay};

/// Takes the locks of the subjects in their order, until the end of the transaction.
const LOCK: &str =
    "SELECT count(pg_advisory_xact_lock(hashtextextended(subject, 1))) FROM unnest($1::TEXT[]) AS subject";

/// The requests of the last minute, in groups of a quarter of a second: a busy subject has thousands of them.
const FIND_RECENT: &str = "SELECT CAST(floor(extract(epoch FROM clock_timestamp() - begun_at) * 4) AS BIGINT) AS quarters, \
    count(*) AS requests, CAST(sum(images) AS BIGINT) AS images FROM limit_reservations \
    WHERE subject = $1 AND begun_at > clock_timestamp() - interval '1 minute' GROUP BY 1 ORDER BY 1 DESC";

const INSERT: &str = "INSERT INTO limit_reservations (request_id, subject, node, day, images, nano_usd, begun_at, is_open) \
    SELECT $1, subject, $3, $4, $5, $6, clock_timestamp(), $7 FROM unnest($2::TEXT[]) AS subject";

/// The minute is much longer than a statement may take: a request that the process holds only since it has made its list
/// is younger.
const REMOVE_ABANDONED: &str = "DELETE FROM limit_reservations AS reserved WHERE is_open AND node = $1 \
    AND begun_at < clock_timestamp() - interval '1 minute' \
    AND NOT EXISTS (SELECT 1 FROM unnest($2::TEXT[]) AS held (request_id) WHERE held.request_id = reserved.request_id) \
    AND NOT EXISTS \
    (SELECT 1 FROM records WHERE records.request_id = reserved.request_id AND records.state = 'running')";

/// Reads what running jobs have reserved, and what was counted, at the same moment: a job that ends is in one of the two.
macro_rules! find_usage {
    ($column:literal) => {
        concat!(
            "SELECT running.jobs, running.images + counted.images AS images, running.nano_usd AS reserved, ",
            "counted.nano_usd AS spent FROM ",
            "(SELECT count(*) AS jobs, CAST(coalesce(sum(images) FILTER (WHERE day = $2), 0) AS BIGINT) AS images, ",
            "capped(coalesce(sum(nano_usd) FILTER (WHERE day >= $3), 0)) AS nano_usd ",
            "FROM limit_reservations WHERE subject = $1 AND is_open) AS running, ",
            "(SELECT CAST(coalesce(sum(images) FILTER (WHERE day = $2), 0) AS BIGINT) AS images, ",
            "capped(coalesce(sum(CAST(cost_nano_usd AS NUMERIC) + assumed_nano_usd), 0)) AS nano_usd ",
            "FROM usage_days WHERE day >= $3 AND ",
            $column,
            " = $4) AS counted"
        )
    };
}

/// Reads the usage of many subjects of one kind, with the sum of the last minute.
macro_rules! find_all_usage {
    ($column:literal) => {
        concat!(
            "SELECT running.jobs, running.images + counted.images AS images, running.nano_usd AS reserved, ",
            "counted.nano_usd AS spent, recent.requests, recent.images AS recent_images, recent.quarters ",
            "FROM unnest($1::TEXT[], $2::TEXT[], $3::TEXT[]) WITH ORDINALITY AS wanted (subject, id, since, position) ",
            "CROSS JOIN LATERAL (SELECT count(*) AS jobs, ",
            "CAST(coalesce(sum(images) FILTER (WHERE day = $4), 0) AS BIGINT) AS images, ",
            "capped(coalesce(sum(nano_usd) FILTER (WHERE day >= wanted.since), 0)) AS nano_usd ",
            "FROM limit_reservations WHERE subject = wanted.subject AND is_open) AS running ",
            "CROSS JOIN LATERAL (SELECT CAST(coalesce(sum(images) FILTER (WHERE day = $4), 0) AS BIGINT) AS images, ",
            "capped(coalesce(sum(CAST(cost_nano_usd AS NUMERIC) + assumed_nano_usd), 0)) AS nano_usd ",
            "FROM usage_days WHERE day >= wanted.since AND ",
            $column,
            " = wanted.id) AS counted ",
            "CROSS JOIN LATERAL (SELECT count(*) AS requests, CAST(coalesce(sum(images), 0) AS BIGINT) AS images, ",
            "CAST(floor(coalesce(extract(epoch FROM clock_timestamp() - max(begun_at)), 0) * 4) AS BIGINT) AS quarters ",
            "FROM limit_reservations WHERE subject = wanted.subject ",
            "AND begun_at > clock_timestamp() - interval '1 minute') AS recent ORDER BY wanted.position"
        )
    };
}

#[async_trait]
impl SharedReservations for PostgresStore {
    async fn reserve(
        &self,
        reservation: &NewReservation<'_>,
        decide: &mut (dyn FnMut(Vec<SubjectUsage>) -> bool + Send),
    ) -> Result<(), StoreError> {
        reserve(self, reservation, decide).await.map_err(during("reserving what a job can use"))
    }

    async fn read_usage(
        &self,
        subjects: &[ReservationSubject],
        today: UtcDay,
    ) -> Result<Vec<SubjectUsage>, StoreError> {
        let mut usages = Vec::with_capacity(subjects.len());
        // Subjects of one kind are one query; a page shows one kind.
        for chunk in subjects.chunk_by(|first, second| first.kind == second.kind) {
            let read = read_usage(self, chunk, today).await;
            usages.extend(read.map_err(during("reading what is used of limits"))?);
        }
        Ok(usages)
    }

    async fn release_reservation(&self, request_id: &RequestId) -> Result<(), StoreError> {
        let query = sqlx::query("DELETE FROM limit_reservations WHERE request_id = $1").bind(request_id.as_str());
        query.execute(&self.writer).await.map(drop).map_err(during("releasing what a job has reserved"))
    }

    async fn remove_abandoned(&self, held: &[RequestId]) -> Result<u64, StoreError> {
        let held: Vec<_> = held.iter().map(RequestId::as_str).collect();
        let query = sqlx::query(REMOVE_ABANDONED).bind(self.node.as_str()).bind(held);
        let removed = query.execute(&self.writer).await.map_err(during("removing abandoned reservations"))?;
        Ok(removed.rows_affected())
    }
}

async fn reserve(
    store: &PostgresStore,
    reservation: &NewReservation<'_>,
    decide: &mut (dyn FnMut(Vec<SubjectUsage>) -> bool + Send),
) -> sqlx::Result<()> {
    let names: Vec<_> = reservation.subjects.iter().map(row_name).collect();
    let mut locks = names.clone();
    locks.sort_unstable();
    // The semaphore is never closed, so the error cannot occur.
    let _permit = store.reservation_permits.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
    transact!(store.writer, begin, |transaction| {
        sqlx::query(LOCK).bind(&locks).execute(&mut *transaction).await?;
        let mut usages = Vec::with_capacity(names.len());
        for subject in &reservation.subjects {
            usages.push(usage_of(&mut transaction, subject, reservation.today).await?);
        }
        if !decide(usages) {
            return Ok(());
        }
        sqlx::query(INSERT)
            .bind(reservation.request_id.as_str())
            .bind(&names)
            .bind(store.node.as_str())
            .bind(reservation.today.to_string())
            .bind(i64::from(reservation.images))
            .bind(reservation.cost.nanos().cast_signed())
            .bind(reservation.is_open)
            .execute(&mut *transaction)
            .await?;
    })
}

/// Reads the usage of subjects that are of the same kind.
async fn read_usage(
    store: &PostgresStore,
    subjects: &[ReservationSubject],
    today: UtcDay,
) -> sqlx::Result<Vec<SubjectUsage>> {
    let Some(first) = subjects.first() else { return Ok(Vec::new()) };
    let statement = match first.kind {
        ReservationSubjectKind::Key => find_all_usage!("key_id"),
        ReservationSubjectKind::User => find_all_usage!("user_id"),
        ReservationSubjectKind::Group => find_all_usage!("group_name"),
    };
    let query = sqlx::query(statement)
        .bind(subjects.iter().map(row_name).collect::<Vec<_>>())
        .bind(subjects.iter().map(|subject| subject.id.clone()).collect::<Vec<_>>())
        .bind(subjects.iter().map(|subject| subject.budget_since.to_string()).collect::<Vec<_>>())
        .bind(today.to_string());
    let rows = query.fetch_all(&store.readers).await?;
    rows.iter().map(|row| usage_from_row(row, all_recent(row)?)).collect()
}

/// Returns the sum of the last minute of a row.
fn all_recent(row: &PgRow) -> sqlx::Result<Vec<RecentRequests>> {
    let recent = recent_from_row(row, "recent_images")?;
    Ok(if recent.requests == 0 { Vec::new() } else { vec![recent] })
}

fn usage_from_row(row: &PgRow, last_minute: Vec<RecentRequests>) -> sqlx::Result<SubjectUsage> {
    let count = |name: &str| row.try_get::<i64, _>(name).map(i64::unsigned_abs);
    Ok(SubjectUsage {
        last_minute,
        jobs: u32::try_from(count("jobs")?).unwrap_or(u32::MAX),
        images_today: count("images")?,
        spent: Usd::from_nanos(count("spent")?),
        reserved: Usd::from_nanos(count("reserved")?),
    })
}

fn recent_from_row(row: &PgRow, images: &str) -> sqlx::Result<RecentRequests> {
    const QUARTER: Duration = Duration::from_millis(250);
    let count = |name: &str| row.try_get::<i64, _>(name).map(|count| u32::try_from(count).unwrap_or(u32::MAX));
    Ok(RecentRequests { age: QUARTER * count("quarters")?, requests: count("requests")?, images: count(images)? })
}

/// Removes the open reservations of a node whose jobs have no record: its process died between the two.
pub(super) async fn remove_without_record(pool: &sqlx::PgPool, node: &NodeId) -> sqlx::Result<()> {
    let query = sqlx::query(
        "DELETE FROM limit_reservations AS reserved WHERE is_open AND node = $1 AND NOT EXISTS \
         (SELECT 1 FROM records WHERE records.request_id = reserved.request_id AND records.state = 'running')",
    );
    query.bind(node.as_str()).execute(pool).await.map(drop)
}

/// Removes what no limit needs any more. Rows that another node removes at this moment are left to it.
pub(super) async fn remove_past(pool: &sqlx::PgPool) -> sqlx::Result<()> {
    let query = sqlx::query(
        "DELETE FROM limit_reservations WHERE (request_id, subject) IN (SELECT request_id, subject \
         FROM limit_reservations WHERE NOT is_open AND begun_at < clock_timestamp() - interval '2 minutes' \
         FOR UPDATE SKIP LOCKED)",
    );
    query.execute(pool).await.map(drop)
}

async fn usage_of(
    connection: &mut PgConnection,
    subject: &ReservationSubject,
    today: UtcDay,
) -> sqlx::Result<SubjectUsage> {
    let statement = match subject.kind {
        ReservationSubjectKind::Key => find_usage!("key_id"),
        ReservationSubjectKind::User => find_usage!("user_id"),
        ReservationSubjectKind::Group => find_usage!("group_name"),
    };
    let query = sqlx::query(statement).bind(row_name(subject)).bind(today.to_string());
    let query = query.bind(subject.budget_since.to_string()).bind(&subject.id);
    let row = query.fetch_one(&mut *connection).await?;
    let last_minute = if subject.needs_last_minute { recent_requests(connection, subject).await? } else { Vec::new() };
    usage_from_row(&row, last_minute)
}

async fn recent_requests(
    connection: &mut PgConnection,
    subject: &ReservationSubject,
) -> sqlx::Result<Vec<RecentRequests>> {
    let rows = sqlx::query(FIND_RECENT).bind(row_name(subject)).fetch_all(connection).await?;
    rows.iter().map(|row| recent_from_row(row, "images")).collect()
}

fn row_name(subject: &ReservationSubject) -> String {
    format!("{}:{}", subject.kind.as_str(), subject.id)
}
