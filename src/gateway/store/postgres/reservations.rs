//! The reservations of all nodes in limits.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use super::PostgresDatabase;
use super::error_conversion::during;
use crate::gateway::money::Usd;
use crate::gateway::store::reservations::{
    HeldMoney, NewReservation, OpenMoney, RecentRequests, ReservationDecision, ReservationSubject,
    ReservationSubjectKind, SharedReservations, SubjectUsage,
};
use crate::gateway::store::sql::transaction::{rollback, transact};
use crate::gateway::store::{NodeId, RequestId, StoreError, UtcDay};

/// Takes the locks of the subjects in their order, until the end of the transaction.
const LOCK: &str =
    "SELECT count(pg_advisory_xact_lock(hashtextextended(subject, 1))) FROM unnest($1::TEXT[]) AS subject";

/// The requests of the last minute, in groups of a quarter of a second: a busy subject has thousands of them.
const FIND_RECENT: &str = "SELECT CAST(floor(extract(epoch FROM clock_timestamp() - begun_at) * 4) AS BIGINT) AS quarters, \
    count(*) AS requests, CAST(sum(images) AS BIGINT) AS images FROM limit_reservations \
    WHERE subject = $1 AND begun_at > clock_timestamp() - interval '1 minute' GROUP BY 1 ORDER BY 1 DESC";

const INSERT: &str = "INSERT INTO limit_reservations (request_id, subject, node, day, images, nano_usd, is_ceiling, \
    begun_at, is_open) SELECT $1, subject, $4, $5, $6, CASE WHEN nano_usd >= 0 THEN nano_usd END, is_ceiling, \
    clock_timestamp(), $8 FROM unnest($2::TEXT[], $3::BIGINT[], $7::BOOLEAN[]) AS held (subject, nano_usd, is_ceiling)";

/// Takes a place in the queue of a budget, or keeps it: a place that was not kept for two seconds is not looked at.
const QUEUE: &str = "INSERT INTO limit_waiters AS waiters (subject, request_id, since, seen_at) \
    VALUES ($1, $2, clock_timestamp(), clock_timestamp()) \
    ON CONFLICT (subject, request_id) DO UPDATE SET seen_at = excluded.seen_at";

/// The minute is much longer than a statement may take: a request that the process holds only since it has made its
/// list is younger.
const REMOVE_ABANDONED: &str = "DELETE FROM limit_reservations AS reserved WHERE is_open AND node = $1 \
    AND begun_at < clock_timestamp() - interval '1 minute' \
    AND NOT EXISTS (SELECT 1 FROM unnest($2::TEXT[]) AS held (request_id) WHERE held.request_id = reserved.request_id) \
    AND NOT EXISTS \
    (SELECT 1 FROM records WHERE records.request_id = reserved.request_id AND records.state = 'running')";

/// The money that the running jobs of a subject hold: their reservations, and the running records of jobs that began
/// before the subject had limits.
macro_rules! open_jobs {
    ($column:literal, $subject:literal, $id:literal, $today:literal, $since:literal) => {
        concat!(
            "(SELECT count(*) AS jobs, ",
            "CAST(coalesce(sum(images) FILTER (WHERE day = ",
            $today,
            "), 0) AS BIGINT) AS images, ",
            "capped(coalesce(sum(nano_usd) FILTER (WHERE day >= ",
            $since,
            " AND NOT is_ceiling), 0)) AS bounds, ",
            "capped(coalesce(sum(nano_usd) FILTER (WHERE day >= ",
            $since,
            " AND is_ceiling), 0)) AS ceilings, ",
            "count(*) FILTER (WHERE day >= ",
            $since,
            " AND nano_usd IS NULL) AS unbounded ",
            "FROM (SELECT day, images, nano_usd, is_ceiling FROM limit_reservations ",
            "WHERE subject = ",
            $subject,
            " AND is_open ",
            "UNION ALL SELECT substr(created_at, 1, 10), coalesce(CAST(CAST(document AS JSON) ->> 'n' AS BIGINT), ",
            "CASE WHEN CAST(document AS JSON) ->> 'size' IS NULL THEN 0 ELSE 1 END), ",
            "coalesce(max_job_cost_nano_usd, max_cost_nano_usd), operation = 'create_response' FROM records ",
            "WHERE state = 'running' AND ",
            $column,
            " = ",
            $id,
            " AND NOT EXISTS (SELECT 1 FROM limit_reservations AS own ",
            "WHERE own.request_id = records.request_id AND own.subject = ",
            $subject,
            ")) AS held) AS running"
        )
    };
}

