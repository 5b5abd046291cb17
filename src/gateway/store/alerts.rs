//! The database operations on alerts: events that operators want to hear of, and their delivery.

use async_trait::async_trait;

use super::{ReservationSubjectKind, StoreError, Timestamp};

/// The database operations on alerts.
#[async_trait]
pub(crate) trait AlertStore: Send + Sync {
    /// Returns the keys and the users that have limits.
    async fn limited_subjects(&self) -> Result<Vec<LimitedSubject>, StoreError>;

    /// Returns the name of a subject; `None` if it is gone.
    async fn subject_name(&self, kind: ReservationSubjectKind, id: &str) -> Result<Option<String>, StoreError>;

    /// Stores an alert and a delivery for each channel, unless the alert with this identity was raised before. Returns
    /// true if it is new. Of several nodes, one gets true.
    async fn raise_alert(&self, alert: &NewAlert, channels: &[&str]) -> Result<bool, StoreError>;

    /// Takes a delivery by this channel that is due, and keeps it from others until that time. Returns `None` if none is
    /// due.
    async fn claim_delivery(
        &self,
        channel: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<Option<DueDelivery>, StoreError>;

    /// Notes the outcome of an attempt to deliver.
    async fn finish_delivery(&self, delivery: &DueDelivery, outcome: &DeliveryOutcome) -> Result<(), StoreError>;

    /// Returns the newest alerts with their deliveries, newest first.
    async fn list_alerts(&self, limit: u32) -> Result<Vec<AlertRow>, StoreError>;

    /// Removes the alerts from before that time.
    async fn remove_old_alerts(&self, before: Timestamp) -> Result<u64, StoreError>;
}

/// A key or a user that has limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitedSubject {
    /// The kind.
    pub(crate) kind: ReservationSubjectKind,
    /// The id.
    pub(crate) id: String,
    /// The limits, as JSON.
    pub(crate) limits: String,
}

/// An alert that is to be raised.
#[derive(Debug, Clone)]
pub(crate) struct NewAlert {
    /// The id, which is also the id of its message.
    pub(crate) id: String,
    /// The text that is the same for the same alert.
    pub(crate) identity: String,
    /// The event, such as `budget.exhausted`.
    pub(crate) event: String,
    /// The facts, as a JSON object.
    pub(crate) details: String,
    /// The time.
    pub(crate) created_at: Timestamp,
}

/// A delivery that this process makes now.
#[derive(Debug, Clone)]
pub(crate) struct DueDelivery {
    /// The alert.
    pub(crate) alert: NewAlert,
    /// The channel.
    pub(crate) channel: String,
    /// The number of this attempt, from 1.
    pub(crate) attempt: u32,
}

/// The outcome of an attempt to deliver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeliveryOutcome {
    /// It was delivered.
    Delivered(Timestamp),
    /// It is tried again at this time.
    Retry(Timestamp, String),
    /// It is given up.
    Failed(Timestamp, String),
}

/// An alert and its deliveries.
#[derive(Debug, Clone)]
pub(crate) struct AlertRow {
    /// The alert.
    pub(crate) alert: NewAlert,
    /// Its deliveries, by channel.
    pub(crate) deliveries: Vec<DeliveryRow>,
}

/// The delivery of an alert by one channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeliveryRow {
    /// The channel.
    pub(crate) channel: String,
    /// `pending`, `delivered` or `failed`.
    pub(crate) state: String,
    /// The number of attempts so far.
    pub(crate) attempts: u32,
    /// The time of the next attempt, or of the end.
    pub(crate) due_at: Timestamp,
    /// The reason why the last attempt failed.
    pub(crate) last_error: Option<String>,
}
