//! The reservations of all nodes in limits.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::{PgConnection, Row as _};

use super::PostgresStore;
use super::error_conversion::during;
use crate::gateway::money::Usd;
use crate::gateway::store::reservations::{
    NewReservation, ReservationSubject, ReservationSubjectKind, SharedReservations, SubjectUsage,
};
use crate::gateway::store::{NodeId, RequestId, StoreError, UtcDay};

/// Takes the locks of the subjects in their order, until the end of the transaction.
const LOCK: &str =
    "SELECT count(pg_advisory_xact_lock(hashtextextended(subject, 1))) FROM unnest($1::TEXT[]) AS subject";

/// Removes what no limit needs any more.
const REMOVE_PAST: &str = "DELETE FROM limit_reservations WHERE subject = ANY ($1) AND NOT is_open \
    AND begun_at < clock_timestamp() - interval '2 minutes'";

const FIND: &str = "SELECT CAST(extract(epoch FROM clock_timestamp() - begun_at) AS DOUBLE PRECISION) AS age, \
    images, nano_usd, day, is_open FROM limit_reservations \
    WHERE subject = $1 AND (is_open OR begun_at > clock_timestamp() - interval '1 minute') ORDER BY begun_at";

const INSERT: &str = "INSERT INTO limit_reservations (request_id, subject, node, day, images, nano_usd, begun_at, is_open) \
    SELECT $1, subject, $3, $4, $5, $6, clock_timestamp(), TRUE FROM unnest($2::TEXT[]) AS subject";

/// The delivered images of a day, and the money that was spent since another one.
macro_rules! counted_usage {
    ($column:literal) => {
        concat!(
            "SELECT CAST(coalesce(sum(images) FILTER (WHERE day = $2), 0) AS BIGINT), ",
            "CAST(least(coalesce(sum(cost_nano_usd), 0), 9223372036854775807) AS BIGINT) ",
            "FROM usage_days WHERE day >= $3 AND ",
            $column,
            " = $1"
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

    async fn release_reservation(&self, request_id: &RequestId) -> Result<(), StoreError> {
        let query = sqlx::query("DELETE FROM limit_reservations WHERE request_id = $1").bind(request_id.as_str());
        query.execute(&self.writer).await.map(drop).map_err(during("releasing what a job has reserved"))
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
    let mut transaction = store.writer.begin().await?;
    sqlx::query(LOCK).bind(&locks).execute(&mut *transaction).await?;
    sqlx::query(REMOVE_PAST).bind(&names).execute(&mut *transaction).await?;
    let mut usages = Vec::with_capacity(names.len());
    for subject in &reservation.subjects {
        usages.push(usage_of(&mut transaction, subject, reservation.today).await?);
    }
    if !decide(usages) {
        return transaction.rollback().await;
    }
    sqlx::query(INSERT)
        .bind(reservation.request_id.as_str())
        .bind(&names)
        .bind(store.node.as_str())
        .bind(reservation.today.to_string())
        .bind(i64::from(reservation.images))
        .bind(reservation.cost.nanos().cast_signed())
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

/// Removes the open reservations of a node whose jobs have no record: its process died between the two.
pub(super) async fn remove_without_record(pool: &sqlx::PgPool, node: &NodeId) -> sqlx::Result<()> {
    let query = sqlx::query(
        "DELETE FROM limit_reservations AS reserved WHERE is_open AND node = $1 AND NOT EXISTS \
         (SELECT 1 FROM records WHERE records.request_id = reserved.request_id AND records.state = 'running')",
    );
    query.bind(node.as_str()).execute(pool).await.map(drop)
}

/// Reads the reservations first and what was counted after them: a job that ends between the two is counted twice rather
/// than not at all.
async fn usage_of(
    connection: &mut PgConnection,
    subject: &ReservationSubject,
    today: UtcDay,
) -> sqlx::Result<SubjectUsage> {
    const MINUTE: f64 = 60.0;
    let (today, since) = (today.to_string(), subject.budget_since.to_string());
    let mut usage = SubjectUsage::default();
    for row in sqlx::query(FIND).bind(row_name(subject)).fetch_all(&mut *connection).await? {
        let (age, images, nanos): (f64, i64, i64) =
            (row.try_get("age")?, row.try_get("images")?, row.try_get("nano_usd")?);
        let images = u32::try_from(images).unwrap_or(u32::MAX);
        if age < MINUTE {
            usage.last_minute.push((Duration::try_from_secs_f64(age).unwrap_or_default(), images));
        }
        let day: &str = row.try_get("day")?;
        if !row.try_get("is_open")? {
            continue;
        }
        usage.jobs = usage.jobs.saturating_add(1);
        if day == today {
            usage.images_today += u64::from(images);
        }
        if day >= since.as_str() {
            usage.reserved = usage.reserved.plus(Usd::from_nanos(nanos.unsigned_abs()));
        }
    }
    let statement = match subject.kind {
        ReservationSubjectKind::Key => counted_usage!("key_id"),
        ReservationSubjectKind::User => counted_usage!("user_id"),
        ReservationSubjectKind::Group => counted_usage!("group_name"),
    };
    let query = sqlx::query_as(statement).bind(&subject.id).bind(today).bind(since);
    let (images, nanos): (i64, i64) = query.fetch_one(connection).await?;
    usage.images_today += images.unsigned_abs();
    usage.spent = Usd::from_nanos(nanos.unsigned_abs());
    Ok(usage)
}

fn row_name(subject: &ReservationSubject) -> String {
    format!("{}:{}", subject.kind.as_str(), subject.id)
}