/// The counts of a subject, with the dearest response that has cost more than it had reserved.
macro_rules! counted_usage {
    ($column:literal, $id:literal, $today:literal, $since:literal) => {
        concat!(
            "(SELECT CAST(coalesce(sum(images) FILTER (WHERE day = ",
            $today,
            "), 0) AS BIGINT) AS images, ",
            "capped(coalesce(sum(CAST(cost_nano_usd AS NUMERIC) + assumed_nano_usd), 0)) AS nano_usd, ",
            "(SELECT coalesce(max(cost_nano_usd), 0) FROM records WHERE operation = 'create_response' ",
            "AND state <> 'running' AND cost_nano_usd > max_job_cost_nano_usd AND created_at >= ",
            $since,
            " AND ",
            $column,
            " = ",
            $id,
            ") AS dearest ",
            "FROM usage_days WHERE day >= ",
            $since,
            " AND ",
            $column,
            " = ",
            $id,
            ") AS counted"
        )
    };
}

/// The columns of one subject.
macro_rules! usage_columns {
    () => {
        "SELECT running.jobs, running.images AS open_images, running.bounds, running.ceilings, running.unbounded, \
         counted.images AS delivered, counted.nano_usd AS spent, counted.dearest"
    };
}

/// Reads what running jobs hold, and what was counted, at the same moment: a job that ends is in one of the two.
macro_rules! find_usage {
    ($column:literal) => {
        concat!(
            usage_columns!(),
            ", EXISTS (SELECT 1 FROM limit_waiters AS other WHERE other.subject = $1 AND other.request_id <> $5 ",
            "AND other.seen_at > clock_timestamp() - interval '2 seconds' AND other.since < coalesce((SELECT mine.since ",
            "FROM limit_waiters AS mine WHERE mine.subject = $1 AND mine.request_id = $5), 'infinity')) AS is_queued FROM ",
            open_jobs!($column, "$1", "$4", "$2", "$3"),
            ", ",
            counted_usage!($column, "$4", "$2", "$3")
        )
    };
}

/// Reads the usage of many subjects of one kind, with the sum of the last minute.
macro_rules! find_all_usage {
    ($column:literal) => {
        concat!(
            usage_columns!(),
            ", FALSE AS is_queued, recent.requests, recent.images AS recent_images, recent.quarters ",
            "FROM unnest($1::TEXT[], $2::TEXT[], $3::TEXT[]) WITH ORDINALITY AS wanted (subject, id, since, position) ",
            "CROSS JOIN LATERAL ",
            open_jobs!($column, "wanted.subject", "wanted.id", "$4", "wanted.since"),
            " CROSS JOIN LATERAL ",
            counted_usage!($column, "wanted.id", "$4", "wanted.since"),
            " CROSS JOIN LATERAL (SELECT count(*) AS requests, CAST(coalesce(sum(images), 0) AS BIGINT) AS images, ",
            "CAST(floor(coalesce(extract(epoch FROM clock_timestamp() - max(begun_at)), 0) * 4) AS BIGINT) AS quarters ",
            "FROM limit_reservations WHERE subject = wanted.subject ",
            "AND begun_at > clock_timestamp() - interval '1 minute') AS recent ORDER BY wanted.position"
        )
    };
}

#[async_trait]
impl SharedReservations for PostgresDatabase {
    async fn reserve(
        &self,
        reservation: &NewReservation<'_>,
        decide: &mut (dyn FnMut(Vec<SubjectUsage>) -> ReservationDecision + Send),
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
        query.execute(&self.pool).await.map(drop).map_err(during("releasing what a job has reserved"))
    }

