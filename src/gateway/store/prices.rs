//! The database operations on the prices that admins and commands set.

use async_trait::async_trait;
use chrono::NaiveDate;

use super::{AuditContext, StoreError};
use crate::gateway::config::ModelPrice;

/// The database operations on prices.
#[async_trait]
pub(crate) trait PriceStore: Send + Sync {
    /// Returns all prices, sorted by model and day.
    async fn list_prices(&self) -> Result<Vec<ModelPrice>, StoreError>;

    /// Adds a price, or replaces the one of the same model and day.
    async fn set_price(&self, audit: &AuditContext, price: &ModelPrice) -> Result<(), StoreError>;

    /// Deletes a price, and returns true if there was one.
    async fn delete_price(&self, audit: &AuditContext, model: &str, from: NaiveDate) -> Result<bool, StoreError>;
}
