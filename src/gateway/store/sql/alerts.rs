//! The statements for alerts and their deliveries.

use async_trait::async_trait;

use super::SqlStore;
use super::decode::{parsed, text};
use super::driver::SqlRow;
use super::error_conversion::during;
use super::statement::sql;
use super::transaction::{perform, rollback, transact};
use crate::gateway::store::{
    AlertRow, AlertStore, DeliveryOutcome, DeliveryRow, DueDelivery, LimitedSubject, NewAlert, ReservationSubjectKind,
    StoreError, Timestamp,
};

#[async_trait]
impl AlertStore for SqlStore {
    async fn limited_subjects(&self) -> Result<Vec<LimitedSubject>, StoreError> {
        let query = sql("SELECT 'key' AS kind, id, limits FROM keys WHERE limits IS NOT NULL AND deleted_at IS NULL \
             UNION ALL SELECT 'user' AS kind, id, limits FROM users WHERE limits IS NOT NULL");
        let from_row = |row: &SqlRow| {
            let is_key = row.try_get::<&str, _>("kind")? == "key";
            let kind = if is_key { ReservationSubjectKind::Key } else { ReservationSubjectKind::User };
            Ok(LimitedSubject { kind, id: text(row, "id")?, limits: text(row, "limits")? })
        };
        self.fetch_all("reading the limits of keys and users", query, from_row).await
    }

    async fn subject_name(&self, kind: ReservationSubjectKind, id: &str) -> Result<Option<String>, StoreError> {
        let statement = match kind {
            ReservationSubjectKind::Key => "SELECT name FROM keys WHERE id = $1",
            ReservationSubjectKind::User => "SELECT name FROM users WHERE id = $1",
            ReservationSubjectKind::Group => return Ok(Some(id.to_owned())),
        };
        let name = sql(statement).bind(id).fetch_optional_value(&self.readers).await;
        name.map_err(during("reading a name"))
    }

    async fn raise_alert(&self, alert: &NewAlert, channels: &[&str]) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let inserted =
                sql("INSERT INTO alerts (id, identity, event, details, created_at) VALUES ($1, $2, $3, $4, $5) \
                 ON CONFLICT (identity) DO NOTHING")
                .bind(&alert.id)
                .bind(&alert.identity)
                .bind(&alert.event)
                .bind(&alert.details)
                .bind(alert.created_at.to_string())
                .execute(&mut *transaction)
                .await?;
            if inserted == 0 {
                return Ok(rollback(false));
            }
            for channel in channels {
                sql("INSERT INTO alert_deliveries (alert_id, channel, state, attempts, due_at) \
                     VALUES ($1, $2, 'pending', 0, $3)")
                .bind(&alert.id)
                .bind(*channel)
                .bind(alert.created_at.to_string())
                .execute(&mut *transaction)
                .await?;
            }
            true
        })
        .map_err(during("storing an alert"))
    }

    /// Another node can take the delivery between the two statements; then the next one is taken.
    async fn claim_delivery(
        &self,
        channel: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<DueDelivery>, StoreError> {
        perform("taking a delivery of an alert", async {
            loop {
                let row = sql("SELECT alerts.*, attempts FROM alert_deliveries \
                     JOIN alerts ON alerts.id = alert_deliveries.alert_id \
                     WHERE state = 'pending' AND due_at <= $1 AND channel = $2 ORDER BY due_at LIMIT 1");
                let Some(row) = row.bind(now.to_string()).bind(channel).fetch_optional(&self.readers).await? else {
                    return Ok(None);
                };
                let alert = alert_from_row(&row)?;
                let attempts: i64 = row.try_get("attempts")?;
                let taken = sql("UPDATE alert_deliveries SET attempts = attempts + 1, due_at = $4 \
                     WHERE alert_id = $1 AND channel = $2 AND state = 'pending' AND attempts = $3");
                let taken = taken.bind(&alert.id).bind(channel).bind(attempts).bind(until.to_string());
                if taken.execute(&self.writer).await? == 1 {
                    let attempt = u32::try_from(attempts).unwrap_or(u32::MAX).saturating_add(1);
                    return Ok(Some(DueDelivery { alert, channel: channel.to_owned(), attempt }));
                }
            }
        })
        .await
    }

    async fn finish_delivery(&self, delivery: &DueDelivery, outcome: &DeliveryOutcome) -> Result<(), StoreError> {
        let (state, due_at, error) = match outcome {
            DeliveryOutcome::Delivered(at) => ("delivered", at, None),
            DeliveryOutcome::Retry(at, error) => ("pending", at, Some(error)),
            DeliveryOutcome::Failed(at, error) => ("failed", at, Some(error)),
        };
        // A later attempt of another node is not undone.
        let update = sql("UPDATE alert_deliveries SET state = $4, due_at = $5, last_error = $6 \
             WHERE alert_id = $1 AND channel = $2 AND attempts = $3");
        let update = update.bind(&delivery.alert.id).bind(&delivery.channel).bind(i64::from(delivery.attempt));
        let update = update.bind(state).bind(due_at.to_string()).bind(error);
        self.execute_change("noting the delivery of an alert", update).await.map(drop)
    }

    async fn list_alerts(&self, limit: u32) -> Result<Vec<AlertRow>, StoreError> {
        let query = sql("SELECT newest.*, channel, state, attempts, due_at, last_error \
             FROM (SELECT * FROM alerts ORDER BY created_at DESC, id LIMIT $1) AS newest \
             LEFT JOIN alert_deliveries ON alert_deliveries.alert_id = newest.id \
             ORDER BY newest.created_at DESC, newest.id, channel DESC");
        let from_row = |row: &SqlRow| Ok((alert_from_row(row)?, delivery_from_row(row)?));
        let rows = self.fetch_all("reading the alerts", query.bind(i64::from(limit)), from_row).await?;
        let mut alerts: Vec<AlertRow> = Vec::new();
        for (alert, delivery) in rows {
            if alerts.last().is_none_or(|last| last.alert.id != alert.id) {
                alerts.push(AlertRow { alert, deliveries: Vec::new() });
            }
            if let Some(last) = alerts.last_mut() {
                last.deliveries.extend(delivery);
            }
        }
        Ok(alerts)
    }

    async fn remove_old_alerts(&self, before: Timestamp) -> Result<u64, StoreError> {
        let delete = sql("DELETE FROM alerts WHERE created_at < $1").bind(before.to_string());
        self.execute_change("removing old alerts", delete).await
    }
}

fn delivery_from_row(row: &SqlRow) -> sqlx::Result<Option<DeliveryRow>> {
    let Some(channel) = row.try_get::<Option<String>, _>("channel")? else { return Ok(None) };
    Ok(Some(DeliveryRow {
        channel,
        state: text(row, "state")?,
        attempts: u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or(u32::MAX),
        due_at: parsed(row, "due_at")?,
        last_error: row.try_get("last_error")?,
    }))
}

fn alert_from_row(row: &SqlRow) -> sqlx::Result<NewAlert> {
    Ok(NewAlert {
        id: text(row, "id")?,
        identity: text(row, "identity")?,
        event: text(row, "event")?,
        details: text(row, "details")?,
        created_at: parsed(row, "created_at")?,
    })
}