    async fn remove_abandoned(&self, held: &[RequestId]) -> Result<u64, StoreError> {
        let held: Vec<_> = held.iter().map(RequestId::as_str).collect();
        let query = sqlx::query(REMOVE_ABANDONED).bind(self.node.as_str()).bind(held);
        let removed = query.execute(&self.pool).await.map_err(during("removing abandoned reservations"))?;
        Ok(removed.rows_affected())
    }
}

async fn reserve(
    store: &PostgresDatabase,
    reservation: &NewReservation<'_>,
    decide: &mut (dyn FnMut(Vec<SubjectUsage>) -> ReservationDecision + Send),
) -> sqlx::Result<()> {
    let names: Vec<_> = reservation.subjects.iter().map(row_name).collect();
    let mut locks = names.clone();
    locks.sort_unstable();
    // The semaphore is never closed, so the error cannot occur.
    let _permit = store.reservation_permits.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
    transact!(store.begin(), |transaction| {
        sqlx::query(LOCK).bind(&locks).execute(&mut *transaction).await?;
        let mut usages = Vec::with_capacity(names.len());
        for subject in &reservation.subjects {
            usages.push(usage_of(transaction, subject, reservation).await?);
        }
        match decide(usages) {
            ReservationDecision::Reserve(held) => insert(store, transaction, reservation, &names, &held).await?,
            ReservationDecision::Wait(index) => {
                let query = sqlx::query(QUEUE).bind(names.get(index)).bind(reservation.request_id.as_str());
                query.execute(&mut *transaction).await?;
            }
            ReservationDecision::Refuse => return Ok(rollback(())),
        }
    })
}

/// Writes the parts of a job, and ends its waiting.
async fn insert(
    store: &PostgresDatabase,
    connection: &mut PgConnection,
    reservation: &NewReservation<'_>,
    names: &[String],
    held: &[HeldMoney],
) -> sqlx::Result<()> {
    if reservation.is_waiting {
        let query = sqlx::query("DELETE FROM limit_waiters WHERE request_id = $1");
        query.bind(reservation.request_id.as_str()).execute(&mut *connection).await?;
    }
    // A negative number stands for everything that is left.
    let amounts = held.iter().map(|held| held.amount.map_or(-1, |amount| amount.nanos().cast_signed()));
    let query = sqlx::query(INSERT)
        .bind(reservation.request_id.as_str())
        .bind(names)
        .bind(amounts.collect::<Vec<i64>>())
        .bind(store.node.as_str())
        .bind(reservation.today.to_string())
        .bind(i64::from(reservation.images))
        .bind(held.iter().map(|held| held.is_ceiling).collect::<Vec<bool>>())
        .bind(reservation.is_open);
    query.execute(connection).await.map(drop)
}

/// Reads the usage of subjects that are of the same kind.
async fn read_usage(
    store: &PostgresDatabase,
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
    let rows = query.fetch_all(&store.pool).await?;
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
        delivered_today: count("delivered")?,
        open_images: count("open_images")?,
        spent: Usd::from_nanos(count("spent")?),
        open: OpenMoney {
            bounds: Usd::from_nanos(count("bounds")?),
            ceilings: Usd::from_nanos(count("ceilings")?),
            unbounded: u32::try_from(count("unbounded")?).unwrap_or(u32::MAX),
        },
        dearest_excess: Usd::from_nanos(count("dearest")?),
        is_queued: row.try_get("is_queued")?,
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
    query.execute(pool).await?;
    let left = sqlx::query("DELETE FROM limit_waiters WHERE seen_at < clock_timestamp() - interval '1 minute'");
    left.execute(pool).await.map(drop)
}

async fn usage_of(
    connection: &mut PgConnection,
    subject: &ReservationSubject,
    reservation: &NewReservation<'_>,
) -> sqlx::Result<SubjectUsage> {
    let statement = match subject.kind {
        ReservationSubjectKind::Key => find_usage!("key_id"),
        ReservationSubjectKind::User => find_usage!("user_id"),
        ReservationSubjectKind::Group => find_usage!("group_name"),
    };
    let query = sqlx::query(statement).bind(row_name(subject)).bind(reservation.today.to_string());
    let query = query.bind(subject.budget_since.to_string()).bind(&subject.id).bind(reservation.request_id.as_str());
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
